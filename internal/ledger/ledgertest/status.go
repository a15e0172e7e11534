package ledgertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

func statusTests(t *testing.T, s *suite) {
	s.each(t, map[string]func(*testing.T, Open){
		"S16 S23 every edge of the state machine": edges,
		"FS-007 returns once":                     returnsOnce,
		"R8 told":                                 told,
		"S23 close unpaid":                        closeUnpaid,
		"S9 trace of a status change":             traceOfMove,
	})
}

// moves are the calls that change an order.
func moves(s *shop) map[sale.Status]func(orderNo string, user int64) (*sale.Order, bool, error) {
	return map[sale.Status]func(string, int64) (*sale.Order, bool, error){
		sale.StatusPaid: func(no string, u int64) (*sale.Order, bool, error) {
			return s.L.Pay(s.Context(), no, u, start(), "demo")
		},
		sale.StatusCancelled: func(no string, u int64) (*sale.Order, bool, error) { return s.L.Cancel(s.Context(), no, u) },
		sale.StatusClosed:    func(no string, u int64) (*sale.Order, bool, error) { return s.L.CloseOrder(s.Context(), no, u) },
	}
}

func edges(t *testing.T, open Open) {
	s := newShop(t, open, nil, 100)
	reasons := map[sale.Status]string{sale.StatusPaid: "demo", sale.StatusCancelled: "user", sale.StatusClosed: "expired"}
	for first, move := range moves(s) {
		m := s.message(s.user())
		m.Quantity = 2
		d := s.buy(m)
		before := s.balanced()[0].Sold
		o, changed, err := move(d.OrderNo, m.UserID)
		if err != nil || !changed || o.Status != first || o.Version != 2 || o.OrderNo != d.OrderNo {
			t.Fatalf("pending_payment -> %s: %+v %v %v", first, o, changed, err)
		}
		sold, to := before, sale.TokenCommitted
		if first != sale.StatusPaid {
			sold, to = before-2, sale.TokenReleased
		}
		s.sold(sold)
		for second, again := range moves(s) {
			o2, changed, err := again(d.OrderNo, m.UserID)
			if changed || o2 == nil || o2.Status != first || o2.Version != 2 {
				t.Fatalf("%s -> %s: %+v %v %v", first, second, o2, changed, err)
			}
			if second == first && err != nil || second != first && !errors.Is(err, sale.ErrWrongState) {
				t.Fatalf("%s -> %s: %v", first, second, err)
			}
		}
		s.sold(sold)
		row, err := s.L.OrderByNo(ctx(t), d.OrderNo)
		must(t, err)
		if *row != *o {
			t.Fatalf("told\n%+v, stored\n%+v", o, row)
		}
		if paid := first == sale.StatusPaid; row.PaidAt.IsZero() == paid || row.ClosedAt.IsZero() != paid {
			t.Fatalf("%s: paid at %v, closed at %v", first, row.PaidAt, row.ClosedAt)
		}
		s.story(m.UserID, m.Token, "0:>occupied:processing: 1:occupied>committed:pending_payment: 2:committed>"+string(to)+":"+string(first)+":"+reasons[first])
		for _, c := range []struct {
			no   string
			user int64
		}{{d.OrderNo, neighbour(m.UserID, 1)}, {d.OrderNo, m.UserID + 1}, {s.orderNo(m.UserID), m.UserID}, {"", m.UserID}, {"1' OR '1", m.UserID}} {
			if o, changed, err := move(c.no, c.user); o != nil || changed || !errors.Is(err, sale.ErrNotFound) {
				t.Fatalf("order %q of user %d: %+v %v %v, want ErrNotFound", c.no, c.user, o, changed, err)
			}
		}
	}
}

