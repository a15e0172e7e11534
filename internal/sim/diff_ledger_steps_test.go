package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// step is one random call.
func (h *ledgerHistory) step() {
	h.c.on(time.Duration(h.r.IntN(600)) * time.Millisecond)
	ctx := context.Background()
	steps := []func(context.Context){
		h.commit, h.commit, h.commit, h.commit, h.commit, h.refuse, h.change, h.change, h.change, h.pay, h.closes, h.returns, h.returns, h.told,
		h.epochs, h.witness, h.witness, h.snapshot, h.state, h.line, h.line, h.reads, h.reads,
	}
	steps[h.r.IntN(len(steps))](ctx)
}

func (h *ledgerHistory) commit(ctx context.Context) {
	var batch []sale.Pending
	for range 1 + h.r.IntN(4) {
		batch = append(batch, h.message())
	}
	name := "commit"
	for i := range batch {
		name += fmt.Sprintf(" %s/%d/%s/%d/e%d/%d@%d", batch[i].Token, batch[i].UserID, batch[i].CommodityID, batch[i].Quantity, batch[i].Epoch, batch[i].Partition, batch[i].Offset)
	}
	h.both(name, func(l anyLedger) string {
		ds, err := l.Commit(ctx, batch)
		text := verdict(err)
		for i := range ds {
			text += " " + sayDecision(&ds[i])
			if ds[i].Ordered && !slices.Contains(h.orders, ds[i].OrderNo) {
				h.orders = append(h.orders, ds[i].OrderNo)
			}
		}
		return text
	})
}

func (h *ledgerHistory) refuse(ctx context.Context) {
	if h.r.IntN(3) > 0 {
		return
	}
	m := h.message()
	h.both("refuse "+m.Token, func(l anyLedger) string {
		d, err := l.Refuse(ctx, m)
		return verdict(err) + sayDecision(&d)
	})
}

// order is one that exists mostly, of its user mostly.
func (h *ledgerHistory) order() (string, int64) {
	if len(h.orders) == 0 || h.r.IntN(12) == 0 {
		u := h.user()
		return sale.OrderNo(h.user0<<8+200, u), u
	}
	no := h.orders[h.r.IntN(len(h.orders))]
	for i := range h.sent {
		if h.sent[i].OrderNo == no {
			return no, h.sent[i].UserID
		}
	}
	return no, h.user()
}

func (h *ledgerHistory) change(ctx context.Context) {
	no, user := h.order()
	pays := h.r.IntN(2) == 0
	h.both(fmt.Sprintf("change %s of %d, pay %t", no, user, pays), func(l anyLedger) string {
		var o *sale.Order
		var changed bool
		var err error
		if pays {
			o, changed, err = l.Pay(ctx, no, user, h.c.at, "test")
		} else {
			o, changed, err = l.Cancel(ctx, no, user)
		}
		return fmt.Sprint(class(err), changed, sayOrder(o))
	})
}

func (h *ledgerHistory) pay(ctx context.Context) {
	no, _ := h.order()
	p := sale.Payment{ID: fmt.Sprintf("p%s.%d", h.id, h.r.IntN(6)), OrderNo: no, Amount: h.sentAmount(no), PaidAt: h.c.at}
	h.both(fmt.Sprintf("payment %s of %s %s", p.ID, no, p.Amount), func(l anyLedger) string {
		outcome, o, changed, err := l.RecordPayment(ctx, p)
		if err != nil {
			return class(err)
		}
		return fmt.Sprint(outcome, changed, sayOrder(o))
	})
}

func (h *ledgerHistory) sentAmount(no string) (amount decimal.Decimal) {
	for i := range h.sent {
		if h.sent[i].OrderNo == no && h.r.IntN(8) > 0 {
			amount, _ = sale.Amount(h.sent[i].Price, max(1, h.sent[i].Quantity))
			return amount
		}
	}
	return amount
}

func (h *ledgerHistory) closes(ctx context.Context) {
	h.both("close unpaid", func(l anyLedger) string {
		list, err := l.CloseUnpaid(ctx, h.c.at, 500)
		text := []string{class(err)}
		for i := range list {
			if list[i].ActivityID == h.id {
				text = append(text, sayOrder(&list[i]))
			}
		}
		slices.Sort(text)
		return strings.Join(text, " ")
	})
}

func (h *ledgerHistory) returns(ctx context.Context) {
	h.both("pending returns", func(l anyLedger) string {
		list, err := l.PendingReturns(ctx, 1000)
		text := []string{class(err)}
		for _, r := range list {
			if r.ActivityID == h.id {
				text = append(text, fmt.Sprintf("%+v", r))
				h.returned = append(h.returned, r.Token)
			}
		}
		slices.Sort(text)
		return strings.Join(text, " ")
	})
	if len(h.sent) == 0 {
		return
	}
	m := h.sent[h.r.IntN(len(h.sent))]
	if len(h.returned) > 0 && h.r.IntN(3) > 0 {
		for i := range h.sent {
			if h.sent[i].Token == h.returned[len(h.returned)-1] {
				m = h.sent[i]
			}
		}
	}
	epoch := h.epoch - int64(h.r.IntN(5)/4)
	h.both(fmt.Sprint("mark returned ", m.Token, epoch), func(l anyLedger) string { return class(l.MarkReturned(ctx, m.Token, m.UserID, epoch)) })
}

func (h *ledgerHistory) told(ctx context.Context) {
	h.both("untold", func(l anyLedger) string {
		list, err := l.Untold(ctx, 1000)
		text := []string{class(err)}
		for i := range list {
			if list[i].ActivityID == h.id {
				text = append(text, sayOrder(&list[i]))
			}
		}
		slices.Sort(text)
		return strings.Join(text, " ")
	})
	if len(h.sent) > 0 {
		m, v := h.sent[h.r.IntN(len(h.sent))], int64(h.r.IntN(4))
		h.both(fmt.Sprint("mark told ", m.Token, v), func(l anyLedger) string { return class(l.MarkTold(ctx, m.Token, m.UserID, v)) })
	}
}

