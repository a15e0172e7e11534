package sim

import (
	"context"
	"slices"
	"time"

	"seckill/internal/sale"
)

// ledger is one process's client of the database, with the methods of ledger.Ledger that the roles use.
type ledger struct {
	db   *database
	by   caller
	from origin
}

// origin is who moves a reservation, as the log has it.
type origin struct{ role, node string }

func newLedger(db *database, by caller, role, node string) *ledger {
	return &ledger{db, by, origin{role, node}}
}

// ask is one transaction that returns something.
func ask[T any](ctx context.Context, l *ledger, name, detail string, do func() (T, error)) (T, error) {
	var got T
	err := l.by.call(ctx, toDB, name, detail, func() (err error) {
		got, err = do()
		return err
	})
	return got, err
}

// Activities is as of package ledger.
func (l *ledger) Activities(ctx context.Context) ([]*sale.Activity, error) {
	return ask(ctx, l, "activities", "", func() (list []*sale.Activity, err error) {
		for _, a := range l.db.acts {
			c := a.copy()
			list = append(list, &c)
		}
		return list, nil
	})
}

// RaiseEpoch is as of package ledger.
func (l *ledger) RaiseEpoch(ctx context.Context, id string, fence int64) (int64, error) {
	return ask(ctx, l, "raise epoch", "", func() (int64, error) { return l.db.raiseEpoch(id, fence) })
}

// Suspect is as of package ledger.
func (l *ledger) Suspect(ctx context.Context, id string, epoch int64) error {
	return l.by.call(ctx, toDB, "suspect", "", func() error { l.db.suspect(id, epoch); return nil })
}

// Witness is as of package ledger.
func (l *ledger) Witness(ctx context.Context, fence int64, seen map[string]sale.Sighting) ([]string, error) {
	return ask(ctx, l, "witness", "", func() ([]string, error) { return l.db.witness(fence, seen) })
}

// SaveBoundary is as of package ledger.
func (l *ledger) SaveBoundary(ctx context.Context, id string, epoch int64, offsets map[int]int64) error {
	return l.by.call(ctx, toDB, "save boundary", "", func() error { return l.db.saveBoundary(id, epoch, offsets) })
}

// RebuildSnapshot is as of package ledger.
func (l *ledger) RebuildSnapshot(ctx context.Context, id string) (*sale.Snapshot, error) {
	return ask(ctx, l, "snapshot", "", func() (*sale.Snapshot, error) { return l.db.snapshot(id) })
}

// SetActivityState is as of package ledger.
func (l *ledger) SetActivityState(ctx context.Context, id string, from []sale.State, to sale.State) error {
	return l.by.call(ctx, toDB, "set state", string(to), func() error { return l.db.setState(id, from, to) })
}

// CloseUnpaid is as of package ledger.
func (l *ledger) CloseUnpaid(ctx context.Context, now time.Time, limit int) ([]sale.Order, error) {
	return ask(ctx, l, "close unpaid", "", func() ([]sale.Order, error) { return l.db.closeUnpaid(now, limit, l.from), nil })
}

// Open is as of package ledger.
func (l *ledger) Open(ctx context.Context, id string) (unpaid, untold, returning int64, err error) {
	err = l.by.call(ctx, toDB, "open orders", "", func() error {
		for _, o := range l.db.orders {
			if o.ActivityID != id {
				continue
			}
			if o.Status == sale.StatusPendingPayment {
				unpaid++
			}
			if o.ToldVersion < o.Version {
				untold++
			}
			if o.returned == 0 {
				returning++
			}
		}
		return nil
	})
	return unpaid, untold, returning, err
}

// PendingReturns is as of package ledger.
func (l *ledger) PendingReturns(ctx context.Context, limit int) ([]sale.Return, error) {
	return ask(ctx, l, "pending returns", "", func() (list []sale.Return, err error) {
		for _, o := range l.db.todo(limit, func(o *orderRow) bool { return o.returned == 0 }) {
			list = append(list, sale.Return{
				Token: o.RequestToken, UserID: o.UserID, ActivityID: o.ActivityID, CommodityID: o.CommodityID, Quantity: o.Quantity,
				OrderNo: o.OrderNo, Status: o.Status, Version: o.Version,
			})
		}
		return list, nil
	})
}

// MarkReturned is as of package ledger.
func (l *ledger) MarkReturned(ctx context.Context, token string, user, epoch int64) error {
	return l.by.call(ctx, toDB, "mark returned", token, func() error { return l.db.markReturned(token, user, epoch) })
}

// Untold is as of package ledger.
func (l *ledger) Untold(ctx context.Context, limit int) ([]sale.Order, error) {
	return ask(ctx, l, "untold", "", func() (list []sale.Order, err error) {
		for _, o := range l.db.todo(limit, func(o *orderRow) bool { return o.ToldVersion < o.Version }) {
			list = append(list, o.Order)
		}
		return list, nil
	})
}

// MarkTold is as of package ledger.
func (l *ledger) MarkTold(ctx context.Context, token string, user, version int64) error {
	return l.by.call(ctx, toDB, "mark told", token, func() error { return l.db.markTold(token, user, version) })
}

// Waiters is as of package ledger.
func (l *ledger) Waiters(ctx context.Context, id string) ([]sale.Waiter, error) {
	return ask(ctx, l, "waiters", "", func() ([]sale.Waiter, error) { return l.db.waiters(id), nil })
}

