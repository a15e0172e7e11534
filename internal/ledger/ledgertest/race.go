package ledgertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

func raceTests(t *testing.T, s *suite) {
	s.each(t, map[string]func(*testing.T, Open){
		"FS-050 same message to two workers":           sameMessage,
		"FS-050 overlapping batches of a zombie":       zombieBatches,
		"FS-001 last unit":                             lastUnit,
		"S13 two tokens of one user":                   twoTokens,
		"S23 pay, cancel and close: exactly one":       payCancelClose,
		"R10 R13 snapshots are of one moment":          oneMoment,
		"R10 R11 a late mark meets a rebuild":          markMeetsRebuild,
		"R10 a decision meets a rebuild":               decisionMeetsRebuild,
		"R10 FS-052 batches of two sales, both lost":   twoSalesLost,
		"FS-057 two connections, 50 messages, failing": fewConnections,
	})
}

// commitRetry does what the consumer does: repeat the whole batch while the failure is transient (S20).
func (s *shop) commitRetry(batch ...sale.Pending) ([]sale.Decision, error) {
	for i := 0; ; i++ {
		out, err := s.L.Commit(s.Context(), batch)
		if !errors.Is(err, sale.ErrTransient) || i == 50 {
			return out, err
		}
	}
}

// atOnce runs the functions at the same moment and waits for all.
func atOnce(fs ...func()) {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for _, f := range fs {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-gate
			f()
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

func sameMessage(t *testing.T, open Open) {
	const rounds = 30
	s := newShop(t, open, nil, rounds)
	for range rounds {
		m := s.message(s.user())
		m2 := m
		m2.OrderNo = s.orderNo(m.UserID) // the second worker draws its own number
		var got [2]sale.Decision
		worker := func(i int, m sale.Pending) func() {
			return func() {
				out, err := s.commitRetry(m)
				if err != nil {
					t.Errorf("worker %d: %v", i, err)
					return
				}
				got[i] = out[0]
			}
		}
		atOnce(worker(0, m), worker(1, m2))
		if !got[0].Ordered || !got[1].Ordered || got[0].OrderNo != got[1].OrderNo || got[0].Repeated == got[1].Repeated {
			t.Fatalf("one order, decided once, told twice:\n%+v\n%+v", got[0], got[1])
		}
	}
	s.sold(rounds)
}

// Two consumers of one partition after a rebalance: the old one still commits what the new one reads again.
func zombieBatches(t *testing.T, open Open) {
	s := newShop(t, open, nil, 200, 200)
	for range 5 {
		batch := s.messages(40)
		for i := range batch {
			if i%2 == 1 {
				batch[i].CommodityID = "C1"
			}
		}
		other := slices.Clone(batch[10:])
		slices.Reverse(other)
		for i := range other {
			other[i].OrderNo = s.orderNo(other[i].UserID)
		}
		var a, b []sale.Decision
		var errA, errB error
		atOnce(func() { a, errA = s.commitRetry(batch...) }, func() { b, errB = s.commitRetry(other...) })
		must(t, errA)
		must(t, errB)
		number := map[string]string{}
		for _, d := range a {
			number[d.Token] = d.OrderNo
		}
		for _, d := range b {
			if !d.Ordered || number[d.Token] != d.OrderNo {
				t.Fatalf("two numbers for one token: %+v and %s", d, number[d.Token])
			}
		}
	}
	if b := s.balanced(); b[0].Sold != 100 || b[1].Sold != 100 {
		t.Fatalf("sold %+v, want 100 each", b)
	}
}

// A unit that a rebuild counts as still to come is never recorded as returned, however closely the two meet.
func markMeetsRebuild(t *testing.T, open Open) {
	const rounds = 30
	s := newShop(t, open, nil, rounds)
	for i, d := range s.commit(s.messages(rounds)...) {
		_, _, err := s.L.Cancel(ctx(t), d.OrderNo, d.UserID)
		must(t, err)
		var marked, rebuilt error
		var snap *sale.Snapshot
		atOnce(func() { marked = s.L.MarkReturned(ctx(t), d.Token, d.UserID, int64(i)) }, func() {
			if _, rebuilt = s.L.RaiseEpoch(ctx(t), s.A.ID, 1); rebuilt == nil {
				snap, rebuilt = s.L.RebuildSnapshot(ctx(t), s.A.ID)
			}
		})
		must(t, rebuilt)
		if marked != nil && !errors.Is(marked, sale.ErrConflict) {
			t.Fatalf("mark: %v", marked)
		}
		e := snap.Entries[slices.IndexFunc(snap.Entries, func(e sale.SnapshotEntry) bool { return e.Token == d.Token })]
		if counted := e.Returned == 0; counted == (marked == nil) {
			t.Fatalf("round %d: the rebuild counts the unit as to come: %t; its mark: %v", i, counted, marked)
		}
		if marked != nil {
			must(t, s.L.MarkReturned(ctx(t), d.Token, d.UserID, int64(i+1)))
		}
	}
	if b := s.balanced()[0]; b.Returning != 0 {
		t.Fatalf("returning %d units at the end", b.Returning)
	}
}

// A message of the epoch before that becomes an order is in the snapshot of the rebuild, however closely the two meet.
func decisionMeetsRebuild(t *testing.T, open Open) {
	const rounds = 60
	s := newShop(t, open, nil, rounds)
	refused := 0
	for i, m := range s.messages(rounds) {
		m.Epoch, m.Offset = int64(i), 10
		epoch, err := s.L.RaiseEpoch(ctx(t), s.A.ID, 1)
		must(t, err)
		var out []sale.Decision
		var snap *sale.Snapshot
		var errA, errB error
		atOnce(func() { out, errA = s.commitRetry(m) }, func() {
			if errB = s.L.SaveBoundary(ctx(t), s.A.ID, epoch, nil); errB == nil {
				snap, errB = s.L.RebuildSnapshot(ctx(t), s.A.ID)
			}
		})
		must(t, errA)
		must(t, errB)
		counted := slices.ContainsFunc(snap.Entries, func(e sale.SnapshotEntry) bool { return e.Token == m.Token && e.Ordered })
		if out[0].Ordered && !counted {
			t.Fatalf("round %d: an order that the rebuild did not count", i)
		}
		if !out[0].Ordered {
			refused++
		}
	}
	t.Logf("%d of %d came too late", refused, rounds)
}

func lastUnit(t *testing.T, open Open) {
	for range 3 {
		s := newShop(t, open, nil, 1)
		const buyers = 40
		var mu sync.Mutex
		orders, soldOut := 0, 0
		var fs []func()
		for _, m := range s.messages(buyers) {
			fs = append(fs, func() {
				out, err := s.commitRetry(m)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Errorf("commit: %v", err)
				case out[0].Ordered:
					orders++
				case out[0].SoldOut && out[0].Status == sale.StatusSoldOut:
					soldOut++
				default:
					t.Errorf("neither an order nor sold out: %+v", out[0])
				}
			})
		}
		atOnce(fs...)
		if orders != 1 || soldOut != buyers-1 {
			t.Fatalf("%d orders and %d sold out of %d", orders, soldOut, buyers)
		}
		s.sold(1)
	}
}

func twoTokens(t *testing.T, open Open) {
	const rounds = 20
	s := newShop(t, open, nil, rounds)
	for range rounds {
		a := s.message(s.user())
		b := s.message(a.UserID)
		var got [2]sale.Decision
		commit := func(i int, m sale.Pending) func() {
			return func() {
				out, err := s.commitRetry(m)
				if err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				got[i] = out[0]
			}
		}
		atOnce(commit(0, a), commit(1, b))
		if got[1].Ordered {
			got[0], got[1] = got[1], got[0]
		}
		if !got[0].Ordered || got[1].Ordered || got[1].Reason != sale.ReasonParticipated || got[1].FirstToken != got[0].Token {
			t.Fatalf("one order, the other pointed to it:\n%+v\n%+v", got[0], got[1])
		}
	}
	s.sold(rounds)
}

func payCancelClose(t *testing.T, open Open) {
	const rounds = 200
	s := newShop(t, open, nil, rounds)
	decisions := s.commit(s.messages(rounds)...)
	wins := map[sale.Status]int{}
	for i, d := range decisions {
		var mu sync.Mutex
		var fs []func()
		won := 0
		for to, move := range moves(s) {
			if i%3 == 0 && to == sale.StatusClosed { // two in a third of the rounds, three in the others
				continue
			}
			fs = append(fs, func() {
				o, changed, err := move(d.OrderNo, d.UserID)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && changed && o.Status == to:
					won++
					wins[to]++
				case errors.Is(err, sale.ErrWrongState) && o.Status != to && o.Version == 2:
				default:
					t.Errorf("%s: %+v %v %v", to, o, changed, err)
				}
			})
		}
		atOnce(fs...)
		if won != 1 {
			t.Fatalf("round %d: %d won", i, won)
		}
	}
	s.sold(int64(wins[sale.StatusPaid]))
	if b := s.balanced()[0]; b.Returning != int64(wins[sale.StatusCancelled]+wins[sale.StatusClosed]) {
		t.Fatalf("returning %d, wins %v", b.Returning, wins)
	}
}

