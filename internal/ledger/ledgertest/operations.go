package ledgertest

import (
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

// operationsTests cover payments, dead letters and the waitlist.
func operationsTests(t *testing.T, s *suite) {
	s.each(t, map[string]func(*testing.T, Open){
		"S37 each callback is recorded once":       testPayments,
		"S37 FS-064 pay, close and cancel race":    testPaymentRace,
		"S11 dead letters are kept, found, marked": testDeadLetters,
		"R12 the waitlist keeps its line":          testWaitlist,
		"S39 stock is added and taken back":        testChangeStock,
		"R15 a suspicion raises the epoch once":    testSuspect,
		"R18 a hopeless message is refused once":   testRefuse,
	})
}

func payment(d sale.Decision, amount string) sale.Payment {
	return sale.Payment{ID: "pay-" + rand.Text(), OrderNo: d.OrderNo, Amount: decimal.RequireFromString(amount), PaidAt: time.Now().Truncate(time.Millisecond)}
}

func (s *shop) record(p sale.Payment, want sale.PaymentOutcome, wantChanged bool) {
	s.Helper()
	outcome, o, changed, err := s.L.RecordPayment(s.Context(), p)
	if err != nil || outcome != want || changed != wantChanged || o == nil || o.OrderNo != p.OrderNo {
		s.Fatalf("payment: %s, changed %v, %+v, %v; want %s, %v", outcome, changed, o, err, want, wantChanged)
	}
}

func testPayments(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	d := s.buy(s.message(s.user()))
	p := payment(d, "19.99")
	s.record(p, sale.PaymentPaid, true)
	s.record(p, sale.PaymentPaid, false)
	s.record(payment(d, "19.99"), sale.PaymentAlreadyPaid, false)
	o, err := s.L.OrderByNo(t.Context(), d.OrderNo)
	if err != nil || o.Status != sale.StatusPaid || o.Version != 2 || !o.PaidAt.Equal(p.PaidAt) {
		t.Errorf("order %+v, %v", o, err)
	}
	other := p
	other.Amount = decimal.RequireFromString("19.98")
	if _, _, _, err := s.L.RecordPayment(t.Context(), other); !errors.Is(err, ledger.ErrOtherPayment) {
		t.Errorf("same id, other amount: %v", err)
	}
	wrong := payment(s.buy(s.message(s.user())), "19.98")
	s.record(wrong, sale.PaymentRefundDue, false)
	late := s.buy(s.message(s.user()))
	if _, _, err := s.L.CloseOrder(t.Context(), late.OrderNo, late.UserID); err != nil {
		t.Fatal(err)
	}
	tooLate := payment(late, "19.99")
	s.record(tooLate, sale.PaymentRefundDue, false)
	due, err := s.L.RefundsDue(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []sale.Payment{wrong, tooLate} {
		if !slices.ContainsFunc(due, func(p sale.RecordedPayment) bool { return p.ID == want.ID && p.Amount.Equal(want.Amount) }) {
			t.Errorf("payment %s is not listed for refund", want.ID)
		}
	}
	nobody := p
	nobody.ID, nobody.OrderNo = "x"+rand.Text(), s.orderNo(s.user())
	if _, _, _, err := s.L.RecordPayment(t.Context(), nobody); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("payment of no order: %v", err)
	}
	s.sold(2)
}

// Exactly one of a payment, its repeat, a cancel and a close changes the order; money that came too late is due back.
func testPaymentRace(t *testing.T, open Open) {
	s := newShop(t, open, nil, 200)
	for range 40 {
		d := s.buy(s.message(s.user()))
		p := payment(d, "19.99")
		var wg sync.WaitGroup
		var mu sync.Mutex
		won, outcomes := 0, map[sale.PaymentOutcome]int{}
		note := func(changed bool, outcome sale.PaymentOutcome, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !errors.Is(err, sale.ErrWrongState) {
				t.Errorf("race: %v", err)
			}
			if changed {
				won++
			}
			if outcome != "" {
				outcomes[outcome]++
			}
		}
		for range 2 {
			wg.Go(func() {
				outcome, _, changed, err := s.L.RecordPayment(t.Context(), p)
				note(changed, outcome, err)
			})
		}
		wg.Go(func() { _, changed, err := s.L.Cancel(t.Context(), d.OrderNo, d.UserID); note(changed, "", err) })
		wg.Go(func() { _, changed, err := s.L.CloseOrder(t.Context(), d.OrderNo, d.UserID); note(changed, "", err) })
		wg.Wait()
		o, err := s.L.OrderByNo(t.Context(), d.OrderNo)
		if err != nil || won != 1 || o.Version != 2 {
			t.Fatalf("%d winners, order %+v, %v", won, o, err)
		}
		want := sale.PaymentRefundDue
		if o.Status == sale.StatusPaid {
			want = sale.PaymentPaid
		}
		if outcomes[want] != 2 {
			t.Fatalf("order is %s, outcomes %v", o.Status, outcomes)
		}
	}
	s.balanced()
}

func testDeadLetters(t *testing.T, open Open) {
	s := newShop(t, open, nil, 1)
	topic := "dead-" + rand.Text()
	for offset := range int64(3) {
		d := sale.DeadLetter{Topic: topic, Partition: 2, Offset: offset, Key: []byte("7"), Value: []byte("not json \xff"), Reason: "malformed", Detail: "field v"}
		for range 2 { // the same message again is kept once
			if err := s.L.SaveDeadLetter(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.L.SaveDeadLetter(t.Context(), sale.DeadLetter{Topic: topic, Offset: 9, Reason: "malformed"}); err != nil {
		t.Errorf("empty key and value: %v", err)
	}
	mine := s.deadLetters(topic, sale.DeadParked)
	if len(mine) != 4 || string(mine[0].Value) != "not json \xff" || mine[0].Offset != 0 || mine[0].State != sale.DeadParked {
		t.Fatalf("listed %+v", mine)
	}
	if err := s.L.MarkDeadLetter(t.Context(), mine[1].ID, sale.DeadReplayed); err != nil {
		t.Fatal(err)
	}
	if err := s.L.MarkDeadLetter(t.Context(), mine[1].ID, sale.DeadReplayed); err != nil {
		t.Fatal(err)
	}
	if d, err := s.L.DeadLetter(t.Context(), mine[1].ID); err != nil || d.State != sale.DeadReplayed || d.Replays != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if n := len(s.deadLetters(topic, sale.DeadParked)); n != 3 {
		t.Errorf("%d parked, want 3", n)
	}
	if _, err := s.L.DeadLetter(t.Context(), 1<<60); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	if err := s.L.MarkDeadLetter(t.Context(), 1<<60, sale.DeadDiscarded); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("mark unknown: %v", err)
	}
}

// deadLetters lists those of one topic, page by page.
func (s *shop) deadLetters(topic string, state sale.DeadLetterState) (mine []sale.DeadLetter) {
	s.Helper()
	after := int64(0)
	for {
		page, err := s.L.DeadLetters(s.Context(), state, after, 100)
		if err != nil {
			s.Fatal(err)
		}
		if len(page) == 0 {
			return mine
		}
		for _, d := range page {
			if after = d.ID; d.Topic == topic {
				mine = append(mine, d)
			}
		}
	}
}

func testWaitlist(t *testing.T, open Open) {
	s := newShop(t, open, nil, 1, 1)
	ctx, a := t.Context(), s.A.ID
	users := []int64{s.user(), s.user(), s.user()}
	for _, u := range users {
		if _, err := s.L.JoinWaitlist(ctx, a, "C0", u); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // the line is by milliseconds
	}
	if _, err := s.L.JoinWaitlist(ctx, a, "C0", users[0]); !errors.Is(err, sale.ErrExists) {
		t.Errorf("second join: %v", err)
	}
	if _, err := s.L.JoinWaitlist(ctx, a, "C1", users[1]); err != nil {
		t.Fatal(err)
	}
	line := func() (got []int64) {
		list, err := s.L.Waiters(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			if w.CommodityID == "C0" {
				got = append(got, w.UserID)
			}
		}
		return got
	}
	if got := line(); !slices.Equal(got, users) {
		t.Fatalf("line %v, want %v", got, users)
	}
	if c, err := s.L.LeaveWaitlist(ctx, a, users[1]); err != nil || !slices.Equal(c, []string{"C0", "C1"}) {
		t.Errorf("left %v, %v", c, err)
	}
	leftAndJoinedAgain(t, s, users[1], users[0])
	if got := line(); !slices.Equal(got, []int64{users[0], users[2], users[1]}) {
		t.Errorf("after leaving and joining again: %v", got)
	}
	head := sale.Waiter{ActivityID: a, CommodityID: "C0", UserID: users[0]}
	for range 2 {
		if err := s.L.MarkPromoted(ctx, head, "tok"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.L.JoinWaitlist(ctx, a, "C0", users[0]); !errors.Is(err, sale.ErrWrongState) {
		t.Errorf("a promoted user joins again: %v", err)
	}
	if gone, err := s.L.NotWaiting(ctx, a, "C0", []sale.Waiter{head}); err != nil || len(gone) != 1 {
		t.Errorf("a promoted user waits: %v, %v", gone, err)
	}
	buyer := s.message(users[2]) // of whatever commodity: nobody takes part twice
	s.buy(buyer)
	ws := []sale.Waiter{{UserID: users[2]}, {UserID: users[1]}}
	if gone, err := s.L.NotWaiting(ctx, a, "C0", ws); err != nil || !slices.Equal(gone, ws[:1]) {
		t.Errorf("of a user with an order and one who waits, not waiting are %v, %v", gone, err)
	}
	gone, err := s.L.ExpireWaitlist(ctx, a)
	if err != nil || len(gone) != 2 || len(line()) != 0 {
		t.Errorf("expired %v, %v; line %v", gone, err, line())
	}
}

// leftAndJoinedAgain is told apart from one who left, by the time of joining too.
func leftAndJoinedAgain(t *testing.T, s *shop, user, waits int64) {
	t.Helper()
	ctx, a := t.Context(), s.A.ID
	left, nobody := sale.Waiter{ActivityID: a, CommodityID: "C0", UserID: user, JoinedAt: time.UnixMilli(5)}, sale.Waiter{UserID: 1}
	want := func(want []sale.Waiter, ws ...sale.Waiter) {
		t.Helper()
		if gone, err := s.L.NotWaiting(ctx, a, "C0", ws); err != nil || !slices.Equal(gone, want) {
			t.Errorf("not waiting are %v, want %v; %v", gone, want, err)
		}
	}
	want([]sale.Waiter{left, nobody}, sale.Waiter{UserID: waits}, left, nobody)
	want(nil)
	before := time.Time{}
	for again := range 3 { // within one millisecond, too, who joins again joins later
		if again > 0 {
			if _, err := s.L.LeaveWaitlist(ctx, a, user); err != nil {
				t.Fatal(err)
			}
		}
		at, err := s.L.JoinWaitlist(ctx, a, "C0", user)
		if err != nil || !at.After(before) {
			t.Fatalf("joined again at %s, before that at %s: %v", at, before, err)
		}
		before = at
	}
	want(nil, left)
}

// Refuse decides what is undecided, and leaves alone what is decided.
func testRefuse(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	m := s.message(s.user())
	for i := range 3 {
		d, err := s.L.Refuse(t.Context(), m)
		if err != nil || d.Ordered || d.Reason != sale.ReasonInvalid || d.Version != 1 || d.Repeated != (i > 0) {
			t.Fatalf("refuse: %+v, %v", d, err)
		}
	}
	if d := s.commit(m)[0]; d.Ordered || !d.Repeated {
		t.Errorf("commit after the refusal: %+v", d)
	}
	bought := s.message(s.user())
	order := s.buy(bought)
	if d, err := s.L.Refuse(t.Context(), bought); err != nil || !d.Ordered || d.OrderNo != order.OrderNo {
		t.Errorf("refuse after the order: %+v, %v", d, err)
	}
	s.sold(1)
}

func testChangeStock(t *testing.T, open Open) {
	s := newShop(t, open, nil, 3)
	s.buy(s.message(s.user()))
	s.buy(s.message(s.user()))
	for _, c := range []struct {
		delta, want int64
		err         error
	}{{5, 8, nil}, {-6, 2, nil}, {-1, 2, sale.ErrConflict}, {sale.MaxStock, 2, sale.ErrConflict}, {1, 3, nil}} {
		total, err := s.L.ChangeStock(t.Context(), s.A.ID, "C0", c.delta)
		if total != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+d: total %d, %v; want %d, %v", c.delta, total, err, c.want, c.err)
		}
	}
	if _, err := s.L.ChangeStock(t.Context(), s.A.ID, "C9", 1); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("unknown item: %v", err)
	}
	s.buy(s.message(s.user()))
	if d := s.commit(s.message(s.user()))[0]; d.Ordered {
		t.Error("a fourth unit of three was sold")
	}
	s.sold(3)
}

func testSuspect(t *testing.T, open Open) {
	s := newShop(t, open, nil, 3)
	epoch, err := s.L.RaiseEpoch(t.Context(), s.A.ID, 7)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // three processes saw the same
		if err := s.L.Suspect(t.Context(), s.A.ID, epoch); err != nil {
			t.Fatal(err)
		}
	}
	a, err := s.L.Activity(t.Context(), s.A.ID)
	if err != nil || a.Epoch != epoch+1 {
		t.Errorf("epoch %d, %v; want %d", a.Epoch, err, epoch+1)
	}
	if _, err := s.L.RaiseEpoch(t.Context(), s.A.ID, 7); err != nil {
		t.Errorf("the leader's rebuild after it: %v", err)
	}
}