// NotWaiting is as of package ledger.
func (l *ledger) NotWaiting(ctx context.Context, id, commodity string, ws []sale.Waiter) ([]sale.Waiter, error) {
	return ask(ctx, l, "not waiting", "", func() ([]sale.Waiter, error) {
		if rebuilds := tagOf(ctx) == tagRebuild; rebuilds && l.db.bugs.LineUnchecked || !rebuilds && l.db.bugs.OfferUnchecked {
			return nil, nil
		}
		return l.db.notWaiting(id, commodity, ws), nil
	})
}

// MarkPromoted is as of package ledger.
func (l *ledger) MarkPromoted(ctx context.Context, w sale.Waiter, token string) error {
	return l.by.call(ctx, toDB, "mark promoted", token, func() error {
		r := l.db.waits[waitKey{w.ActivityID, w.CommodityID, w.UserID}]
		if r != nil && r.state == "waiting" {
			r.state, r.token = "promoted", token
		}
		return nil
	})
}

// ExpireWaitlist is as of package ledger.
func (l *ledger) ExpireWaitlist(ctx context.Context, id string) ([]sale.Waiter, error) {
	return ask(ctx, l, "expire waitlist", "", func() ([]sale.Waiter, error) {
		l.db.expires()
		list := l.db.waiters(id)
		for _, w := range list {
			l.db.waits[waitKey{id, w.CommodityID, w.UserID}].state = "expired"
		}
		return list, nil
	})
}

// JoinWaitlist is as of package ledger.
func (l *ledger) JoinWaitlist(ctx context.Context, id, commodity string, user int64) (time.Time, error) {
	return ask(ctx, l, "join waitlist", "", func() (time.Time, error) { return l.db.joinWaitlist(id, commodity, user) })
}

// LeaveWaitlist is as of package ledger.
func (l *ledger) LeaveWaitlist(ctx context.Context, id string, user int64) ([]string, error) {
	return ask(ctx, l, "leave waitlist", "", func() (list []string, err error) {
		for k, r := range l.db.waits {
			if k.activityID == id && k.user == user && r.state == "waiting" {
				r.state = "left"
				list = append(list, k.commodityID)
			}
		}
		slices.Sort(list)
		return list, nil
	})
}

// AcquireLease is as of package ledger.
func (l *ledger) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (int64, error) {
	return ask(ctx, l, "acquire lease", holder, func() (int64, error) { return l.db.acquireLease(name, holder, ttl) })
}

// RenewLease is as of package ledger.
func (l *ledger) RenewLease(ctx context.Context, name, holder string, fence int64, ttl time.Duration) error {
	return l.by.call(ctx, toDB, "renew lease", holder, func() error { return l.db.updateLease(name, holder, fence, true, ttl) })
}

// ReleaseLease is as of package ledger.
func (l *ledger) ReleaseLease(ctx context.Context, name, holder string, fence int64) error {
	return l.by.call(ctx, toDB, "release lease", holder, func() error { return l.db.updateLease(name, holder, fence, false, 0) })
}

type changed struct {
	order   *sale.Order
	changed bool
	outcome sale.PaymentOutcome
}

// Pay is as of package ledger.
func (l *ledger) Pay(ctx context.Context, orderNo string, user int64, at time.Time, why string) (*sale.Order, bool, error) {
	c, err := ask(ctx, l, "change order", "paid "+orderNo, func() (changed, error) {
		o, yes, err := l.db.change(orderNo, user, sale.StatusPaid, at, why, l.from)
		return changed{o, yes, ""}, err
	})
	return c.order, c.changed, err
}

// Cancel is as of package ledger.
func (l *ledger) Cancel(ctx context.Context, orderNo string, user int64) (*sale.Order, bool, error) {
	c, err := ask(ctx, l, "change order", "cancel "+orderNo, func() (changed, error) {
		o, yes, err := l.db.change(orderNo, user, sale.StatusCancelled, l.db.now(), string(sale.ReasonUser), l.from)
		return changed{o, yes, ""}, err
	})
	return c.order, c.changed, err
}

// RecordPayment is as of package ledger.
func (l *ledger) RecordPayment(ctx context.Context, p sale.Payment) (sale.PaymentOutcome, *sale.Order, bool, error) {
	c, err := ask(ctx, l, "change order", "payment "+p.OrderNo, func() (changed, error) {
		outcome, o, yes, err := l.db.recordPayment(p, l.from)
		return changed{o, yes, outcome}, err
	})
	return c.outcome, c.order, c.changed, err
}

// DecisionByToken is as of package ledger.
func (l *ledger) DecisionByToken(ctx context.Context, id string, user int64, token string, _ int64) (*sale.Decision, error) {
	return ask(ctx, l, "decision by token", token, func() (*sale.Decision, error) { return l.db.decisionByToken(id, user, token) })
}

// DecisionOfUser is as of package ledger.
func (l *ledger) DecisionOfUser(ctx context.Context, id string, user int64) (*sale.Decision, error) {
	return ask(ctx, l, "decision of user", "", func() (*sale.Decision, error) {
		o := l.db.byUser[userKey{id, user}]
		if o == nil {
			return nil, sale.ErrNotFound
		}
		d := o.decision()
		return &d, nil
	})
}