// 50 messages at once on two connections: good ones, repeats, sold out, broken numbers, callers that give up.
func fewConnections(t *testing.T, open Open) {
	s := newShop(t, open, func(o *ledger.Options) { o.MaxOpenConns = 2 }, 25)
	batch := s.messages(50)
	for i := range batch {
		switch i % 5 {
		case 1:
			batch[i].OrderNo = "broken"
		case 2:
			batch[i].UserID = batch[0].UserID
			batch[i].OrderNo = s.orderNo(batch[0].UserID)
		case 3:
			batch[i].Quantity = 99
		}
	}
	var fs []func()
	for i, m := range batch {
		fs = append(fs, func() {
			if i%10 == 4 {
				c, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond/4)
				defer cancel()
				if _, err := s.L.Commit(c, []sale.Pending{m}); err != nil && !errors.Is(err, sale.ErrTransient) {
					t.Errorf("message %d, given up: %v", i, err)
				}
				return
			}
			_, err := s.commitRetry(m)
			var me *ledger.MessageError
			if broken := i%5 == 1; broken != errors.As(err, &me) || !broken && err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		})
	}
	atOnce(fs...)
	for deadline := time.Now().Add(10 * time.Second); s.L.Stats().InUse != 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections never came back", s.L.Stats().InUse)
		}
		time.Sleep(time.Millisecond) // the pool gives no signal
	}
	s.buy(s.message(s.user()))
	s.balanced()
}

