package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

// world is everything around a consumer, in memory. It writes down what happens, and fails as told.
type world struct {
	steps  []string
	fail   map[string][]error // by step: the errors of its next calls
	parked []string
	bad    string // token whose commit fails for good
}

func (w *world) next(step string) error {
	w.steps = append(w.steps, step)
	if errs := w.fail[step]; len(errs) > 0 {
		w.fail[step] = errs[1:]
		return errs[0]
	}
	return nil
}

func (w *world) Commit(_ context.Context, batch []sale.Pending) ([]sale.Decision, error) {
	if err := w.next(fmt.Sprintf("commit %d", len(batch))); err != nil {
		return nil, err
	}
	out := make([]sale.Decision, len(batch))
	for i, p := range batch {
		if p.Token == w.bad {
			return nil, errors.New("a bug")
		}
		out[i] = sale.Decision{Reservation: p.Reservation, Ordered: true, OrderNo: p.OrderNo, Status: sale.StatusPendingPayment, Version: 1}
	}
	return out, nil
}

func (w *world) Refuse(_ context.Context, p sale.Pending) (sale.Decision, error) {
	return sale.Decision{Reservation: p.Reservation, Status: sale.StatusFailed, Reason: sale.ReasonInvalid, Version: 1}, w.next("refuse")
}

func (w *world) Settle(_ context.Context, _ string, ds []sale.Decision) ([]sale.Settlement, error) {
	return make([]sale.Settlement, len(ds)), w.next(fmt.Sprintf("settle %d", len(ds)))
}

func (w *world) Results(_ context.Context, rs []sale.UserResult) error {
	return w.next(fmt.Sprintf("announce %d", len(rs)))
}

func (w *world) Park(_ context.Context, d sale.Delivery, _ string) error {
	if err := w.next("park"); err != nil {
		return err
	}
	w.parked = append(w.parked, d.Token)
	return nil
}

func (w *world) Next(userID int64) (string, error) { return sale.OrderNo(123456, userID), nil }

func (w *world) consumer(stop <-chan struct{}) *Consumer {
	return New(Config{}, Deps{
		Ledger: w, Stock: w, Announcer: w, DeadLetters: w, Numbers: w, Metrics: prometheus.NewRegistry(),
		Log: slog.New(slog.DiscardHandler), Stop: stop,
	})
}

func batchOf(tokens ...string) []sale.Delivery {
	var out []sale.Delivery
	for i, token := range tokens {
		d := sale.Delivery{}
		d.Token, d.UserID, d.ActivityID, d.Offset = token, int64(i+1), "A", int64(i)
		if token == "" {
			d.Malformed, d.UserID = errors.New("not json"), 0
		}
		out = append(out, d)
	}
	return out
}

// R1, R2: the database first, Redis second, the user last.
func TestOrderOfSteps(t *testing.T) {
	t.Parallel()
	w := &world{}
	if err := w.consumer(nil).Handle(t.Context(), batchOf("a", "b")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"commit 2", "settle 2", "announce 2"}; !slices.Equal(w.steps, want) {
		t.Errorf("steps %v, want %v", w.steps, want)
	}
}

// S20, FS-046: a transient failure repeats the step whole, in place, as often as it takes; nothing is parked.
func TestTransientFailuresAreRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transient := fmt.Errorf("deadlock: %w", sale.ErrTransient)
		many := slices.Repeat([]error{transient}, 50)
		w := &world{fail: map[string][]error{
			"commit 2": many, "settle 2": {errors.New("redis is away"), errors.New("still")}, "announce 2": {errors.New("away")},
		}}
		start := time.Now()
		if err := w.consumer(nil).Handle(t.Context(), batchOf("a", "b")); err != nil {
			t.Fatal(err)
		}
		if len(w.parked) != 0 || len(w.steps) != 51+3+2 {
			t.Errorf("parked %v, %d steps", w.parked, len(w.steps))
		}
		if took := time.Since(start); took < 30*time.Second {
			t.Errorf("50 failures were retried within %v: no back-off", took)
		}
	})
}

// FS-051: what is malformed is parked with the rest going on; the batch is finished only after the park succeeded.
func TestMalformedIsParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{fail: map[string][]error{"park": {errors.New("broker away")}}}
		if err := w.consumer(nil).Handle(t.Context(), batchOf("a", "", "b", "")); err != nil {
			t.Fatal(err)
		}
		if want := []string{"park", "park", "park", "commit 2", "settle 2", "announce 2"}; !slices.Equal(w.steps, want) {
			t.Errorf("steps %v, want %v", w.steps, want)
		}
	})
}

