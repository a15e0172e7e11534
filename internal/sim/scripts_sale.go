package sim

import (
	"strconv"
	"strings"

	"seckill/internal/sale"
)

// begin is begin.lua.
func (k *keysOfSale) begin(a *sale.Activity, epoch int64) error {
	have, seq := k.position()
	if have > epoch || have == epoch && k.meta != nil && k.meta.state != metaRebuilding {
		return sale.ErrConflict
	}
	k.meta = &meta{epoch: epoch, seq: seq + 1, state: metaRebuilding, from: sale.Activity{StartsAt: a.StartsAt, EndsAt: a.EndsAt}}
	return nil
}

func (k *keysOfSale) rebuilding(epoch int64) bool {
	return k.meta != nil && k.meta.epoch == epoch && k.meta.state == metaRebuilding
}

// names lists the keys of a sale but its meta, as a scan does.
func (k *keysOfSale) names() []string {
	names := []string{"occupied", "participants", "blocked", "eligible"}
	for c := range k.stock {
		names = append(names, "stock:"+c)
	}
	for u := range k.marks {
		names = append(names, "user:"+strconv.FormatInt(u, 10))
	}
	for id := range k.tokens {
		names = append(names, "token:"+id)
	}
	for c := range k.lines {
		names = append(names, "waitlist:"+c)
	}
	return names
}

// wipe is wipe.lua.
func (k *keysOfSale) wipe(epoch int64, names []string) error {
	if !k.rebuilding(epoch) {
		return sale.ErrConflict
	}
	for _, name := range names {
		kind, id, _ := strings.Cut(name, ":")
		switch kind {
		case "occupied":
			clear(k.occupied)
		case "participants":
			clear(k.participants)
		case "blocked":
			clear(k.blocked)
		case "eligible":
			clear(k.eligible)
		case "stock":
			delete(k.stock, id)
		case "user":
			u, _ := strconv.ParseInt(id, 10, 64)
			delete(k.marks, u)
		case "token":
			delete(k.tokens, id)
		case "waitlist":
			delete(k.lines, id)
		}
	}
	return nil
}

// list is list.lua; epoch 0 is an operator's call.
func (k *keysOfSale) list(epoch int64, set map[int64]bool, users []int64, on bool) error {
	if epoch > 0 && !k.rebuilding(epoch) {
		return sale.ErrConflict
	}
	if epoch == 0 && !k.usable() {
		return sale.ErrNotReady
	}
	for _, u := range users {
		if on {
			set[u] = true
		} else {
			delete(set, u)
		}
	}
	k.meta.seq++
	return nil
}

// restore is restore.lua.
func (k *keysOfSale) restore(bugs *Bugs, epoch int64, entries []sale.SnapshotEntry) error {
	if !k.rebuilding(epoch) {
		return sale.ErrConflict
	}
	for i := range entries {
		e := &entries[i]
		t := k.tokens[e.Token]
		fresh := t == nil
		if fresh {
			t = &token{}
			k.tokens[e.Token] = t
		}
		t.state, t.user, t.commodity, t.quantity = restoredState(e), e.UserID, e.CommodityID, e.Quantity
		t.price, t.at, t.epoch = e.Price, e.Decision.At, e.Epoch
		if fresh || t.version <= e.Version || bugs.StatusUnchecked {
			res := e.Result()
			t.write(&res)
		}
		if e.Ordered {
			k.mark(e.UserID, e.Token)
		}
	}
	k.meta.seq++
	return nil
}

// restoredState is R11.
func restoredState(e *sale.SnapshotEntry) sale.TokenState {
	if !e.Ordered {
		return sale.TokenReleased
	}
	ended := e.Status == sale.StatusCancelled || e.Status == sale.StatusClosed
	if ended && e.Returned != 0 {
		return sale.TokenReleased
	}
	return sale.TokenCommitted
}

// open is open.lua.
func (k *keysOfSale) open(bugs *Bugs, snap *sale.Snapshot, epoch int64) error {
	if have, _ := k.position(); k.meta == nil || have != epoch {
		return sale.ErrConflict
	}
	if k.meta.state != metaRebuilding {
		return nil // open already
	}
	for i := range snap.Activity.Items {
		it := &snap.Activity.Items[i]
		left := snap.Remaining(it.CommodityID)
		if bugs.ReturnsIgnored {
			left = it.Total - it.Sold
		}
		k.stock[it.CommodityID] = max(0, left)
	}
	k.meta.seq++
	k.meta.adopt(&snap.Activity)
	return nil
}

func (m *meta) adopt(a *sale.Activity) {
	m.state, m.from, m.items = metaState(a.State), *a, true
	m.from.Items = append([]sale.Item(nil), a.Items...)
}

// setMeta is meta.lua.
func (k *keysOfSale) setMeta(a *sale.Activity) error {
	if !k.usable() {
		return sale.ErrNotReady
	}
	if k.meta.epoch != a.Epoch {
		return sale.ErrConflict
	}
	k.meta.seq++
	k.meta.adopt(a)
	return nil
}

// repair is repair.lua.
func (k *keysOfSale) repair(bugs *Bugs, epoch, seq int64, units map[string]int64) error {
	moved := k.meta == nil || k.meta.epoch != epoch || k.meta.seq != seq
	if !k.usable() || moved && !bugs.RepairUnconditional {
		return sale.ErrConflict
	}
	for c, n := range units {
		if _, ok := k.stock[c]; ok {
			k.stock[c] = n
		}
	}
	k.meta.seq++
	return nil
}

// setMark is mark.lua.
func (k *keysOfSale) setMark(user int64, was, id string) error {
	if !k.usable() || k.marks[user] != was {
		return sale.ErrConflict
	}
	if id == "" {
		delete(k.marks, user)
		delete(k.participants, user)
	} else {
		k.mark(user, id)
	}
	k.meta.seq++
	return nil
}

// wait is wait.lua.
func (k *keysOfSale) wait(what, commodity string, epoch int64, ws []sale.Waiter) error {
	if k.meta == nil || k.meta.epoch == 0 {
		return sale.ErrNotReady
	}
	if what == "fill" && !k.rebuilding(epoch) {
		return sale.ErrConflict
	}
	l := k.lines[commodity]
	if l == nil {
		l = map[int64]int64{}
		k.lines[commodity] = l
	}
	for _, w := range ws {
		at := w.JoinedAt.UnixMilli()
		have, ok := l[w.UserID]
		switch {
		case what == "leave", what == "drop" && ok && have == at:
			delete(l, w.UserID)
		case what != "drop" && (!ok || have < at):
			l[w.UserID] = at
		}
	}
	if len(l) == 0 {
		delete(k.lines, commodity)
	}
	return nil
}

// audit is audit.lua.
func (k *keysOfSale) audit(commodities, closed []string) (out sale.StockAudit, ids []string) {
	out.Epoch, out.Seq = k.position()
	out.Ready = k.usable() && k.meta.state != metaDraft
	out.Stock, out.Closed = map[string]int64{}, map[string]sale.TokenState{}
	for _, c := range commodities {
		if n, ok := k.stock[c]; ok {
			out.Stock[c] = n
		}
	}
	for _, id := range closed {
		if t := k.tokens[id]; t != nil {
			out.Closed[id] = t.state
		}
	}
	return out, k.oldest(1<<62, 1<<30)
}