// Messages of two sales that wait for their rebuilds come in either order: the batches lock both, always in one order.
func twoSalesLost(t *testing.T, open Open) {
	s, other := newShop(t, open, nil, 1000), *newShop(t, open, nil, 1).A
	other.ID, other.Items[0].Total = "B-"+randomText(12), 1000
	must(t, s.L.CreateActivity(ctx(t), &other))
	for _, id := range []string{s.A.ID, other.ID} {
		_, err := s.L.RaiseEpoch(ctx(t), id, 1)
		must(t, err)
	}
	var fs []func()
	for turn := range 6 {
		fs = append(fs, func() {
			for range 20 {
				batch := s.messages(2)
				batch[turn%2].ActivityID = other.ID
				out, err := s.L.Commit(s.Context(), batch)
				if err != nil || !out[0].Ordered || !out[1].Ordered {
					t.Errorf("commit: %+v, %v", out, err)
				}
			}
		})
	}
	atOnce(fs...)
}

// While orders come and go, every snapshot and every balance adds up: what sold_count says is what the rows say.
func oneMoment(t *testing.T, open Open) {
	s := newShop(t, open, nil, 400)
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				out, err := s.commitRetry(s.messages(8)...)
				if err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				for _, d := range out[:4] {
					if _, _, err := s.L.Cancel(t.Context(), d.OrderNo, d.UserID); d.Ordered && err != nil {
						t.Errorf("cancel: %v", err)
					}
				}
			}
		})
	}
	defer workers.Wait()
	defer close(stop)
	for range 15 {
		snap, err := s.L.RebuildSnapshot(ctx(t), s.A.ID)
		must(t, err)
		var sold, returning int64
		for _, e := range snap.Entries {
			switch {
			case e.Status == sale.StatusPendingPayment:
				sold += int64(e.Quantity)
			case e.Returned == 0:
				returning += int64(e.Quantity)
			}
		}
		if it := snap.Activity.Items[0]; it.Sold != sold || snap.Remaining("C0") != it.Total-sold-returning {
			t.Errorf("snapshot: sold_count %d, orders %d; remaining %d, total %d, returning %d", it.Sold, sold, snap.Remaining("C0"), it.Total, returning)
		}
		s.balanced()
	}
}
