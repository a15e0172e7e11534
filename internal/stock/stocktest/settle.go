package stocktest

import (
	"fmt"
	"testing"
	"time"

	"seckill/internal/sale"
)

func testSettle(t *testing.T, b Backend) {
	b.each(t, "Settle", []namedTest{
		{name: "OrderCommitsOnce_S9_R5", run: orderCommitsOnce},
		{name: "RefusalGivesBackOnce_R6", run: refusalGivesBackOnce},
		{name: "SoldOutAtTheDatabaseGivesNothingBack_R6", run: soldOutGivesNothingBack},
		{name: "AlreadyParticipatedPointsToTheFirst_R7", run: participatedPointsToFirst},
		{name: "RefusalLeavesTheMarkOfAnotherToken_R6", run: refusalLeavesOtherMark},
		{name: "UnknownTokenIsWrittenBack_R15", run: unknownIsWrittenBack},
		{name: "NoStockKeyIsMade_R10", run: noStockKeyIsMade},
		{name: "ReturnOnlyAfterCommit_R5_FS002", run: returnOnlyAfterCommit},
		{name: "ReturnWhileNotReady_R5", run: returnWhileNotReady},
		{name: "VersionsOnlyGrow_R4", run: versionsOnlyGrow},
		{name: "StatusWrittenBack_R8", run: statusWrittenBack},
		{name: "EveryTransition_S9_S14", run: everyTransition},
		{name: "LongBatches", run: longBatches},
	})
}

// accepted reserves one unit of SP1 and returns the reservation.
func (e *env) accepted() sale.Reservation {
	e.Helper()
	return e.want(sale.ReserveAccepted).Reservation
}

func orderCommitsOnce(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.accepted()
	d := order(r)
	e.settle(d, sale.SettleDone)
	for range 3 { // R2: a redelivered message
		e.settle(d, sale.SettleAlready)
	}
	e.field(r.Token, "state", "committed")
	e.outbox(0)
	e.stock("SP1", 9)
	e.takesPart(r.UserID, r.Token)
	got, ok, err := e.s.Result(e.ctx, e.a.ID, r.Token)
	e.must(err)
	if !ok || got.UserID != r.UserID || got.Result != d.Result() {
		t.Fatalf("result %+v", got)
	}
	// R5: the order was closed before it was settled; the token is committed all the same, and its return comes.
	late := e.accepted()
	closed := order(late)
	closed.Status, closed.Version = sale.StatusClosed, 2
	e.settle(closed, sale.SettleDone)
	e.field(late.Token, "state", "committed")
	e.field(late.Token, "status", "closed")
	e.giveBack(closed, sale.StatusClosed, 2, sale.SettleDone)
	e.stock("SP1", 9)
}

func refusalGivesBackOnce(t *testing.T, b Backend) {
	e := newEnv(t, b)
	u := e.user()
	r := e.reserve(u, "two", "SP1", 2).Reservation
	e.stock("SP1", 8)
	d := refusal(r, sale.ReasonInvalid)
	e.settle(d, sale.SettleDone)
	e.settle(d, sale.SettleAlready)
	e.stock("SP1", 10)
	e.outbox(0)
	e.takesPart(u, "")
	e.field("two", "state", "released")
	again := e.reserve(u, "two", "SP1", 2)
	e.outcome(again, sale.ReserveRepeat)
	if again.Result != d.Result() || again.Reservation.Token != "" {
		t.Fatalf("a refused token repeats as %+v", again)
	}
	e.outcome(e.reserve(u, "three", "SP1", 1), sale.ReserveAccepted) // may try again under a new token
	e.settle(d, sale.SettleAlready)                                  // and a late repeat of the refusal
	e.takesPart(u, "three")                                          // leaves that alone
	e.stock("SP1", 9)
}

