package sim

import (
	"time"

	"seckill/internal/sale"
)

// reserve is reserve.lua for one request of a batch, without its windows: the simulation has no crowd.
func (k *keysOfSale) reserve(activityID string, now time.Time, q sale.ReserveRequest) (out sale.ReserveReply) {
	switch {
	case q.UserID <= 0 || !sale.ValidToken(q.Token):
		out.Outcome = sale.ReserveForeignHolder
	case q.Quantity < 1 || q.Quantity > sale.MaxQuantity:
		out.Outcome = sale.ReserveBadQuantity
	case !sale.ValidID(q.CommodityID):
		out.Outcome = sale.ReserveUnknownItem
	}
	if out.Outcome != "" {
		return out
	}
	if t := k.tokens[q.Token]; t != nil {
		switch {
		case t.user != q.UserID:
			out.Outcome = sale.ReserveForeignHolder
		case t.commodity != q.CommodityID || t.quantity != q.Quantity:
			out.Outcome = sale.ReserveMismatch
		default:
			out.Outcome, out.Result = sale.ReserveRepeat, t.result(activityID, q.Token)
			if t.state == sale.TokenOccupied {
				out.Reservation = t.reservation(activityID, q.Token)
			}
		}
		return out
	}
	out.Outcome = k.mayReserve(now, &q, &out)
	if out.Outcome != sale.ReserveAccepted {
		return out
	}
	k.stock[q.CommodityID] -= int64(q.Quantity)
	t := k.occupy(q.Token, q.UserID, q.CommodityID, q.Quantity, now)
	out.Reservation, out.Result = t.reservation(activityID, q.Token), t.result(activityID, q.Token)
	return out
}

func (k *keysOfSale) mayReserve(now time.Time, q *sale.ReserveRequest, out *sale.ReserveReply) sale.ReserveOutcome {
	m := k.meta
	if k.blocked[q.UserID] {
		return sale.ReserveBlocked
	}
	if m != nil && m.items && m.from.AllowList && !k.eligible[q.UserID] {
		return sale.ReserveNotEligible
	}
	switch {
	case m == nil || m.epoch == 0:
		return sale.ReserveNotReady
	case m.state != metaLive && m.state != metaPaused && m.state != metaEnded:
		return sale.ReserveNotReady
	case !now.Before(m.from.EndsAt) || m.state == metaEnded:
		return sale.ReserveEnded
	case m.state == metaPaused:
		return sale.ReservePaused
	case now.Before(m.from.StartsAt):
		return sale.ReserveNotStarted
	}
	it := m.from.Item(q.CommodityID)
	if it == nil || !m.items {
		return sale.ReserveUnknownItem
	}
	if q.Quantity < 1 || q.Quantity > it.MaxPerUser {
		return sale.ReserveBadQuantity
	}
	if first, ok := k.marks[q.UserID]; ok {
		out.FirstToken = first
		return sale.ReserveParticipated
	}
	left, ok := k.stock[q.CommodityID]
	if !ok {
		return sale.ReserveNotReady
	}
	if left < int64(q.Quantity) {
		return sale.ReserveSoldOut
	}
	return sale.ReserveAccepted
}

// occupy makes a token, its mark and its place in the outbox.
func (k *keysOfSale) occupy(id string, user int64, commodity string, quantity int, now time.Time) *token {
	now = now.UTC().Truncate(time.Millisecond)
	t := &token{
		state: sale.TokenOccupied, user: user, commodity: commodity, quantity: quantity, price: k.meta.from.Item(commodity).Price,
		at: now, epoch: k.meta.epoch, status: sale.StatusProcessing,
	}
	k.tokens[id] = t
	k.mark(user, id)
	k.occupied[id] = now.UnixMilli()
	return t
}

// settle is settle.lua.
func (k *keysOfSale) settle(bugs *Bugs, ds []sale.Decision, out []sale.Settlement) {
	usable, changed := k.usable(), false
	for i := range ds {
		d := &ds[i]
		var moved bool
		out[i], moved = k.settleOne(bugs, usable, d)
		changed = changed || moved
	}
	if changed {
		k.touch()
	}
}

func (k *keysOfSale) settleOne(bugs *Bugs, usable bool, d *sale.Decision) (code sale.Settlement, changed bool) {
	if malformed(d) {
		return sale.SettleUnknown, false
	}
	to := sale.TokenReleased
	if d.Ordered {
		to = sale.TokenCommitted
	}
	res := d.Result()
	code = sale.SettleAlready
	t := k.tokens[d.Token]
	switch {
	case t != nil && t.user != d.UserID:
		return code, false
	case t == nil:
		t = &token{
			state: to, user: d.UserID, commodity: d.CommodityID, quantity: d.Quantity, price: d.Price, at: d.At, epoch: d.Epoch,
		}
		t.write(&res)
		k.tokens[d.Token] = t
		code, changed = sale.SettleUnknown, true
		if d.Ordered {
			k.mark(d.UserID, d.Token)
		}
	default:
		if d.Version > t.version || bugs.StatusUnchecked {
			t.write(&res)
			changed = true
		}
		if t.state == sale.TokenOccupied {
			t.state = to
			code, changed = sale.SettleDone, true
			if _, ok := k.stock[d.CommodityID]; ok && usable && !d.Ordered && !d.SoldOut && t.commodity == d.CommodityID {
				k.stock[d.CommodityID] += int64(t.quantity)
			}
		}
	}
	delete(k.occupied, d.Token)
	return code, k.remark(d) || changed
}

