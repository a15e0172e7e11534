package sim

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/sale"
	"seckill/reconciler"
)

// office is a sale of one unit in a bubble, for a leading reconciler that a test watches.
type office struct {
	*auditWorld
	audited int
	told    []sale.Place
}

// Results is as of package push.
func (o *office) Results(context.Context, []sale.UserResult) error { return nil }

// Places notes who is told a place.
func (o *office) Places(_ context.Context, ps []sale.Place) error {
	o.told = append(o.told, ps...)
	return nil
}

// Live is as of package push.
func (o *office) Live(context.Context, sale.Live) error { return nil }

func newOffice(t *testing.T) *office {
	t.Helper()
	return &office{auditWorld: newAuditWorld(t)}
}

// emptyQueue has no messages, and takes all.
type emptyQueue struct{}

// Publish is as of package queue.
func (emptyQueue) Publish(context.Context, []sale.Reservation) []error { return nil }

// EndOffsets is as of package queue.
func (emptyQueue) EndOffsets(context.Context) (map[int]int64, error) { return map[int]int64{0: 0}, nil }

// Committed is as of package queue.
func (emptyQueue) Committed(context.Context) (map[int]int64, error) { return map[int]int64{0: 0}, nil }

// lead runs a new process that leads for a while, with ports that go through by, and then dies.
func (o *office) lead(t *testing.T, by caller, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context()) // without a deadline, by which a rebuild is known
	defer time.AfterFunc(d, cancel).Stop()
	r := reconciler.New(reconciler.Config{Interval: time.Second, AuditInterval: time.Hour}, reconciler.Deps{
		Stock: newStore(o.redis, by), Ledger: newLedger(o.db, by, "reconciler", ""), Queue: emptyQueue{}, Offsets: emptyQueue{}, Announcer: o,
		PromotedToken: promotedToken, Holder: "leader", Metrics: noMetrics{}, Log: quietLog(),
		Audit: func(context.Context, string, bool) (*sale.AuditReport, error) {
			o.audited++
			return &sale.AuditReport{}, nil
		},
	})
	_ = r.Run(ctx)
}

// failing makes calls of one name fail while a function says so. It takes calls one by one, as a server would.
type failing struct {
	mu   sync.Mutex
	name string
	when func(ctx context.Context) bool
}

func (f *failing) call(ctx context.Context, _ port, name, _ string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.when != nil && name == f.name && f.when(ctx) {
		return errors.New("no answer")
	}
	return do()
}

// R15: Redis goes back, and nobody who has seen what is lost is alive. The next leader knows from the database.
func TestUnwitnessedRewindIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.lead(t, &failing{}, 3*time.Second)
		saved := o.redis.copy()
		o.reserve(t)
		o.lead(t, &failing{}, 5*time.Second)
		if e := o.db.acts[saleID].Epoch; e != 1 {
			t.Fatalf("rebuilt without a loss: epoch %d", e)
		}
		o.redis.restart(saved)
		looks := 0 // the first finds the loss; then only the rebuild itself records something
		o.lead(t, &failing{name: "witness", when: func(ctx context.Context) bool { looks++; return looks > 1 && tagOf(ctx) != tagRebuild }}, 3*time.Second)
		if e, _ := o.redis.of(saleID).position(); e != 2 || o.db.acts[saleID].Epoch != 2 {
			t.Errorf("redis has epoch %d, the database %d: the loss went unnoticed", e, o.db.acts[saleID].Epoch)
		}
		// A rebuilt sale is on record before it is open: a server that restarts before the next round is noticed too.
		o.redis.restart(o.redis.copy())
		o.lead(t, &failing{}, 3*time.Second)
		if e := o.db.acts[saleID].Epoch; e != 3 {
			t.Errorf("epoch %d: a restart right after a rebuild went unnoticed", e)
		}
		// The same server with a lower number, as one that tells no run id shows it.
		saved = o.redis.copy()
		o.lead(t, &failing{}, 5*time.Second)
		o.redis.sales = saved
		o.lead(t, &failing{}, 3*time.Second)
		if e := o.db.acts[saleID].Epoch; e != 4 {
			t.Errorf("epoch %d: a lower number went unnoticed", e)
		}
	})
}

// S25: the audit at the start of a term waits for the activities to be read, and is not put off by an interval.
func TestStartOfTermAuditComesWithTheFirstRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		reads := 0
		o.lead(t, &failing{name: "activities", when: func(context.Context) bool { reads++; return reads <= 2 }}, 6*time.Second)
		if reads < 4 || o.audited != 1 {
			t.Errorf("%d audits after %d reads of which the first two failed, want 1", o.audited, reads)
		}
	})
}