func soldOutGivesNothingBack(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.accepted()
	d := refusal(r, "")
	d.Status, d.SoldOut = sale.StatusSoldOut, true
	e.settle(d, sale.SettleDone)
	e.settle(d, sale.SettleAlready)
	e.stock("SP1", 9)
	e.outbox(0)
	e.takesPart(r.UserID, "")
	e.field(r.Token, "status", "sold_out")
}

func participatedPointsToFirst(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.accepted()
	d := refusal(r, sale.ReasonParticipated)
	d.FirstToken = "the-first"
	e.settle(d, sale.SettleDone)
	e.settle(d, sale.SettleAlready)
	e.stock("SP1", 10)
	e.takesPart(r.UserID, "the-first")
	answer := e.reserve(r.UserID, "another", "SP1", 1)
	e.outcome(answer, sale.ReserveParticipated)
	if answer.FirstToken != "the-first" {
		t.Fatalf("first token %q", answer.FirstToken)
	}
}

func refusalLeavesOtherMark(t *testing.T, b Backend) {
	e := newEnv(t, b)
	// A decision that names another item than was taken gives nothing to that one.
	odd := refusal(e.accepted(), sale.ReasonInvalid)
	odd.CommodityID = "SP2"
	e.settle(odd, sale.SettleDone)
	e.stock("SP2", 5)
	e.stock("SP1", 9)
	e.spoil("stock:SP1", "10")
	r := e.accepted()
	e.spoil(fmt.Sprintf("user:%d", r.UserID), "newer")
	e.settle(refusal(r, sale.ReasonExpired), sale.SettleDone)
	e.takesPart(r.UserID, "newer")
	e.stock("SP1", 10)
}

func unknownIsWrittenBack(t *testing.T, b Backend) {
	e := newEnv(t, b)
	u := e.user()
	lost := sale.Reservation{
		Token: "lost", UserID: u, ActivityID: e.a.ID, CommodityID: "SP1", Price: e.a.Items[0].Price, Quantity: 1, Epoch: 1, At: e.now,
	}
	d := order(lost)
	if e.s.Rewound(e.a.ID) {
		t.Fatal("rewound before anything")
	}
	e.settle(d, sale.SettleUnknown)
	if !e.s.Rewound(e.a.ID) {
		t.Fatal("a token of the current epoch was unknown, and nobody notices (R15)")
	}
	e.settle(d, sale.SettleAlready)
	e.field("lost", "state", "committed")
	e.takesPart(u, "lost")
	e.stock("SP1", 10)
	got, ok, err := e.s.Result(e.ctx, e.a.ID, "lost")
	e.must(err)
	if !ok || got.Result != d.Result() {
		t.Fatalf("result %+v", got)
	}
	e.giveBack(d, sale.StatusCancelled, 2, sale.SettleDone)

	v := e.user()
	lost.Token, lost.UserID = "lost2", v
	e.settle(refusal(lost, sale.ReasonExpired), sale.SettleUnknown)
	e.field("lost2", "state", "released")
	e.takesPart(v, "")
	e.stock("SP1", 11) // the return above; the refusal of an unknown token gives nothing back
	for _, token := range []string{"lost", "lost2"} {
		e.lasts("token:"+token, 0, 1000*time.Hour)
	}
	// An older epoch's token is no sign of a loss.
	calm := newEnv(t, b, func(e *env) { e.a.Epoch = 5 })
	lost.Token, lost.Epoch, lost.ActivityID = "old", 4, calm.a.ID
	calm.settle(refusal(lost, sale.ReasonExpired), sale.SettleUnknown)
	if calm.s.Rewound(calm.a.ID) {
		t.Fatal("a token of an older epoch counts as a loss")
	}
}

