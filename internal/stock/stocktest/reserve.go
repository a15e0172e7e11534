package stocktest

import (
	"fmt"
	"testing"
	"time"

	"seckill/internal/sale"
)

func testReserve(t *testing.T, b Backend) {
	b.each(t, "Reserve", []namedTest{
		{name: "AcceptedLeavesEverythingTogether_S6", run: acceptedLeavesEverything},
		{name: "RepeatTakesNothing_S3_FS003", run: repeatTakesNothing},
		{name: "TokenBelongsToItsUserAndRequest_FS019_FS020", run: tokenBelongsToItsRequest},
		{name: "SecondTokenNamesTheFirst_S1", run: secondTokenNamesTheFirst},
		{name: "SoldOutNeverBelowZero_S6", run: soldOutNeverBelowZero},
		{name: "Window_FS010_FS033", run: saleWindow},
		{name: "NeverWarmedUp_FS009", run: neverWarmedUp},
		{name: "SpoiltStockIsNotReady_FS009", run: spoiltStockIsNotReady},
		{name: "UserLists_S1", run: userLists},
		{name: "UnknownItemAndQuantity_FS022", run: unknownItemAndQuantity},
		{name: "BatchSeesItself", run: batchSeesItself},
		{name: "LargeIdsAreExact_FS023", run: largeIDsAreExact},
		{name: "MarkWithoutHashTakesNoSecondUnit", run: markWithoutHash},
		{name: "NextSaleKnowsNoMarkOfThisOne_S2", run: nextSaleKnowsNoMark},
		{name: "SpoiltTokenKeyHarmsOnlyItself_FS015", run: spoiltTokenKey},
	})
}

func acceptedLeavesEverything(t *testing.T, b Backend) {
	e := newEnv(t, b)
	u := e.user()
	r := e.reserve(u, "tok-1.x_Y", "SP1", 2)
	e.outcome(r, sale.ReserveAccepted)
	res := r.Reservation
	if res.Token != "tok-1.x_Y" || res.UserID != u || res.ActivityID != e.a.ID || res.CommodityID != "SP1" ||
		res.Quantity != 2 || sale.FormatMoney(res.Price) != "99.00" || res.Epoch != 1 || !res.At.Equal(e.now) {
		t.Fatalf("reservation %+v", res)
	}
	if r.Result.Status != sale.StatusProcessing || r.Result.Version != 0 || r.Result.RequestToken != res.Token {
		t.Fatalf("result %+v", r.Result)
	}
	e.stock("SP1", 8)
	e.takesPart(u, res.Token)
	e.outbox(1)
	h := e.hash(res.Token)
	for name, want := range map[string]string{
		"state": "occupied", "userId": fmt.Sprint(u), "commodityId": "SP1", "quantity": "2", "price": "99.00",
		"ts": fmt.Sprint(e.now.UnixMilli()), "epoch": "1", "status": "processing", "version": "0",
	} {
		if h[name] != want {
			t.Errorf("%s is %q, want %q", name, h[name], want)
		}
	}
	line, err := e.keys.Line(e.ctx, e.key("occupied"))
	e.must(err)
	if score := line[res.Token]; int64(score) != e.now.UnixMilli() {
		t.Errorf("outbox score %v", score)
	}
}

// FS-003: repeats of a buyer eat no stock; FS-018: both get the same token's state.
func repeatTakesNothing(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = 5 })
	u := e.user()
	first := e.reserve(u, "a1", "SP1", 1)
	e.outcome(first, sale.ReserveAccepted)
	for range 20 {
		e.now = e.now.Add(time.Second)
		r := e.reserve(u, "a1", "SP1", 1)
		e.outcome(r, sale.ReserveRepeat)
		if !sameReservation(r.Reservation, first.Reservation) || r.Result.Status != sale.StatusProcessing {
			t.Fatalf("repeat of an occupied token must be publishable as it was: %+v", r)
		}
	}
	e.stock("SP1", 4)
	e.outbox(1)
	for range 4 {
		e.want(sale.ReserveAccepted)
	}
	e.want(sale.ReserveSoldOut)

	d := order(first.Reservation)
	e.settle(d, sale.SettleDone)
	r := e.reserve(u, "a1", "SP1", 1)
	e.outcome(r, sale.ReserveRepeat)
	if r.Result != d.Result() || r.Reservation.Token != "" {
		t.Fatalf("repeat after the decision: %+v, want result %+v and nothing to publish", r, d.Result())
	}
	// The owner's repeat is answered also when the sale is over.
	e.now = e.a.EndsAt.Add(time.Minute)
	e.outcome(e.reserve(u, "a1", "SP1", 1), sale.ReserveRepeat)
}