func (h *ledgerHistory) epochs(ctx context.Context) {
	fence := h.fence + int64(h.r.IntN(3)) - 1
	h.fence = max(h.fence, fence)
	switch h.r.IntN(4) {
	case 0:
		h.both("suspect", func(l anyLedger) string { return class(l.Suspect(ctx, h.id, h.epoch)) })
		h.epoch++ // a guess; the snapshots tell when it is wrong for both
	default:
		h.both(fmt.Sprint("raise epoch, fence ", fence), func(l anyLedger) string {
			epoch, err := l.RaiseEpoch(ctx, h.id, fence)
			if err == nil {
				h.epoch = epoch
			}
			return fmt.Sprint(epoch, class(err))
		})
	}
	if h.r.IntN(3) > 0 {
		offsets := map[int]int64{0: int64(h.r.IntN(10)), 1: int64(h.r.IntN(10))}
		epoch := h.epoch - int64(h.r.IntN(6)/5)
		h.both(fmt.Sprint("boundary of ", epoch, offsets), func(l anyLedger) string { return class(l.SaveBoundary(ctx, h.id, epoch, offsets)) })
	}
}

// witness is a leader that looks at Redis, which mostly goes on.
func (h *ledgerHistory) witness(ctx context.Context) {
	h.seq += int64(h.r.IntN(4)) - 1
	seen := sale.Sighting{Epoch: max(0, h.epoch-int64(h.r.IntN(8)/7)), Seq: max(1, h.seq), Server: []string{"r1", "r1", "r1", "r1", "r2", ""}[h.r.IntN(6)]}
	fence := max(1, h.fence-int64(h.r.IntN(6)/5))
	h.both(fmt.Sprintf("witness %d %+v", fence, seen), func(l anyLedger) string {
		behind, err := l.Witness(ctx, fence, map[string]sale.Sighting{h.id: seen})
		return fmt.Sprint(behind, class(err))
	})
}

func (h *ledgerHistory) snapshot(ctx context.Context) {
	h.both("snapshot", func(l anyLedger) string {
		s, err := l.RebuildSnapshot(ctx, h.id)
		if err != nil {
			return class(err)
		}
		text := []string{}
		for i := range s.Entries {
			e := &s.Entries[i]
			text = append(text, fmt.Sprint(sayDecision(&e.Decision), e.Returned, sale.Millis(e.At), sale.Millis(e.Decision.At)))
		}
		slices.Sort(text)
		h.epoch = s.Activity.Epoch
		return fmt.Sprint(s.Activity.Epoch, s.Activity.State, s.Activity.Items[0].Sold, s.Activity.Items[1].Sold, text)
	})
}

func (h *ledgerHistory) state(ctx context.Context) {
	if h.r.IntN(4) > 0 {
		return
	}
	to := []sale.State{sale.StatePaused, sale.StateScheduled, sale.StateScheduled, sale.StateEnded, sale.StateSettled, sale.StateOpen}[h.r.IntN(6)]
	h.both("state "+string(to), func(l anyLedger) string {
		return class(l.SetActivityState(ctx, h.id, []sale.State{sale.StateScheduled, sale.StatePaused, sale.StateEnded}, to))
	})
}

func (h *ledgerHistory) line(ctx context.Context) {
	u := h.user()
	switch h.r.IntN(6) {
	case 0:
		h.both(fmt.Sprint("leave ", u), func(l anyLedger) string {
			list, err := l.LeaveWaitlist(ctx, h.id, u)
			return fmt.Sprint(list, class(err))
		})
	case 1:
		w := sale.Waiter{ActivityID: h.id, CommodityID: "SP1", UserID: u}
		h.both(fmt.Sprint("promoted ", u), func(l anyLedger) string { return class(l.MarkPromoted(ctx, w, "P1")) })
	case 2:
		if h.r.IntN(4) == 0 {
			h.both("expire", func(l anyLedger) string {
				list, err := l.ExpireWaitlist(ctx, h.id)
				return fmt.Sprint(list, class(err))
			})
		}
	default:
		c := []string{"SP1", "SP2"}[h.r.IntN(2)]
		h.both(fmt.Sprint("join ", u, c), func(l anyLedger) string {
			at, err := l.JoinWaitlist(ctx, h.id, c, u)
			return fmt.Sprint(sale.Millis(at), class(err))
		})
	}
	some := []sale.Waiter{{UserID: h.user()}, {UserID: h.user()}, {UserID: 999}}
	h.both(fmt.Sprint("not waiting ", some[0].UserID, some[1].UserID), func(l anyLedger) string {
		list, err := l.NotWaiting(ctx, h.id, "SP1", some)
		return fmt.Sprint(list, class(err))
	})
	h.both("waiters", func(l anyLedger) string {
		list, err := l.Waiters(ctx, h.id)
		return fmt.Sprint(list, class(err))
	})
}

func (h *ledgerHistory) reads(ctx context.Context) {
	m := h.message()
	h.both("read "+m.Token, func(l anyLedger) string {
		d, err := l.DecisionByToken(ctx, h.id, m.UserID, m.Token, 1)
		text := class(err) + sayDecision(d)
		d, err = l.DecisionOfUser(ctx, h.id, m.UserID)
		text += class(err) + sayDecision(d)
		unpaid, untold, returning, err := l.Open(ctx, h.id)
		return text + fmt.Sprint(unpaid, untold, returning, class(err))
	})
}
