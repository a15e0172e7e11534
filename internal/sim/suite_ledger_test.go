package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	product "seckill/internal/ledger"
	"seckill/internal/ledger/ledgertest"
	"seckill/internal/sale"
)

// The simulation's database passes the product's own suite, for what it models. The rest is named here, each with what
// is missing; none of it is used by the roles that the simulation runs.
func TestLedgerSuite(t *testing.T) {
	t.Parallel()
	ledgertest.RunCore(t, openSuiteLedger, map[string]string{
		"Activity/S34 states are conditional":               "rescheduling",
		"Activity/list is newest first and bounded":         "the bounds of lists",
		"Activity/bad input":                                "the validation of operators' input",
		"Commit/S9 log says when who why":                   "trace ids",
		"Status/S9 trace of a status change":                "trace ids",
		"Read/S17 orders of a user, in pages":               "pages of orders",
		"Read/FS-076 bad cursors":                           "pages of orders",
		"Misc/S1 user lists":                                "the bounds and validation of user lists",
		"Misc/FS-059 admin log":                             "the operators' log",
		"Misc/schema":                                       "tables",
		"Race/FS-057 two connections, 50 messages, failing": "a pool of connections",
		"Operate/S11 dead letters are kept, found, marked":  "dead letters: a run that parks one is a failure",
		"Operate/S39 stock is added and taken back":         "changes of the total during a sale",
	})
}

// inTurn takes calls one by one, as a server would, from whatever goroutine.
type inTurn struct{ mu sync.Mutex }