func tokenBelongsToItsRequest(t *testing.T, b Backend) {
	e := newEnv(t, b)
	u, other := e.user(), e.user()
	e.outcome(e.reserve(u, "k", "SP1", 1), sale.ReserveAccepted)
	e.outcome(e.reserve(u, "k", "SP2", 1), sale.ReserveMismatch)
	e.outcome(e.reserve(u, "k", "SP1", 2), sale.ReserveMismatch)
	r := e.reserve(other, "k", "SP1", 1)
	e.outcome(r, sale.ReserveForeignHolder)
	if r.Result != (sale.Result{}) || r.Reservation != (sale.Reservation{}) || r.FirstToken != "" {
		t.Fatalf("a foreign token leaks %+v", r)
	}
	e.takesPart(other, "")
	e.outcome(e.reserve(other, "k2", "SP1", 1), sale.ReserveAccepted)
	e.stock("SP1", 8)
	e.stock("SP2", 5)
}

func secondTokenNamesTheFirst(t *testing.T, b Backend) {
	e := newEnv(t, b)
	u := e.user()
	e.outcome(e.reserve(u, "first", "SP1", 1), sale.ReserveAccepted)
	for _, c := range []string{"SP1", "SP2"} { // one participation a sale, not an item
		r := e.reserve(u, "second", c, 1)
		e.outcome(r, sale.ReserveParticipated)
		if r.FirstToken != "first" {
			t.Fatalf("first token %q", r.FirstToken)
		}
	}
	if len(e.hash("second")) > 0 {
		t.Fatal("a refused token left a hash: it would be used up")
	}
	e.stock("SP1", 9)
}

func soldOutNeverBelowZero(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = 3 })
	e.outcome(e.reserve(e.user(), "a", "SP1", 2), sale.ReserveAccepted)
	u := e.user()
	e.outcome(e.reserve(u, "b", "SP1", 2), sale.ReserveSoldOut) // one left, two asked for
	e.takesPart(u, "")
	e.outcome(e.reserve(u, "b", "SP1", 1), sale.ReserveAccepted) // the refusal did not use the token up
	for range 5 {
		e.want(sale.ReserveSoldOut)
	}
	e.stock("SP1", 0)
	e.outbox(2)
}

// FS-033: the time given by the gateway opens and closes the sale; FS-010: each outcome has its own code.
func saleWindow(t *testing.T, b Backend) {
	e := newEnv(t, b)
	base := e.now
	e.now = e.a.StartsAt.Add(-time.Millisecond)
	e.want(sale.ReserveNotStarted)
	e.now = e.a.StartsAt
	e.want(sale.ReserveAccepted)
	e.now = e.a.EndsAt.Add(-time.Millisecond)
	e.want(sale.ReserveAccepted)
	e.now = e.a.EndsAt
	e.want(sale.ReserveEnded)

	e.now = base
	e.a.State = sale.StatePaused
	e.must(e.s.SetMeta(e.ctx, &e.a))
	e.want(sale.ReservePaused)
	e.a.State = sale.StateScheduled
	e.must(e.s.SetMeta(e.ctx, &e.a))
	e.want(sale.ReserveAccepted)
	e.a.State = sale.StateEnded
	e.must(e.s.SetMeta(e.ctx, &e.a))
	e.want(sale.ReserveEnded)
	e.a.State = sale.StateScheduled
	e.a.EndsAt = base.Add(time.Minute)
	e.must(e.s.SetMeta(e.ctx, &e.a))
	e.now = base.Add(time.Minute)
	e.want(sale.ReserveEnded)
	e.stock("SP1", 7)
}