func noStockKeyIsMade(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r, ordered := e.accepted(), e.accepted()
	e.settle(order(ordered), sale.SettleDone)
	e.lose("stock:SP1")
	e.settle(refusal(r, sale.ReasonExpired), sale.SettleDone)
	e.giveBack(order(ordered), sale.StatusClosed, 2, sale.SettleNotYet)
	if e.raw("stock:SP1") != "" {
		t.Fatal("a stock key was made")
	}
	// A sale that is gone altogether: written back with a TTL of its own.
	e.must(e.s.Purge(e.ctx, e.a.ID))
	e.settle(order(r), sale.SettleUnknown)
	e.giveBack(order(r), sale.StatusClosed, 2, sale.SettleNotYet)
	for _, rest := range []string{"token:" + r.Token, fmt.Sprintf("user:%d", r.UserID), "participants"} {
		e.lasts(rest, 23*time.Hour, 25*time.Hour)
	}
	if e.there("meta", "stock:SP1") {
		t.Fatal("meta or stock was made")
	}
}

func versionsOnlyGrow(t *testing.T, b Backend) {
	e := newEnv(t, b)
	d := order(e.accepted())
	set := func(st sale.Status, version int64, want sale.Settlement) {
		t.Helper()
		r := d.Result()
		r.Status, r.Version = st, version
		got, err := e.s.SetStatus(e.ctx, []sale.UserResult{{UserID: d.UserID, Result: r}})
		e.must(err)
		if got[0] != want {
			t.Fatalf("%s version %d: %q, want %q", st, version, got[0], want)
		}
	}
	set(sale.StatusPaid, 2, sale.SettleDone) // the payment overtook the settle
	e.field(d.Token, "state", "occupied")
	e.settle(d, sale.SettleDone) // version 1
	e.field(d.Token, "state", "committed")
	e.field(d.Token, "status", "paid")
	e.field(d.Token, "version", "2")
	set(sale.StatusPendingPayment, 1, sale.SettleStale)
	set(sale.StatusPaid, 2, sale.SettleDone)
	e.field(d.Token, "status", "paid")
	set(sale.StatusClosed, 10, sale.SettleDone)
	set(sale.StatusPaid, 9, sale.SettleStale) // by number, not by text
	e.giveBack(d, sale.StatusCancelled, 3, sale.SettleDone)
	e.field(d.Token, "status", "closed")
	e.field(d.Token, "version", "10")
	set(sale.StatusProcessing, 0, sale.SettleUnknown)
	e.field(d.Token, "status", "closed")
}

func statusWrittenBack(t *testing.T, b Backend) {
	e, f := newEnv(t, b), newEnv(t, b)
	paid := sale.UserResult{UserID: e.user(), Result: sale.Result{
		RequestToken: "p", ActivityID: e.a.ID, CommodityID: "SP1", Quantity: 1, Status: sale.StatusPaid, OrderNo: "12345678",
		Version: 2, PayBefore: e.now.Add(time.Minute),
	}}
	other := paid
	other.ActivityID, other.Status, other.OrderNo, other.Reason = f.a.ID, sale.StatusFailed, "", sale.ReasonInvalid
	got, err := e.s.SetStatus(e.ctx, []sale.UserResult{paid, other, {}, paid})
	e.must(err)
	want := []sale.Settlement{sale.SettleUnknown, sale.SettleUnknown, sale.SettleUnknown, sale.SettleDone}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	e.field("p", "state", "committed")
	f.field("p", "state", "released")
	r, ok, err := e.s.Result(e.ctx, e.a.ID, "p")
	e.must(err)
	if !ok || r != paid {
		t.Fatalf("%+v, want %+v", r, paid)
	}
	e.lasts("token:p", 0, 1000*time.Hour)
	e.stock("SP1", 10)
}