// S22, R15: a sale is settled only when its data in Redis is known to be sound: nobody would look at it any more.
func TestNoSettlingUnseen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		a := o.db.acts[saleID]
		a.State, a.EndsAt, a.WaitlistUntil = sale.StateEnded, time.Now().Add(-time.Second), time.Now().Add(-time.Second)
		o.must(t, o.st.SetMeta(t.Context(), &a.Activity))
		away := true
		by := &failing{name: "witness", when: func(context.Context) bool { return away }}
		o.lead(t, by, 5*time.Second)
		if a.State != sale.StateEnded {
			t.Errorf("the sale is %s although nobody could tell whether redis has lost something", a.State)
		}
		away = false
		o.lead(t, by, 5*time.Second)
		if a.State != sale.StateSettled {
			t.Errorf("the sale is %s, should be settled", a.State)
		}
	})
}

// S22, R12: a sale is settled when its lines have ended and those who waited are told, not before.
func TestLinesEndBeforeTheSaleSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.joins(t, 2)
		a := o.db.acts[saleID]
		a.State, a.EndsAt, a.WaitlistUntil = sale.StateEnded, time.Now().Add(-time.Second), time.Now().Add(2500*time.Millisecond)
		o.must(t, o.st.SetMeta(t.Context(), &a.Activity))
		o.lead(t, &failing{}, 5*time.Second)
		if row := o.db.waits[waitKey{saleID, commodity, 2}]; a.State != sale.StateSettled || row.state != "expired" {
			t.Errorf("the sale is %s, and who waited is %s", a.State, row.state)
		}
		o.wantLine(t)
	})
}

// R10, R11: a return is answered, a rebuild begins and counts the unit as still to come, and only then is it recorded.
func TestLateMarkStrandsNoUnit(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	w.order(t, w.reserve(t))
	_, _, err := w.led.Cancel(w.ctx, sale.OrderNo(100, 1), 1)
	w.must(t, err)
	list, err := w.led.PendingReturns(w.ctx, 10)
	w.must(t, err)
	_, before, err := w.st.Return(w.ctx, saleID, list)
	w.must(t, err)
	epoch, err := w.led.RaiseEpoch(w.ctx, saleID, 1)
	w.must(t, err)
	snap, err := w.led.RebuildSnapshot(w.ctx, saleID)
	w.must(t, err)
	w.must(t, w.st.BeginRebuild(w.ctx, snap.Activity, epoch))
	w.must(t, w.st.FinishRebuild(w.ctx, snap, epoch))
	if err := w.led.MarkReturned(w.ctx, list[0].Token, list[0].UserID, before); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("a mark of the epoch before: %v, want a conflict", err)
	}
	if list, err = w.led.PendingReturns(w.ctx, 10); err != nil || len(list) != 1 {
		t.Fatalf("%d returns to come, %v; the unit is stranded", len(list), err)
	}
	found, after, err := w.st.Return(w.ctx, saleID, list)
	w.must(t, err)
	w.must(t, w.led.MarkReturned(w.ctx, list[0].Token, list[0].UserID, after))
	if left := w.redis.of(saleID).stock[commodity]; found[0] != sale.SettleDone || left != 1 {
		t.Errorf("answered %s, %d units on sale, want 1", found[0], left)
	}
}

// overtaken raises the epoch as a rebuild takes its snapshot, once, and notes the epochs at each opening.
type overtaken struct {
	mu     sync.Mutex
	o      *office
	done   bool
	opened [][2]int64 // in Redis, in the database
}

func (c *overtaken) call(ctx context.Context, _ port, name, _ string, do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.o.db.acts[saleID]
	if name == "snapshot" && tagOf(ctx) == tagRebuild && !c.done {
		c.done = true
		c.o.db.suspect(saleID, a.Epoch)
	}
	if name == "open" {
		epoch, _ := c.o.redis.of(saleID).position()
		c.opened = append(c.opened, [2]int64{epoch, a.Epoch})
	}
	return do()
}

// R10: a rebuild during which another loss is noticed opens nothing; the next one does.
func TestOvertakenRebuildOpensNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		c := &overtaken{o: o}
		o.db.suspect(saleID, o.db.acts[saleID].Epoch)
		o.lead(t, c, 5*time.Second)
		if !c.done || len(c.opened) != 1 || c.opened[0][0] != c.opened[0][1] {
			t.Errorf("opened at the epochs {redis, database} %v, want once, and both the same", c.opened)
		}
	})
}
