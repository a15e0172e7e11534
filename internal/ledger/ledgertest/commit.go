package ledgertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

func commitTests(t *testing.T, s *suite) {
	s.each(t, map[string]func(*testing.T, Open){
		"S12 S15 S17 batch over all tables":        batchAllTables,
		"R2 FS-056 repeated message":               repeatedMessage,
		"R7 duplicates inside a batch":             duplicatesInBatch,
		"FS-016 S12 sold out at the database":      soldOut,
		"FS-096 taken order number":                takenOrderNo,
		"R16 pay deadline":                         payDeadline,
		"S9 log says when who why":                 logRows,
		"one bad message costs only itself":        oneBadMessage,
		"bounds":                                   commitBounds,
		"repeat after the order has moved on (R4)": repeatAfterMove,
	})
}

func batchAllTables(t *testing.T, open Open) {
	s := newShop(t, open, nil, 100, 100)
	batch := s.messages(48)
	for i := range batch {
		if i%3 == 0 {
			batch[i].CommodityID, batch[i].Quantity = "C1", 2
		}
	}
	out := s.commit(batch...)
	for i, d := range out {
		if !d.Ordered || d.Repeated || d.OrderNo != batch[i].OrderNo || d.Status != sale.StatusPendingPayment || d.Version != 1 {
			t.Fatalf("decision %d: %+v", i, d)
		}
		o, err := s.L.OrderByNo(ctx(t), d.OrderNo) // by number alone
		must(t, err)
		if o.RequestToken != batch[i].Token || o.UserID != batch[i].UserID || o.Quantity != batch[i].Quantity ||
			o.CommodityID != batch[i].CommodityID || o.ToldVersion != 1 || !o.PayBefore.Equal(d.PayBefore) {
			t.Fatalf("row %d: %+v", i, o)
		}
	}
	b := s.balanced()
	if b[0].Sold != 32 || b[1].Sold != 32 {
		t.Fatalf("sold %d and %d units, want 32 each", b[0].Sold, b[1].Sold)
	}
}

func repeatedMessage(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	m := s.message(s.user())
	first := s.buy(m)
	again := m
	again.OrderNo = s.orderNo(m.UserID) // a redelivery draws a new number, which must not be used
	again.Partition, again.Offset = 2, 99
	for range 3 {
		d := s.commit(again)[0]
		if !d.Repeated || !d.Ordered || d.SoldOut || d.Reason != "" || d.OrderNo != first.OrderNo || !d.PayBefore.Equal(first.PayBefore) {
			t.Fatalf("repeat: %+v", d)
		}
	}
	mixed := s.commit(append(s.messages(3), again)...)
	if !mixed[3].Repeated || mixed[0].Repeated {
		t.Fatalf("a repeat among new messages: %+v", mixed)
	}
	s.sold(4)
	s.story(m.UserID, m.Token, "0:>occupied:processing: 1:occupied>committed:pending_payment:")
}

func repeatAfterMove(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	m := s.message(s.user())
	d := s.buy(m)
	_, _, err := s.L.Cancel(ctx(t), d.OrderNo, m.UserID)
	must(t, err)
	again := s.commit(m)[0]
	if !again.Repeated || !again.Ordered || again.Status != sale.StatusCancelled || again.Version != 2 || again.Reason != sale.ReasonUser {
		t.Fatalf("repeat of a cancelled order: %+v", again)
	}
	s.sold(0)
}

func duplicatesInBatch(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	a, b := s.message(s.user()), s.message(s.user())
	other := s.message(a.UserID) // another token of the same user
	out := s.commit(a, b, a, other, other)
	if !out[0].Ordered || out[0].Repeated || !out[1].Ordered {
		t.Fatalf("firsts: %+v %+v", out[0], out[1])
	}
	if !out[2].Ordered || !out[2].Repeated || out[2].OrderNo != out[0].OrderNo {
		t.Fatalf("same token again: %+v", out[2])
	}
	if out[3].Ordered || out[3].Reason != sale.ReasonParticipated || out[3].FirstToken != a.Token || out[3].Status != sale.StatusFailed {
		t.Fatalf("same user, other token: %+v", out[3])
	}
	if !out[4].Repeated || out[4].FirstToken != a.Token {
		t.Fatalf("the refused token again: %+v", out[4])
	}
	s.sold(2)
}

func soldOut(t *testing.T, open Open) {
	s := newShop(t, open, nil, 2)
	batch := s.messages(3)
	out := s.commit(batch...)
	if !out[0].Ordered || !out[1].Ordered {
		t.Fatalf("first come, first served: %+v", out)
	}
	want := func(d sale.Decision, repeated bool) {
		t.Helper()
		if d.Ordered || !d.SoldOut || d.Status != sale.StatusSoldOut || d.Reason != "" || d.Version != 1 || d.Repeated != repeated {
			t.Fatalf("third of two: %+v", d)
		}
	}
	want(out[2], false)
	want(s.commit(batch[2])[0], true) // no endless retry: the refusal stands
	s.story(batch[2].UserID, batch[2].Token, "0:>occupied:processing: 1:occupied>released:sold_out:")
	s.sold(2)
	// A quantity above what is left takes nothing, and what is left still sells.
	s2 := newShop(t, open, nil, 3)
	big, small := s2.message(s2.user()), s2.message(s2.user())
	big.Quantity = 5
	small.Quantity = 3
	out = s2.commit(big, small)
	if !out[0].SoldOut || !out[1].Ordered {
		t.Fatalf("5 of 3, then 3 of 3: %+v", out)
	}
	s2.sold(3)
	// Given back, it sells again to another user; the refused one stays refused.
	_, _, err := s2.L.Cancel(ctx(t), out[1].OrderNo, small.UserID)
	must(t, err)
	want(s2.commit(big)[0], true)
	s2.buy(s2.message(s2.user()))
}

