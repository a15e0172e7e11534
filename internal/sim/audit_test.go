package sim

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
	"seckill/reconciler"
)

// between is a caller that lets something happen before one call, once. It takes calls one by one, as a server would.
type between struct {
	name string
	do   func()
	mu   sync.Mutex
}

func (b *between) call(_ context.Context, _ port, name, _ string, do func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.do != nil && name == b.name {
		happens := b.do
		b.do = nil
		happens()
	}
	return do()
}

// auditWorld is a warmed-up sale of one unit, with ports for what happens meanwhile.
type auditWorld struct {
	redis *redisServer
	db    *database
	st    *store
	led   *ledger
	ctx   context.Context
}

func newAuditWorld(t *testing.T) *auditWorld {
	t.Helper()
	w := &auditWorld{redis: newRedisServer(), db: newDatabase(time.Now), ctx: t.Context()}
	w.st, w.led = newStore(w.redis, direct{}), newLedger(w.db, direct{}, "test", "")
	a := sale.Activity{
		ID: saleID, StartsAt: time.Now().Add(-time.Minute), EndsAt: time.Now().Add(time.Hour), WaitlistUntil: time.Now().Add(time.Hour),
		PayWithin: time.Minute, State: sale.StateScheduled, Epoch: 1,
		Items: []sale.Item{{CommodityID: commodity, Price: decimal.New(9900, -2), Total: 1, MaxPerUser: 1}},
	}
	w.db.acts[saleID] = &activityRow{Activity: a, boundary: map[int64]map[int]int64{}}
	w.must(t, w.st.BeginRebuild(w.ctx, a, 1))
	w.must(t, w.st.FinishRebuild(w.ctx, &sale.Snapshot{Activity: a}, 1))
	return w
}

func (w *auditWorld) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *auditWorld) reserve(t *testing.T) sale.Reservation {
	t.Helper()
	out, err := w.st.Reserve(w.ctx, saleID, time.Now(), []sale.ReserveRequest{{Token: "T1", UserID: 1, CommodityID: commodity, Quantity: 1}})
	w.must(t, err)
	return out[0].Reservation
}

func (w *auditWorld) order(t *testing.T, r sale.Reservation) {
	t.Helper()
	ds, err := w.led.Commit(w.ctx, []sale.Pending{{Reservation: r, OrderNo: sale.OrderNo(99+r.UserID, r.UserID)}})
	w.must(t, err)
	_, err = w.st.Settle(w.ctx, saleID, ds)
	w.must(t, err)
}

// audit repairs while something happens before one of its calls, and must leave the sale as it is.
func (w *auditWorld) audit(t *testing.T, before string, do func()) {
	t.Helper()
	by := &between{name: before, do: do}
	rep, err := reconciler.NewAuditor(newStore(w.redis, by), newLedger(w.db, by, "test", "")).Audit(w.ctx, saleID, true)
	w.must(t, err)
	if by.do != nil {
		t.Fatalf("the audit made no call %q", before)
	}
	if !rep.OK() {
		t.Errorf("differences: %+v", rep.Differences)
	}
}

// R13, seed 3849 of an earlier generator: the reservation comes after the look at Redis, its order after the snapshot.
func TestAuditKeepsTheMarkOfAYoungOrder(t *testing.T) {
	w := newAuditWorld(t)
	var r sale.Reservation
	w.audit(t, "marks", func() { r = w.reserve(t) })
	if w.redis.of(saleID).marks[1] != "T1" {
		t.Fatal("the mark of a reservation is gone")
	}
	w = newAuditWorld(t)
	by := &between{name: "marks", do: func() { r = w.reserve(t) }}
	st := newStore(w.redis, &between{name: "result", do: func() { w.order(t, r) }})
	_, err := reconciler.NewAuditor(twoHooks{st, newStore(w.redis, by)}, w.led).Audit(w.ctx, saleID, true)
	w.must(t, err)
	if got := w.redis.of(saleID).marks[1]; got != "T1" {
		t.Errorf("the mark of user 1, who has an order, names %q", got)
	}
}

// twoHooks takes the marks from one store and everything else from another.
type twoHooks struct {
	*store
	forMarks *store
}

// Marks is the other store's.
func (h twoHooks) Marks(ctx context.Context, id string) (map[int64]string, error) {
	return h.forMarks.Marks(ctx, id)
}

// R13, seed 19460 of an earlier generator: an order ends and its unit comes back after the returns were read and before
// the look at Redis; the mark in the database is still to come.
func TestAuditCountsAReturnOnce(t *testing.T) {
	w := newAuditWorld(t)
	w.order(t, w.reserve(t))
	w.audit(t, "audit", func() {
		_, _, err := w.led.Cancel(w.ctx, sale.OrderNo(100, 1), 1)
		w.must(t, err)
		list, err := w.led.PendingReturns(w.ctx, 10)
		w.must(t, err)
		_, _, err = w.st.Return(w.ctx, saleID, list)
		w.must(t, err)
	})
	if left := w.redis.of(saleID).stock[commodity]; left != 1 {
		t.Errorf("stock is %d after the audit, should be 1", left)
	}
}