func neverWarmedUp(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.must(e.s.Purge(e.ctx, e.a.ID))
	u := e.user()
	e.outcome(e.reserve(u, "x", "SP1", 1), sale.ReserveNotReady)
	e.takesPart(u, "")
	if e.there("stock:SP1", "meta", "token:x", "occupied") {
		t.Fatalf("keys appeared: %v", e.allKeys())
	}
	e.a.Epoch = 2
	e.must(e.s.BeginRebuild(e.ctx, e.a, 2))
	e.outcome(e.reserve(u, "x", "SP1", 1), sale.ReserveNotReady) // while rebuilding
	e.a.State = sale.StateDraft
	e.must(e.s.FinishRebuild(e.ctx, &sale.Snapshot{Activity: e.a}, 2))
	e.outcome(e.reserve(u, "x", "SP1", 1), sale.ReserveNotReady) // written, still a draft
}

func spoiltStockIsNotReady(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.lose("stock:SP1")
	u := e.user()
	e.outcome(e.reserve(u, "x", "SP1", 1), sale.ReserveNotReady)
	e.takesPart(u, "")
	if e.there("stock:SP1") {
		t.Fatal("the stock key came back by itself")
	}
	for _, v := range []string{"", "abc", "1.5", "-1", "-0", "007", "1e3", " 5", "5 ", "0x10", "nan", "9999999999999999"} {
		e.spoil("stock:SP1", v)
		e.want(sale.ReserveNotReady)
		if got := e.raw("stock:SP1"); got != v {
			t.Fatalf("spoilt stock %q was changed to %q", v, got)
		}
	}
	e.lose("stock:SP1")
	e.must(e.rdb.LPush(e.ctx, e.key("stock:SP1"), "5").Err())
	e.want(sale.ReserveNotReady)
	e.outcome(e.reserve(e.user(), "other", "SP2", 1), sale.ReserveAccepted) // the other item still sells
	live, err := e.s.Live(e.ctx, []string{e.a.ID})
	e.must(err)
	if l := live[e.a.ID]; l.State != sale.StateNotReady {
		t.Fatalf("live state %q", l.State)
	}
}

func userLists(t *testing.T, b Backend) {
	e := newEnv(t, b)
	u := e.user()
	e.must(e.s.SetUserList(e.ctx, e.a.ID, "blocked", u, true))
	e.outcome(e.reserve(u, "b", "SP1", 1), sale.ReserveBlocked)
	e.must(e.s.SetUserList(e.ctx, e.a.ID, "blocked", u, false))
	e.outcome(e.reserve(u, "b", "SP1", 1), sale.ReserveAccepted)

	e.a.AllowList = true
	e.must(e.s.SetMeta(e.ctx, &e.a))
	v := e.user()
	e.outcome(e.reserve(v, "c", "SP1", 1), sale.ReserveNotEligible)
	e.must(e.s.SetUserList(e.ctx, e.a.ID, "eligible", v, true))
	e.outcome(e.reserve(v, "c", "SP1", 1), sale.ReserveAccepted)
	e.want(sale.ReserveNotEligible)
	e.must(e.s.SetUserList(e.ctx, e.a.ID, "blocked", v, true))
	e.outcome(e.reserve(v, "d", "SP1", 1), sale.ReserveBlocked)
	e.outcome(e.reserve(v, "c", "SP1", 1), sale.ReserveRepeat) // what was granted stays visible
	e.stock("SP1", 8)
	if err := e.s.SetUserList(e.ctx, e.a.ID, "meta", u, true); err == nil {
		t.Fatal("any key can be named as a list")
	}
}