// An order number drawn twice is no duplicate purchase: another is drawn, or the caller is told which message.
func takenOrderNo(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	a, b := s.message(s.user()), s.message(s.user())
	b.UserID = neighbour(a.UserID, 1)
	b.OrderNo = a.OrderNo
	s.buy(a)
	_, err := s.L.Commit(ctx(t), []sale.Pending{s.message(s.user()), b})
	var me *ledger.MessageError
	if !errors.Is(err, ledger.ErrOrderNoTaken) || !errors.As(err, &me) || me.Index != 1 || me.Token != b.Token {
		t.Fatalf("taken number without a source: %v", err)
	}
	if errors.Is(err, sale.ErrTransient) {
		t.Fatal("the same number will never be free: not transient")
	}
	draws := 0
	s2 := newShop(t, open, func(o *ledger.Options) {
		o.NewOrderNo = func(user int64) string { draws++; return s.orderNo(user) }
	}, 10)
	a, b = s2.message(s2.user()), s2.message(s2.user())
	b.UserID, b.OrderNo = neighbour(a.UserID, 1), a.OrderNo
	s2.buy(a)
	if d := s2.buy(b); d.OrderNo == a.OrderNo || draws != 1 {
		t.Fatalf("order number %s after %d draws", d.OrderNo, draws)
	}
	c, e := s2.message(s2.user()), s2.message(s2.user())
	e.UserID = neighbour(c.UserID, 2)
	e.OrderNo = c.OrderNo // twice in one batch
	out := s2.commit(c, e)
	if !out[0].Ordered || !out[1].Ordered || out[0].OrderNo == out[1].OrderNo {
		t.Fatalf("same number twice in a batch: %+v", out)
	}
	s2.sold(4)
}

func payDeadline(t *testing.T, open Open) {
	now := start().Add(10 * time.Minute)
	s := newShop(t, open, func(o *ledger.Options) { o.Now = func() time.Time { return now } }, 10)
	m := s.message(s.user())
	m.At = now.Add(-3 * time.Second)
	if d := s.buy(m); !d.PayBefore.Equal(m.At.Add(s.A.PayWithin)) {
		t.Fatalf("pay before %v, want reservation + pay within", d.PayBefore)
	}
	late := s.message(s.user())
	late.At = now.Add(-time.Hour)
	if d := s.buy(late); !d.PayBefore.Equal(now.Add(s.A.PayWithin)) {
		t.Fatalf("decided late: pay before %v, want decision + pay within", d.PayBefore)
	}
}

func logRows(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	m := s.message(s.user())
	m.At = start()
	m.TraceID = "trace \u00e9 " + string(slices.Repeat([]byte("x"), 100)) // made to fit, not refused
	s.buy(m)
	rows, err := s.L.TokenStory(ctx(t), m.UserID, m.Token)
	must(t, err)
	if len(rows) != 2 || !rows[0].At.Equal(m.At) || rows[1].At.Before(rows[0].At) || rows[1].Quantity != 1 {
		t.Fatalf("log: %+v", rows)
	}
	if len(rows[1].TraceID) != 64 || rows[1].TraceID[:9] != "trace ?? " {
		t.Fatalf("trace id %q", rows[1].TraceID)
	}
	if rows, _ := s.L.TokenStory(ctx(t), neighbour(m.UserID, 1), m.Token); len(rows) != 0 {
		t.Fatal("another user reads the story")
	}
}

func oneBadMessage(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	batch := s.messages(4)
	batch[2].OrderNo = "12345" // carries no table: a mistake of the caller
	_, err := s.L.Commit(ctx(t), batch)
	var me *ledger.MessageError
	if !errors.As(err, &me) || me.Index != 2 {
		t.Fatalf("got %v, want a MessageError for message 2", err)
	}
	out := s.commit(batch[0], batch[1], batch[3])
	if !out[0].Repeated || !out[1].Repeated || out[2].Repeated {
		t.Fatalf("those before it were decided, those after it were not: %+v", out)
	}
	s.sold(3)
}

func commitBounds(t *testing.T, open Open) {
	s := newShop(t, open, func(o *ledger.Options) { o.MaxBatch, o.MaxRows = 100, 7 }, 200)
	if out, err := s.L.Commit(ctx(t), nil); out != nil || err != nil {
		t.Fatalf("empty batch: %v %v", out, err)
	}
	if _, err := s.L.Commit(ctx(t), s.messages(101)); err == nil || errors.Is(err, sale.ErrTransient) {
		t.Fatalf("too large a batch: %v", err)
	}
	batch := s.messages(100)
	for i := range batch { // all in one table: several statements of 7 rows
		batch[i].UserID = neighbour(batch[0].UserID, int64(i))
		batch[i].OrderNo = s.orderNo(batch[i].UserID)
	}
	s.commit(batch...)
	if out := s.commit(batch...); !out[0].Repeated || !out[99].Repeated {
		t.Fatal("the repeat of a large batch is not seen as one")
	}
	s.sold(100)
}
