package stocktest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"seckill/internal/sale"
)

func testReading(t *testing.T, b Backend) {
	b.each(t, "Reading", []namedTest{
		{name: "Results_S30", run: results},
		{name: "ResultsOfUsers_S29", run: resultsOfUsers},
		{name: "Occupied_S21", run: occupiedForRelay},
		{name: "Live", run: live},
		{name: "AuditAndRepair_R13", run: auditAndRepair},
	})
}

func results(t *testing.T, b Backend) {
	e := newEnv(t, b)
	if _, ok, err := e.s.Result(e.ctx, e.a.ID, "nobody"); ok || err != nil {
		t.Fatalf("unknown token: %v, %v", ok, err)
	}
	if _, ok, err := e.s.Mark(e.ctx, e.a.ID, 1); ok || err != nil {
		t.Fatalf("unknown user: %v, %v", ok, err)
	}
	r := e.accepted()
	got, ok, err := e.s.Result(e.ctx, e.a.ID, r.Token)
	e.must(err)
	want := sale.Result{RequestToken: r.Token, ActivityID: e.a.ID, CommodityID: "SP1", Quantity: 1, Status: sale.StatusProcessing}
	if !ok || got.UserID != r.UserID || got.Result != want {
		t.Fatalf("%+v", got)
	}
	// Not a fraction of a result: every status and reason survives.
	for i, st := range []sale.Status{sale.StatusPaid, sale.StatusCancelled, sale.StatusClosed} {
		want.Status, want.Version, want.OrderNo, want.PayBefore = st, int64(i+2), "7385295279312694"+"07", e.now.Add(time.Minute)
		want.Reason = []sale.Reason{"", sale.ReasonUser, sale.ReasonExpired}[i]
		_, err := e.s.SetStatus(e.ctx, []sale.UserResult{{UserID: r.UserID, Result: want}})
		e.must(err)
		if got, _, err = e.s.Result(e.ctx, e.a.ID, r.Token); err != nil || got.Result != want {
			t.Fatalf("%+v (%v), want %+v", got, err, want)
		}
	}
}

func resultsOfUsers(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = 1000; e.o.Pipeline = 7 })
	f := newEnv(t, b)
	var users []int64
	for range 30 {
		users = append(users, e.accepted().UserID)
	}
	both := users[3]
	f.outcome(f.reserve(both, "other-sale", "SP2", 1), sale.ReserveAccepted)
	users = append(users, 42) // takes part in nothing
	got, err := e.s.ResultsOfUsers(e.ctx, []string{e.a.ID, f.a.ID}, users)
	e.must(err)
	seen := map[string]int64{}
	for _, r := range got {
		if r.Status != sale.StatusProcessing {
			t.Fatalf("%+v", r)
		}
		seen[r.RequestToken] = r.UserID
	}
	if len(got) != 31 || len(seen) != 31 || seen["other-sale"] != both {
		t.Fatalf("%d results: %v", len(got), seen)
	}
	if none, err := e.s.ResultsOfUsers(e.ctx, nil, users); err != nil || len(none) != 0 {
		t.Fatalf("%v, %v", none, err)
	}
}

func occupiedForRelay(t *testing.T, b Backend) {
	e := newEnv(t, b)
	var want []sale.Reservation
	for range 4 {
		e.now = e.now.Add(time.Second)
		want = append(want, e.accepted())
	}
	e.settle(order(want[1]), sale.SettleDone)
	list := func(before time.Time, limit int) []sale.Reservation {
		t.Helper()
		got, err := e.s.Occupied(e.ctx, e.a.ID, before, limit)
		e.must(err)
		return got
	}
	got := list(e.now, 10) // the last one is exactly as old: not before
	if len(got) != 2 || !sameReservation(got[0], want[0]) || !sameReservation(got[1], want[2]) {
		t.Fatalf("%+v", got)
	}
	if got := list(e.now.Add(time.Hour), 1); len(got) != 1 || got[0].Token != want[0].Token {
		t.Fatalf("%+v", got)
	}
	if got := list(e.now.Add(-time.Hour), 10); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
	if got := list(e.now.Add(time.Hour), 0); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
	// Entries that are none cannot hide the others for ever.
	e.must(e.keys.PutFirst(e.ctx, e.key("occupied"), "ghost1", "ghost2", want[1].Token))
	list(e.now.Add(time.Hour), 3)
	if got := list(e.now.Add(time.Hour), 3); len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	e.outbox(3)
}