func unknownItemAndQuantity(t *testing.T, b Backend) {
	e := newEnv(t, b)
	u := e.user()
	e.outcome(e.reserve(u, "a", "SP9", 1), sale.ReserveUnknownItem)
	e.outcome(e.reserve(u, "a", "SP2", 2), sale.ReserveBadQuantity)
	e.outcome(e.reserve(u, "a", "SP1", 3), sale.ReserveBadQuantity)
	for _, q := range []int{0, -1, -5, -1 << 31, sale.MaxQuantity + 1, 1 << 40} {
		e.outcome(e.reserve(u, "a", "SP1", q), sale.ReserveBadQuantity)
	}
	e.outcome(e.reserve(u, "a", "SP1}:x{", 1), sale.ReserveUnknownItem)
	e.outcome(e.reserve(u, "a b", "SP1", 1), sale.ReserveForeignHolder)
	e.outcome(e.reserve(-u, "a", "SP1", 1), sale.ReserveForeignHolder)
	e.stock("SP1", 10)
	e.stock("SP2", 5)
	e.takesPart(u, "")
	e.outcome(e.reserve(u, "a", "SP1", 2), sale.ReserveAccepted)
	for _, id := range []string{"", "a}b", "a*", "system", "0123456789012345678901234567890123"} {
		if _, err := e.s.Reserve(e.ctx, id, e.now, nil); err == nil {
			t.Errorf("activity id %q is taken", id)
		}
	}
	if _, err := e.s.Reserve(e.ctx, e.a.ID, e.now, make([]sale.ReserveRequest, 257)); err == nil {
		t.Error("257 requests are taken")
	}
}

// A batch behaves like its requests one after another: same user, same token, last unit.
func batchSeesItself(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = 3 })
	u, v, w, x := e.user(), e.user(), e.user(), e.user()
	r := e.batch(
		sale.ReserveRequest{Token: "u1", UserID: u, CommodityID: "SP1", Quantity: 1},
		sale.ReserveRequest{Token: "u1", UserID: u, CommodityID: "SP1", Quantity: 1},
		sale.ReserveRequest{Token: "u1", UserID: u, CommodityID: "SP1", Quantity: 2},
		sale.ReserveRequest{Token: "u2", UserID: u, CommodityID: "SP2", Quantity: 1},
		sale.ReserveRequest{Token: "u1", UserID: v, CommodityID: "SP1", Quantity: 1},
		sale.ReserveRequest{Token: "v1", UserID: v, CommodityID: "SP1", Quantity: 2},
		sale.ReserveRequest{Token: "w1", UserID: w, CommodityID: "SP1", Quantity: 1},
		sale.ReserveRequest{Token: "w1", UserID: w, CommodityID: "SP2", Quantity: 1},
		sale.ReserveRequest{Token: "x1", UserID: x, CommodityID: "none", Quantity: 1},
		sale.ReserveRequest{Token: "x1", UserID: x, CommodityID: "SP2", Quantity: 0},
		sale.ReserveRequest{Token: "x1", UserID: x, CommodityID: "SP2", Quantity: 1},
	)
	want := []sale.ReserveOutcome{
		sale.ReserveAccepted, sale.ReserveRepeat, sale.ReserveMismatch, sale.ReserveParticipated,
		sale.ReserveForeignHolder, sale.ReserveAccepted, sale.ReserveSoldOut, sale.ReserveAccepted,
		sale.ReserveUnknownItem, sale.ReserveBadQuantity, sale.ReserveAccepted,
	}
	for i := range want {
		if r[i].Outcome != want[i] {
			t.Errorf("request %d: %q, want %q", i, r[i].Outcome, want[i])
		}
	}
	if !sameReservation(r[1].Reservation, r[0].Reservation) {
		t.Errorf("repeat in the batch gives %+v", r[1].Reservation)
	}
	if r[3].FirstToken != "u1" {
		t.Errorf("first token %q", r[3].FirstToken)
	}
	if p := sale.FormatMoney(r[7].Reservation.Price); p != "0.10" {
		t.Errorf("price of the second item: %s", p)
	}
	e.stock("SP1", 0)
	e.stock("SP2", 3)
	e.outbox(4)
	for token, u := range map[string]int64{"u1": u, "v1": v, "w1": w, "x1": x} {
		e.takesPart(u, token)
	}

	// Alike requests: each token belongs to its own user, and keeps all that a single request would have left.
	f := newEnv(t, b)
	var reqs []sale.ReserveRequest
	for i := range int64(4) {
		reqs = append(reqs, sale.ReserveRequest{Token: fmt.Sprint("s", i), UserID: i + 1, CommodityID: "SP1", Quantity: 1})
	}
	f.batch(reqs...)
	for i := range reqs {
		h := f.hash(reqs[i].Token)
		want := fmt.Sprintf("%d SP1 1 99.00 %d 1 occupied processing 0", i+1, f.now.UnixMilli())
		got := fmt.Sprint(h["userId"], " ", h["commodityId"], " ", h["quantity"], " ", h["price"], " ", h["ts"], " ", h["epoch"],
			" ", h["state"], " ", h["status"], " ", h["version"])
		if got != want || len(h) != 9 {
			t.Errorf("hash %v, want %s", h, want)
		}
	}
	f.checkLifetimes(f.a.KeysUntil(24 * time.Hour))
	for i, r := range f.batch(reqs...) {
		if r.Outcome != sale.ReserveRepeat || r.Reservation.UserID != reqs[i].UserID {
			t.Errorf("repeat %d: %+v", i, r)
		}
	}
}