// remark mends the participation mark of a refusal.
func (k *keysOfSale) remark(d *sale.Decision) bool {
	if d.Ordered {
		return false
	}
	first := ""
	if d.Reason == sale.ReasonParticipated && sale.ValidToken(d.FirstToken) {
		first = d.FirstToken
	}
	named, ok := k.marks[d.UserID]
	switch {
	case first != "" && named != first:
		k.mark(d.UserID, first)
		return true
	case first == "" && ok && named == d.Token:
		delete(k.marks, d.UserID)
		delete(k.participants, d.UserID)
		return true
	}
	return false
}

// giveBack is return.lua.
func (k *keysOfSale) giveBack(bugs *Bugs, rs []sale.Return, out []sale.Settlement) {
	usable, changed := k.usable(), false
	for i := range rs {
		r := &rs[i]
		out[i] = sale.SettleNotYet
		if bugs.NotYetIsDone {
			out[i] = sale.SettleDone
		}
		t := k.tokens[r.Token]
		if t == nil {
			continue
		}
		if r.Version > t.version || bugs.StatusUnchecked {
			t.status, t.reason, t.orderNo, t.version = r.Status, endReason(r.Status), r.OrderNo, r.Version
			changed = true
		}
		_, stocked := k.stock[r.CommodityID]
		switch {
		case t.state == sale.TokenReleased:
			out[i] = sale.SettleAlready
		case t.state == sale.TokenCommitted && usable && stocked && t.commodity == r.CommodityID:
			t.state = sale.TokenReleased
			k.stock[r.CommodityID] += int64(t.quantity)
			out[i], changed = sale.SettleDone, true
		}
	}
	if changed {
		k.touch()
	}
}

func endReason(st sale.Status) sale.Reason {
	o := sale.Order{Status: st}
	r := o.Result()
	return r.Reason
}

// setStatus is status.lua.
func (k *keysOfSale) setStatus(bugs *Bugs, rs []sale.UserResult, sent []int, out []sale.Settlement) {
	changed := false
	for _, i := range sent {
		r := &rs[i]
		t := k.tokens[r.RequestToken]
		switch {
		case t == nil:
			t = &token{state: sale.TokenReleased, user: r.UserID, commodity: r.CommodityID, quantity: r.Quantity}
			if r.Status.Number() >= 0 {
				t.state = sale.TokenCommitted
			}
			t.write(&r.Result)
			k.tokens[r.RequestToken] = t
			out[i], changed = sale.SettleUnknown, true
		case t.version > r.Version && !bugs.StatusUnchecked:
			out[i] = sale.SettleStale
		default:
			if t.version != r.Version {
				t.write(&r.Result)
				changed = true
			}
			out[i] = sale.SettleDone
		}
	}
	if changed {
		k.touch()
	}
}

// promote is promote.lua. line are the first waiters and ids their tokens; it returns the places of those who got a unit.
func (k *keysOfSale) promote(bugs *Bugs, r *sale.Return, now time.Time, line []int64, ids []string) (sale.Settlement, []int, error) {
	_, stocked := k.stock[r.CommodityID]
	t := k.tokens[r.Token]
	notYet := sale.SettleNotYet
	if bugs.NotYetIsDone {
		notYet = sale.SettleDone
	}
	if !k.usable() || !k.meta.items || k.meta.from.Item(r.CommodityID) == nil || !stocked || t == nil {
		return notYet, nil, nil
	}
	if t.state == sale.TokenReleased {
		return sale.SettleAlready, nil, nil
	}
	if t.state != sale.TokenCommitted || t.commodity != r.CommodityID {
		return notYet, nil, nil
	}
	head := k.line(r.CommodityID, len(line))
	for i := range line {
		if i >= len(head) || head[i] != line[i] {
			return "", nil, sale.ErrConflict
		}
	}
	t.state = sale.TokenReleased
	if r.Version > t.version || bugs.StatusUnchecked {
		t.status, t.reason, t.orderNo, t.version = r.Status, endReason(r.Status), r.OrderNo, r.Version
	}
	left := t.quantity
	var got []int
	for i, user := range line {
		_, marked := k.marks[user]
		if left > 0 && !marked && k.tokens[ids[i]] == nil {
			k.occupy(ids[i], user, r.CommodityID, 1, now)
			delete(k.lines[r.CommodityID], user)
			left--
			got = append(got, i)
		}
	}
	k.stock[r.CommodityID] += int64(left)
	k.touch()
	return sale.SettleDone, got, nil
}
