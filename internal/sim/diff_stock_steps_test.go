package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"seckill/internal/sale"
)

// step is one random call.
func (h *stockHistory) step() {
	h.now = h.now.Add(time.Duration(20+h.r.IntN(60)) * time.Millisecond)
	ctx := context.Background()
	if len(h.log) == 0 && h.r.IntN(10) > 0 { // most histories begin with a warm-up
		h.act.Epoch = 1
		h.both("begin 1", func(s anyStock) string { return class(s.BeginRebuild(ctx, h.act, 1)) })
		h.both("finish 1", func(s anyStock) string { return class(s.FinishRebuild(ctx, &sale.Snapshot{Activity: h.act}, 1)) })
		return
	}
	steps := []func(context.Context){
		h.reserve, h.reserve, h.reserve, h.reserve, h.settle, h.settle, h.settle, h.returns, h.status, h.promote, h.promote, h.line, h.line,
		h.meta, h.rebuild, h.audit, h.marks, h.reads, h.reads, h.lists,
	}
	steps[h.r.IntN(len(steps))](ctx)
	if h.r.IntN(120) == 0 {
		h.both("purge", func(s anyStock) string { return class(s.Purge(ctx, h.id)) })
	}
}

func (h *stockHistory) reserve(ctx context.Context) {
	var reqs []sale.ReserveRequest
	for range 1 + h.r.IntN(3) {
		r := h.reservation()
		q := sale.ReserveRequest{Token: r.Token, UserID: r.UserID, CommodityID: r.CommodityID, Quantity: r.Quantity}
		if h.r.IntN(15) == 0 {
			q.CommodityID, q.Quantity = h.commodity(), 1+h.r.IntN(3)
		}
		reqs = append(reqs, q)
	}
	h.both(fmt.Sprintf("reserve %+v", reqs), func(s anyStock) string {
		out, err := s.Reserve(ctx, h.id, h.now, reqs)
		text := class(err)
		for i := range out {
			text += fmt.Sprintf(" [%s %s %s %s]", out[i].Outcome, sayReservation(&out[i].Reservation), sayResult(&out[i].Result), out[i].FirstToken)
		}
		return text
	})
}

func (h *stockHistory) settle(ctx context.Context) {
	var ds []sale.Decision
	for range 1 + h.r.IntN(3) {
		ds = append(ds, h.decision())
	}
	name := "settle"
	for i := range ds {
		name += fmt.Sprintf(" %s/%d/%s/v%d/e%d", ds[i].Token, ds[i].UserID, ds[i].Status, ds[i].Version, ds[i].Epoch)
	}
	h.both(name, func(s anyStock) string {
		out, err := s.Settle(ctx, h.id, ds)
		return fmt.Sprint(class(err), out)
	})
}

func (h *stockHistory) returns(ctx context.Context) {
	rs := []sale.Return{h.giveBack()}
	if h.r.IntN(2) == 0 {
		rs = append(rs, h.giveBack())
	}
	h.both(fmt.Sprintf("return %+v", rs), func(s anyStock) string {
		out, epoch, err := s.Return(ctx, h.id, rs)
		return fmt.Sprint(class(err), out, epoch)
	})
}

func (h *stockHistory) status(ctx context.Context) {
	d := h.decision()
	rs := []sale.UserResult{{UserID: d.UserID, Result: d.Result()}}
	h.both(fmt.Sprintf("status %s v%d %s", d.Token, d.Version, d.Status), func(s anyStock) string {
		out, err := s.SetStatus(ctx, rs)
		return fmt.Sprint(class(err), out)
	})
}

func (h *stockHistory) promote(ctx context.Context) {
	r := h.giveBack()
	var extra []int64
	if h.r.IntN(8) == 0 {
		extra = append(extra, h.user())
	}
	h.both(fmt.Sprintf("promote %+v %v", r, extra), func(s anyStock) string {
		ws, err := s.Waiting(ctx, h.id, r.CommodityID, 20)
		if err != nil {
			return class(err)
		}
		p, err := s.Promote(ctx, r, h.now, append(usersOf(ws), extra...), func(u int64) string { return "P" + r.Token + "u" + strconv.FormatInt(u, 10) })
		if err != nil {
			return class(err)
		}
		return fmt.Sprint(p.Found, p.Epoch, sayReservations(p.Reservations))
	})
}

func usersOf(ws []sale.Waiter) []int64 {
	users := make([]int64, len(ws))
	for i := range ws {
		users[i] = ws[i].UserID
	}
	return users
}

func (h *stockHistory) line(ctx context.Context) {
	u, c, joined := h.user(), h.commodity(), h.now.Add(-time.Duration(h.r.IntN(3))*time.Millisecond)
	ws := []sale.Waiter{{UserID: u, JoinedAt: joined}}
	switch h.r.IntN(8) {
	case 0:
		h.both(fmt.Sprint("leave ", u, c), func(s anyStock) string { return class(s.LeaveWaitlist(ctx, h.id, c, u)) })
	case 1:
		if h.r.IntN(4) == 0 {
			h.both("drop line "+c, func(s anyStock) string { return class(s.DropWaitlist(ctx, h.id, c)) })
		}
	case 2:
		h.both(fmt.Sprint("drop ", u, c, sale.Millis(joined)), func(s anyStock) string { return class(s.DropWaiters(ctx, h.id, c, ws)) })
	case 3:
		epoch := h.act.Epoch - int64(h.r.IntN(3)/2)
		h.both(fmt.Sprint("fill ", u, c, sale.Millis(joined), " of ", epoch), func(s anyStock) string { return class(s.FillWaitlist(ctx, h.id, c, epoch, ws)) })
	default:
		h.both(fmt.Sprint("join ", u, c, sale.Millis(joined)), func(s anyStock) string { return class(s.JoinWaitlist(ctx, h.id, c, ws)) })
	}
	h.both("waiting "+c, func(s anyStock) string {
		ws, err := s.Waiting(ctx, h.id, c, 3)
		return fmt.Sprint(class(err), ws)
	})
}