// R1, FS-020: a message under a token that was not issued to its user is parked; the owner's own is decided.
func TestForeignTokenIsParked(t *testing.T) {
	t.Parallel()
	w := &world{}
	c := New(Config{}, Deps{
		Ledger: w, Stock: w, Announcer: w, DeadLetters: w, Numbers: w, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Genuine: func(token string, userID int64) bool { return token == fmt.Sprintf("of%d", userID) },
	})
	if err := c.Handle(t.Context(), batchOf("of1", "of1", "of3")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"park", "commit 2", "settle 2", "announce 2"}; !slices.Equal(w.steps, want) || !slices.Equal(w.parked, []string{"of1"}) {
		t.Errorf("steps %v, parked %v", w.steps, w.parked)
	}
}

// S11: a message that fails for no known reason costs only itself: the batch is split, the others are decided and told.
func TestBadMessageCostsOnlyItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{bad: "b"}
		if err := w.consumer(nil).Handle(t.Context(), batchOf("a", "b", "c")); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.parked, []string{"b"}) {
			t.Errorf("parked %v", w.parked)
		}
		if last := w.steps[len(w.steps)-2:]; !slices.Equal(last, []string{"settle 2", "announce 2"}) {
			t.Errorf("last steps %v", last)
		}
	})
}

// S11, R18: one that still fails after its last relay is refused, settled and told; it does not stay undecided for ever.
func TestHopelessMessageIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{bad: "b"}
		batch := batchOf("b")
		batch[0].Relays = 8
		if err := w.consumer(nil).Handle(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if last := w.steps[len(w.steps)-3:]; len(w.parked) != 0 || !slices.Equal(last, []string{"refuse", "settle 1", "announce 1"}) {
			t.Errorf("parked %v, last steps %v", w.parked, last)
		}
	})
}

// FS-045: when the consumer stops in the middle of retries the batch is not finished, so its offset is not committed.
func TestStopLeavesTheBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		w := &world{fail: map[string][]error{"settle 1": slices.Repeat([]error{errors.New("away")}, 1000)}}
		done := make(chan error, 1)
		go func() { done <- w.consumer(stop).Handle(t.Context(), batchOf("a")) }()
		time.Sleep(5 * time.Second)
		close(stop)
		if err := <-done; err == nil {
			t.Error("an unfinished batch was called finished")
		}
	})
}

// leases hands out node numbers in memory.
type leases struct {
	mu     sync.Mutex
	holder map[string]string
	err    error
}

// with changes the fake under its lock.
func (l *leases) with(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *leases) AcquireLease(_ context.Context, name, holder string, _ time.Duration) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.holder[name]; ok && h != holder {
		return 0, sale.ErrConflict
	}
	l.holder[name] = holder
	return 1, nil
}

func (l *leases) RenewLease(_ context.Context, name, holder string, _ int64, _ time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if l.holder[name] != holder {
		return sale.ErrConflict
	}
	return nil
}

func (l *leases) ReleaseLease(_ context.Context, name, _ string, _ int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holder, name)
	return nil
}

// S15, FS-096: two processes never share a node number, not even those of one name; one whose lease cannot be renewed stops making numbers before
// the lease runs out; one whose lease was taken gets another.
func TestNodeNumbersAreLeased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{holder: map[string]string{}}
		ctx, cancel := context.WithCancel(t.Context())
		var all []*Numbers
		seen := map[string]bool{}
		for i := range 20 {
			n := NewNumbers(l, fmt.Sprintf("host-%d", i/2), 15*time.Second, time.Now, slog.New(slog.DiscardHandler))
			if err := n.Acquire(ctx); err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
			go n.Keep(ctx)
		}
		if len(l.holder) != 20 {
			t.Fatalf("%d numbers for 20 processes", len(l.holder))
		}
		for range 100 {
			for _, n := range all {
				no, err := n.Next(42)
				if err != nil || seen[no] {
					t.Fatalf("number %s seen %v, %v", no, seen[no], err)
				}
				seen[no] = true
			}
		}
		time.Sleep(time.Minute) // renewed all the while
		if _, err := all[0].Next(42); err != nil {
			t.Errorf("after a minute: %v", err)
		}
		l.with(func() { l.err = errors.New("the database is away") })
		time.Sleep(16 * time.Second)
		if _, err := all[0].Next(42); !errors.Is(err, ErrNoNode) {
			t.Errorf("without renewals: %v, want ErrNoNode", err)
		}
		name := all[0].held.Load().name
		l.with(func() { l.err, l.holder[name] = nil, "somebody else" })
		time.Sleep(6 * time.Second)
		if _, err := all[0].Next(42); err != nil || all[0].held.Load().name == name {
			t.Errorf("after the loss: %v, lease %s", err, all[0].held.Load().name)
		}
		cancel()
		synctest.Wait()
		if len(l.holder) != 1 {
			t.Errorf("%d leases left after the stop, want the stranger's", len(l.holder))
		}
	})
}