func returnsOnce(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	m := s.message(s.user())
	m.Quantity = 3
	d := s.buy(m)
	if err := s.L.MarkReturned(ctx(t), m.Token, m.UserID, 0); !errors.Is(err, sale.ErrWrongState) {
		t.Fatalf("return of an open order: %v, want ErrWrongState", err)
	}
	_, _, err := s.L.Cancel(ctx(t), d.OrderNo, m.UserID)
	must(t, err)
	find := func() *sale.Return {
		list, err := s.L.PendingReturns(ctx(t), 1000)
		must(t, err)
		i := slices.IndexFunc(list, func(r sale.Return) bool { return r.Token == m.Token })
		if i < 0 {
			return nil
		}
		return &list[i]
	}
	want := sale.Return{Token: m.Token, UserID: m.UserID, ActivityID: s.A.ID, CommodityID: "C0", Quantity: 3, OrderNo: d.OrderNo, Status: sale.StatusCancelled, Version: 2}
	if r := find(); r == nil || *r != want {
		t.Fatalf("due: %+v, want %+v", r, want)
	}
	if s.balanced()[0].Returning != 3 {
		t.Fatal("not counted as returning")
	}
	errs := make(chan error, 4)
	for range cap(errs) { // the same compensation from several places at once
		go func() { errs <- s.L.MarkReturned(ctx(t), m.Token, m.UserID, 0) }()
	}
	done := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			done++
		} else if !errors.Is(err, sale.ErrConflict) {
			t.Errorf("repeat: %v, want ErrConflict", err)
		}
	}
	if done != 1 || find() != nil || s.balanced()[0].Returning != 0 {
		t.Fatalf("returned %d times, still due: %v", done, find())
	}
	if err := s.L.MarkReturned(ctx(t), m.Token, neighbour(m.UserID, 1), 0); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("another user's token: %v", err)
	}
	s.sold(0)
}

func told(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	m := s.message(s.user())
	d := s.buy(m)
	untold := func() bool {
		list, err := s.L.Untold(ctx(t), 1000)
		must(t, err)
		return slices.ContainsFunc(list, func(o sale.Order) bool { return o.OrderNo == d.OrderNo })
	}
	version := func() int64 {
		o, err := s.L.OrderByNo(ctx(t), d.OrderNo)
		must(t, err)
		return o.ToldVersion
	}
	if untold() {
		t.Fatal("version 1 is told by whoever commits the offset")
	}
	_, _, err := s.L.Pay(ctx(t), d.OrderNo, m.UserID, start(), "demo")
	must(t, err)
	if !untold() {
		t.Fatal("a payment committed by a process that died is not found")
	}
	must(t, s.L.MarkTold(ctx(t), m.Token, m.UserID, 3)) // beyond the row: nothing to raise
	must(t, s.L.MarkTold(ctx(t), m.Token, m.UserID, 1))
	if !untold() || version() != 1 {
		t.Fatalf("told version %d", version())
	}
	must(t, s.L.MarkTold(ctx(t), m.Token, m.UserID, 2))
	must(t, s.L.MarkTold(ctx(t), m.Token, m.UserID, 2)) // no change is no failure (FS-056)
	must(t, s.L.MarkTold(ctx(t), m.Token, m.UserID, 1)) // never downwards
	if untold() || version() != 2 {
		t.Fatalf("told version %d, want 2", version())
	}
	if err := s.L.MarkTold(ctx(t), "unknown", m.UserID, 2); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("unknown token: %v", err)
	}
}

func closeUnpaid(t *testing.T, open Open) {
	// Long ago, so that on a shared database no other test's order is overdue then.
	now := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newShop(t, open, func(o *ledger.Options) { o.Now = func() time.Time { return now } }, 100)
	mine := map[string]bool{}
	var last sale.Decision
	for i, m := range s.messages(20) {
		m.At = now.Add(-24 * time.Hour) // decided late: due at now + PayWithin
		m.Quantity = 1 + i%2
		last = s.buy(m)
		mine[last.OrderNo] = true
	}
	_, _, err := s.L.Pay(ctx(t), last.OrderNo, last.UserID, now, "demo")
	must(t, err)
	delete(mine, last.OrderNo)
	due := now.Add(s.A.PayWithin)
	closed := 0
	for {
		list, err := s.L.CloseUnpaid(ctx(t), due, 6)
		must(t, err)
		if len(list) == 0 {
			break
		}
		if len(list) > 6 {
			t.Fatalf("closed %d, limit 6", len(list))
		}
		for _, o := range list {
			if o.Status != sale.StatusClosed || o.PayBefore.After(due) {
				t.Fatalf("closed %+v", o)
			}
			if mine[o.OrderNo] {
				closed++
			}
		}
	}
	if closed != 19 {
		t.Fatalf("closed %d of 19", closed)
	}
	s.sold(2) // the paid one
	if b := s.balanced()[0]; b.Returning != 28 {
		t.Fatalf("returning %d units, want 28", b.Returning)
	}
}

func traceOfMove(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	m := s.message(s.user())
	d := s.buy(m)
	_, _, err := s.L.Pay(ctx(t), d.OrderNo, m.UserID, start(), "paid by \u00e9mail, a reason that is rather long")
	must(t, err)
	rows, err := s.L.TokenStory(ctx(t), m.UserID, m.Token)
	must(t, err)
	if len(rows) != 3 || rows[1].TraceID != "trace-1" || rows[2].Reason != "paid by ??mail, a reason that is" {
		t.Fatalf("log: %+v", rows)
	}
}