func (c *inTurn) call(ctx context.Context, to port, _, _ string, do func() error) error {
	if err := ctx.Err(); err != nil {
		return gaveUp(to, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return do()
}

// unmodelled are the calls of skipped tests: one that is made all the same ends its test.
type unmodelled struct{ ledgertest.Ledger }

// suiteLedger gives the suite the calls of the simulation's ledger, and looks at what its database holds.
type suiteLedger struct {
	*ledger
	unmodelled
}

func openSuiteLedger(t *testing.T, edit func(*product.Options)) ledgertest.Ledger {
	t.Helper()
	o := product.Options{Now: time.Now, MaxBatch: 2000}
	ledgertest.Defaults(&o)
	if edit != nil {
		edit(&o)
	}
	db := newDatabase(o.Now)
	db.maxBatch, db.newOrderNo = o.MaxBatch, o.NewOrderNo
	return &suiteLedger{ledger: newLedger(db, &inTurn{}, o.Role, o.Node)}
}

// look reads what the database holds between two calls.
func (l *suiteLedger) look(do func() error) error {
	return l.by.call(context.Background(), toDB, "look", "", do)
}

// Commit tells a message's own mistake as package ledger does.
func (l *suiteLedger) Commit(ctx context.Context, batch []sale.Pending) ([]sale.Decision, error) {
	out, err := l.ledger.Commit(ctx, batch)
	var bad *messageError
	if errors.As(err, &bad) {
		if errors.Is(err, errNumberTaken) {
			bad.err = product.ErrOrderNoTaken
		}
		err = &product.MessageError{Index: bad.index, Token: bad.token, Err: bad.err}
	}
	return out, err
}

// RecordPayment names the conflict as package ledger does.
func (l *suiteLedger) RecordPayment(ctx context.Context, p sale.Payment) (sale.PaymentOutcome, *sale.Order, bool, error) {
	outcome, o, changed, err := l.ledger.RecordPayment(ctx, p)
	if errors.Is(err, sale.ErrConflict) {
		err = product.ErrOtherPayment
	}
	return outcome, o, changed, err
}

// CloseOrder is the change that CloseUnpaid makes, for one order.
func (l *suiteLedger) CloseOrder(_ context.Context, orderNo string, user int64) (o *sale.Order, changed bool, err error) {
	err = l.look(func() (err error) {
		o, changed, err = l.db.change(orderNo, user, sale.StatusClosed, l.db.now(), string(sale.ReasonExpired), l.from)
		return err
	})
	return o, changed, err
}

// CreateActivity puts a sale into the database.
func (l *suiteLedger) CreateActivity(_ context.Context, a *sale.Activity) error {
	if err := a.Validate(); err != nil {
		return sale.Errorf(sale.CodeInvalidRequest, "%v", err)
	}
	return l.look(func() error {
		if l.db.acts[a.ID] != nil {
			return sale.ErrExists
		}
		c := *a
		c.Items, c.Epoch = slices.Clone(a.Items), 0
		c.StartsAt, c.EndsAt = a.StartsAt.UTC(), a.EndsAt.UTC()
		if c.WaitlistUntil.IsZero() {
			c.WaitlistUntil = c.EndsAt.Add(sale.DefaultWaitlistAfterEnd)
		}
		l.db.acts[a.ID] = &activityRow{Activity: c, boundary: map[int64]map[int]int64{}}
		return nil
	})
}

// Activity looks at one.
func (l *suiteLedger) Activity(_ context.Context, id string) (out *sale.Activity, err error) {
	err = l.look(func() error {
		a := l.db.acts[id]
		if a == nil {
			return sale.ErrNotFound
		}
		c := a.copy()
		out = &c
		return nil
	})
	return out, err
}

// SetUserList changes what a snapshot shows.
func (l *suiteLedger) SetUserList(_ context.Context, id, list string, user int64, _ bool) error {
	return l.look(func() error {
		if list == product.ListBlocked {
			l.db.acts[id].blocked = append(l.db.acts[id].blocked, user)
		} else {
			l.db.acts[id].eligible = append(l.db.acts[id].eligible, user)
		}
		return nil
	})
}

// Balance adds up orders.
func (l *suiteLedger) Balance(_ context.Context, id string) (list []product.ItemBalance, err error) {
	err = l.look(func() error {
		for _, it := range l.db.acts[id].Items {
			b := product.ItemBalance{CommodityID: it.CommodityID, Total: it.Total, Sold: it.Sold, Orders: l.db.live(id, it.CommodityID)}
			for _, o := range l.db.orders {
				if o.ActivityID == id && o.CommodityID == it.CommodityID && o.returned == 0 {
					b.Returning += int64(o.Quantity)
				}
			}
			list = append(list, b)
		}
		return nil
	})
	return list, err
}

// TokenStory looks at the log.
func (l *suiteLedger) TokenStory(_ context.Context, user int64, token string) (rows []product.LogRow, err error) {
	err = l.look(func() error {
		for _, g := range l.db.log[token] {
			if g.UserID != user {
				continue
			}
			rows = append(rows, product.LogRow{
				Token: token, Version: g.Version, UserID: user, ActivityID: g.activityID, CommodityID: g.commodityID, Quantity: g.quantity,
				From: g.From, To: g.To, Status: g.Status, Reason: g.Reason, FirstToken: g.firstToken, Role: g.Role, Node: g.Node, At: g.At,
			})
		}
		return nil
	})
	return rows, err
}

// OrderByNo looks at one order.
func (l *suiteLedger) OrderByNo(_ context.Context, orderNo string) (out *sale.Order, err error) {
	err = l.look(func() error {
		o := l.db.byNo[orderNo]
		if o == nil {
			return sale.ErrNotFound
		}
		c := o.Order
		out = &c
		return nil
	})
	return out, err
}

// DecisionsOfUser asks sale by sale.
func (l *suiteLedger) DecisionsOfUser(ctx context.Context, user int64, ids []string) (list []sale.Decision, err error) {
	for _, id := range ids {
		d, err := l.DecisionOfUser(ctx, id, user)
		if err == nil {
			list = append(list, *d)
		} else if !errors.Is(err, sale.ErrNotFound) {
			return nil, err
		}
	}
	return list, nil
}

// RefundsDue looks at the payments.
func (l *suiteLedger) RefundsDue(context.Context, int) (list []sale.RecordedPayment, err error) {
	err = l.look(func() error {
		for _, p := range l.db.payments {
			if p.outcome == sale.PaymentRefundDue {
				list = append(list, sale.RecordedPayment{Payment: p.Payment, Outcome: p.outcome})
			}
		}
		return nil
	})
	return list, err
}