// FS-023: digits beyond 2^53 survive the script.
func largeIDsAreExact(t *testing.T, b Backend) {
	e := newEnv(t, b)
	for i, u := range []int64{738529527931269425, 9007199254740993, 9223372036854775807} {
		token := fmt.Sprintf("9007199254740993%d", i)
		r := e.reserve(u, token, "SP1", 1)
		e.outcome(r, sale.ReserveAccepted)
		e.takesPart(u, token)
		e.field(token, "userId", fmt.Sprint(u))
		e.now = e.now.Add(time.Second)
		again := e.reserve(u, token, "SP1", 1)
		e.outcome(again, sale.ReserveRepeat)
		if !sameReservation(again.Reservation, r.Reservation) {
			t.Fatalf("reservation %+v, then %+v", r.Reservation, again.Reservation)
		}
		d := order(r.Reservation)
		d.OrderNo = "922337203685477580715"
		e.settle(d, sale.SettleDone)
		got, ok, err := e.s.Result(e.ctx, e.a.ID, token)
		e.must(err)
		if !ok || got.UserID != u || got.Result != d.Result() {
			t.Fatalf("result %+v, want %+v", got, d.Result())
		}
	}
	users, err := e.s.ParticipantsOf(e.ctx, e.a.ID)
	e.must(err)
	if len(users) != 3 {
		t.Fatalf("participants %v", users)
	}
}

// A mark that names a token whose hash is lost takes no second unit: the database knows what became of it.
func markWithoutHash(t *testing.T, b Backend) {
	e := newEnv(t, b)
	u := e.user()
	e.outcome(e.reserve(u, "a", "SP1", 1), sale.ReserveAccepted)
	e.lose("token:a")
	r := e.reserve(u, "a", "SP1", 1)
	e.outcome(r, sale.ReserveParticipated)
	if r.FirstToken != "a" {
		t.Fatalf("first token %q", r.FirstToken)
	}
	e.stock("SP1", 9)
}

func nextSaleKnowsNoMark(t *testing.T, b Backend) {
	e, next := newEnv(t, b), newEnv(t, b)
	u := e.user()
	e.outcome(e.reserve(u, "same", "SP1", 1), sale.ReserveAccepted)
	next.outcome(next.reserve(u, "same", "SP1", 1), sale.ReserveAccepted)
	e.must(e.s.Purge(e.ctx, e.a.ID))
	next.takesPart(u, "same")
	next.stock("SP1", 9)
}