func live(t *testing.T, b Backend) {
	e := newEnv(t, b)
	f := newEnv(t, b, func(e *env) { e.a.StartsAt = e.now.Add(30 * time.Minute) })
	none := f.a.ID + "-none" // never heard of
	e.want(sale.ReserveAccepted)
	check := func(want sale.State) {
		t.Helper()
		got, err := e.s.Live(e.ctx, []string{e.a.ID, f.a.ID, none})
		e.must(err)
		l := got[e.a.ID]
		if l.State != want || l.Epoch != 1 || l.Seq == 0 || l.ActivityID != e.a.ID || l.At.IsZero() || !l.EndsAt.Equal(e.a.EndsAt) {
			t.Fatalf("live %+v, want %s", l, want)
		}
		if !slices.Equal(l.Items, []sale.Remaining{{CommodityID: "SP1", Units: 9}, {CommodityID: "SP2", Units: 5}}) {
			t.Fatalf("items %v", l.Items)
		}
		if got[f.a.ID].State != sale.StateScheduled || got[none].State != sale.StateNotReady || len(got) != 3 {
			t.Fatalf("others %+v", got)
		}
	}
	check(sale.StateOpen)
	for _, st := range []sale.State{sale.StatePaused, sale.StateEnded} {
		e.a.State = st
		e.must(e.s.SetMeta(e.ctx, &e.a))
		check(st)
	}
	_, before, err := e.s.RaiseSeq(e.ctx, e.a.ID)
	e.must(err)
	_, after, err := e.s.RaiseSeq(e.ctx, e.a.ID)
	e.must(err)
	if after != before+1 {
		t.Fatalf("seq %d, then %d", before, after)
	}
	if epoch, seq, err := e.s.RaiseSeq(e.ctx, none); epoch != 0 || seq != 0 || err != nil {
		t.Fatal(epoch, seq, err)
	}
	if meta, err := e.keys.Hash(e.ctx, "seckill:{"+none+"}:meta"); err != nil || len(meta) > 0 {
		t.Fatal("raising seq made a meta")
	}
}

func auditAndRepair(t *testing.T, b Backend) {
	e := newEnv(t, b)
	open, done, back := e.accepted(), e.accepted(), e.accepted()
	e.settle(order(done), sale.SettleDone)
	e.settle(order(back), sale.SettleDone)
	e.giveBack(order(back), sale.StatusClosed, 2, sale.SettleDone)
	a, err := e.s.Audit(e.ctx, e.a.ID, []string{"SP1", "SP2", "SP9"}, []string{done.Token, back.Token, "nobody"})
	e.must(err)
	if !a.Ready || a.Truncated || fmt.Sprint(a.Stock) != "map[SP1:8 SP2:5]" ||
		len(a.Occupied) != 1 || !sameReservation(a.Occupied[0], open) ||
		fmt.Sprint(a.Closed) != fmt.Sprint(map[string]sale.TokenState{done.Token: sale.TokenCommitted, back.Token: sale.TokenReleased}) {
		t.Fatalf("%+v", a)
	}
	e.spoil("stock:SP1", "3") // a difference appears
	e.must(e.s.Repair(e.ctx, e.a.ID, a.Epoch, a.Seq, map[string]int64{"SP1": 8, "SP9": 4}))
	e.stock("SP1", 8)
	if e.raw("stock:SP9") != "" {
		t.Fatal("a stock key was made")
	}
	e.lasts("stock:SP1", 2*time.Hour, 1000*time.Hour)
	if err := e.s.Repair(e.ctx, e.a.ID, a.Epoch, a.Seq, map[string]int64{"SP1": 1}); err == nil {
		t.Fatal("the sale has moved, and the repair is written")
	}
	e.stock("SP1", 8)
	if err := e.s.Repair(e.ctx, e.a.ID, a.Epoch, a.Seq, map[string]int64{"SP1": -1}); err == nil {
		t.Fatal("stock below zero is written")
	}
	epoch, seq := e.s.Position(e.a.ID)
	e.must(e.keys.SetField(e.ctx, e.key("meta"), "state", "rebuilding"))
	if err := e.s.Repair(e.ctx, e.a.ID, epoch, seq, map[string]int64{"SP1": 1}); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("repair during a rebuild: %v", err)
	}
	e.must(e.keys.SetField(e.ctx, e.key("meta"), "state", "live"))
	// Every script that changes the sale moves the position.
	for name, change := range map[string]func(){
		"reserve": func() { e.want(sale.ReserveAccepted) },
		"settle":  func() { e.settle(order(open), sale.SettleDone) },
		"return":  func() { e.giveBack(order(done), sale.StatusClosed, 2, sale.SettleDone) },
		"meta":    func() { e.must(e.s.SetMeta(e.ctx, &e.a)) },
		"list":    func() { e.must(e.s.SetUserList(e.ctx, e.a.ID, "blocked", 1, true)) },
	} {
		_, before := e.s.Position(e.a.ID)
		change()
		if _, after := e.s.Position(e.a.ID); after <= before {
			t.Errorf("%s: seq %d, then %d", name, before, after)
		}
	}
}