// S9, S14: from every state, every action; the state after, the answer, and the stock that moved.
func everyTransition(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = 1000 })
	into := map[sale.TokenState]func(d sale.Decision){
		sale.TokenOccupied:  func(sale.Decision) {},
		sale.TokenCommitted: func(d sale.Decision) { e.settle(d, sale.SettleDone) },
		sale.TokenReleased:  func(d sale.Decision) { e.settle(d, sale.SettleDone); e.giveBack(d, "closed", 2, sale.SettleDone) },
	}
	for _, test := range []struct {
		from   sale.TokenState
		action string
		to     sale.TokenState
		answer sale.Settlement
		moved  int64
	}{
		{sale.TokenOccupied, "order", sale.TokenCommitted, sale.SettleDone, 0},
		{sale.TokenOccupied, "refuse", sale.TokenReleased, sale.SettleDone, 1},
		{sale.TokenOccupied, "return", sale.TokenOccupied, sale.SettleNotYet, 0},
		{sale.TokenCommitted, "order", sale.TokenCommitted, sale.SettleAlready, 0},
		{sale.TokenCommitted, "refuse", sale.TokenCommitted, sale.SettleAlready, 0},
		{sale.TokenCommitted, "return", sale.TokenReleased, sale.SettleDone, 1},
		{sale.TokenReleased, "order", sale.TokenReleased, sale.SettleAlready, 0},
		{sale.TokenReleased, "refuse", sale.TokenReleased, sale.SettleAlready, 0},
		{sale.TokenReleased, "return", sale.TokenReleased, sale.SettleAlready, 0},
	} {
		r := e.accepted()
		d := order(r)
		into[test.from](d)
		before := e.units("SP1")
		switch test.action {
		case "order":
			e.settle(d, test.answer)
		case "refuse":
			e.settle(refusal(r, sale.ReasonInvalid), test.answer)
		case "return":
			e.giveBack(d, sale.StatusClosed, 3, test.answer)
		}
		if got := e.hash(r.Token)["state"]; got != string(test.to) {
			t.Errorf("%s, %s: state %s, want %s", test.from, test.action, got, test.to)
		}
		if got := e.units("SP1") - before; got != test.moved {
			t.Errorf("%s, %s: stock moved by %d, want %d", test.from, test.action, got, test.moved)
		}
		if test.to != test.from && !test.from.CanBecome(test.to) {
			t.Errorf("%s -> %s is no edge of the machine", test.from, test.to)
		}
	}
}

// More decisions than one call takes, of two items, with repeats in the batch and malformed ones between.
func longBatches(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total, e.a.Items[1].Total = 1000, 1000 })
	var ds []sale.Decision
	var rs []sale.Return
	for i := range 600 {
		u := e.user()
		r := e.reserve(u, fmt.Sprint("t", u), e.a.Items[i%2].CommodityID, 1)
		e.outcome(r, sale.ReserveAccepted)
		d := order(r.Reservation)
		if i%3 == 0 {
			d = refusal(r.Reservation, sale.ReasonInvalid)
		}
		ds = append(ds, d, d)
		rs = append(rs, sale.Return{Token: d.Token, UserID: u, ActivityID: e.a.ID, CommodityID: d.CommodityID, Quantity: 1, Status: sale.StatusClosed, Version: 2})
	}
	ds = append(ds, sale.Decision{}, refusal(sale.Reservation{Token: "x", UserID: 5, CommodityID: "no such"}, sale.ReasonInvalid))
	got, err := e.s.Settle(e.ctx, e.a.ID, ds)
	e.must(err)
	for i := range 1200 {
		want := sale.SettleDone
		if i%2 == 1 {
			want = sale.SettleAlready
		}
		if got[i] != want {
			t.Fatalf("decision %d: %q", i, got[i])
		}
	}
	if got[1200] != sale.SettleUnknown || got[1201] != sale.SettleUnknown {
		t.Fatalf("malformed decisions: %v", got[1200:])
	}
	e.stock("SP1", 800)
	e.stock("SP2", 800)
	e.outbox(0)
	back, _, err := e.s.Return(e.ctx, e.a.ID, rs)
	e.must(err)
	for i := range back {
		want := sale.SettleDone
		if i%3 == 0 {
			want = sale.SettleAlready // refused: given back when it was settled
		}
		if back[i] != want {
			t.Fatalf("return %d: %q", i, back[i])
		}
	}
	e.stock("SP1", 1000)
	e.stock("SP2", 1000)
}