func (h *stockHistory) meta(ctx context.Context) {
	a := h.act
	a.Epoch += int64(h.r.IntN(5) / 4)
	a.State = []sale.State{sale.StateScheduled, sale.StateScheduled, sale.StatePaused, sale.StateEnded, sale.StateDraft}[h.r.IntN(5)]
	a.AllowList = h.r.IntN(8) == 0
	h.both(fmt.Sprintf("meta e%d %s %t", a.Epoch, a.State, a.AllowList), func(s anyStock) string { return class(s.SetMeta(ctx, &a)) })
	if h.r.IntN(2) == 0 {
		h.both("meta again", func(s anyStock) string { return class(s.SetMeta(ctx, &h.act)) })
	}
}

func (h *stockHistory) rebuild(ctx context.Context) {
	if h.r.IntN(3) > 0 {
		return
	}
	epoch := h.act.Epoch + 1
	if h.r.IntN(5) == 0 {
		epoch = max(1, h.act.Epoch)
	}
	h.both(fmt.Sprint("begin ", epoch), func(s anyStock) string { return class(s.BeginRebuild(ctx, h.act, epoch)) })
	h.act.Epoch = max(h.act.Epoch, epoch)
	for range h.r.IntN(3) { // what others do meanwhile
		h.settle(ctx)
		h.line(ctx)
	}
	if h.r.IntN(6) == 0 {
		return // its leader has died
	}
	snap := h.snapshot()
	copied := func() *sale.Snapshot {
		c := *snap
		c.Entries = slices.Clone(snap.Entries)
		return &c
	}
	if h.r.IntN(8) == 0 && epoch > 1 {
		epoch--
	}
	h.both(fmt.Sprintf("finish %d with %+v", epoch, snap.Entries), func(s anyStock) string { return class(s.FinishRebuild(ctx, copied(), epoch)) })
}

func (h *stockHistory) audit(ctx context.Context) {
	closed := []string{h.token(), h.token()}
	var at sale.StockAudit
	h.both("audit", func(s anyStock) string {
		out, err := s.Audit(ctx, h.id, []string{"SP1", "SP2"}, closed)
		at = out
		return fmt.Sprint(class(err), out.Epoch, out.Seq, out.Ready, out.Stock, sayReservations(out.Occupied), out.Truncated, out.Closed)
	})
	if h.r.IntN(3) == 0 {
		units := map[string]int64{"SP1": int64(h.r.IntN(3))}
		seq := at.Seq - int64(h.r.IntN(2))
		h.both(fmt.Sprint("repair ", seq, units), func(s anyStock) string { return class(s.Repair(ctx, h.id, at.Epoch, seq, units)) })
	}
}

func (h *stockHistory) marks(ctx context.Context) {
	var marks map[int64]string
	h.both("marks", func(s anyStock) string {
		m, err := s.Marks(ctx, h.id)
		marks = m
		return fmt.Sprint(class(err), m)
	})
	u, to := h.user(), []string{"", h.token()}[h.r.IntN(2)]
	was := marks[u]
	if h.r.IntN(4) == 0 {
		was = h.token()
	}
	h.both(fmt.Sprintf("set mark %d %q %q", u, was, to), func(s anyStock) string { return class(s.SetMark(ctx, h.id, u, was, to)) })
}

func (h *stockHistory) lists(ctx context.Context) {
	u, list, on := h.user(), []string{"blocked", "eligible"}[h.r.IntN(2)], h.r.IntN(3) == 0
	h.both(fmt.Sprint("list ", list, u, on), func(s anyStock) string { return class(s.SetUserList(ctx, h.id, list, u, on)) })
}

func (h *stockHistory) reads(ctx context.Context) {
	id, u := h.token(), h.user()
	h.both("read", func(s anyStock) string {
		res, ok, err := s.Result(ctx, h.id, id)
		text := fmt.Sprint(class(err), ok, res.UserID, " ")
		if ok {
			text += sayResult(&res.Result)
		}
		mark, ok, err := s.Mark(ctx, h.id, u)
		text += fmt.Sprint(" ", mark, ok, class(err))
		users, err := s.ParticipantsOf(ctx, h.id)
		slices.Sort(users)
		text += fmt.Sprint(" ", users, class(err))
		out, err := s.Occupied(ctx, h.id, h.now.Add(time.Second), 3)
		text += " " + sayReservations(out) + class(err)
		lives, err := s.Live(ctx, []string{h.id})
		l := lives[h.id]
		text += fmt.Sprint(" ", l.State, l.Epoch, l.Seq, sale.Millis(l.StartsAt), sale.Millis(l.EndsAt), l.Items, class(err))
		epoch, seq, err := s.RaiseSeq(ctx, h.id)
		return text + fmt.Sprint(" ", epoch, seq, class(err))
	})
}
