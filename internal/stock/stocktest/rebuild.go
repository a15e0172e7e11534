package stocktest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"seckill/internal/sale"
	"seckill/internal/stock"
)

func testRebuild(t *testing.T, b Backend) {
	b.each(t, "Rebuild", []namedTest{
		{name: "FollowsTheSnapshot_S26_R10_R11", run: followsSnapshot},
		{name: "OldDataIsGone_R10", run: oldDataIsGone},
		{name: "OnlyThisEpochOpens_R10", run: onlyThisEpochOpens},
		{name: "HigherVersionStays_R10", run: higherVersionStays},
		{name: "ReplacedLeaderRemovesNothing_R17", run: replacedLeader},
		{name: "LargeSnapshot", run: largeSnapshot},
		{name: "RewindIsNoticed_R15_FS014", run: rewindIsNoticed},
		{name: "NoFalseRewind_R15", run: noFalseRewind},
		{name: "MetaFollowsTheEpoch_R17", run: metaFollowsEpoch},
		{name: "PurgeTouchesNoOtherSale_S27", run: purgeTouchesNoOther},
		{name: "RetentionPassed", run: retentionPassed},
	})
}

// entry is a decided token of a snapshot.
func (e *env) entry(token string, ordered bool, st sale.Status, version int64, returned int8) sale.SnapshotEntry {
	r := sale.Reservation{
		Token: token, UserID: e.user(), ActivityID: e.a.ID, CommodityID: "SP1", Price: e.a.Items[0].Price, Quantity: 1,
		Epoch: e.a.Epoch, At: e.now,
	}
	d := refusal(r, sale.ReasonInvalid)
	if ordered {
		d = order(r)
	}
	d.Status, d.Version = st, version
	return sale.SnapshotEntry{Decision: d, Returned: returned, At: e.now}
}

func followsSnapshot(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.a.Epoch, e.a.AllowList = 2, true
	e.a.Items[0].Total, e.a.Items[0].Sold = 10, 2 // pending and paid; the others no longer count as sold
	snap := sale.Snapshot{
		Entries: []sale.SnapshotEntry{
			e.entry("pending", true, sale.StatusPendingPayment, 1, -1),
			e.entry("paid", true, sale.StatusPaid, 2, -1),
			e.entry("closing", true, sale.StatusClosed, 2, 0),      // its unit is on the way back
			e.entry("cancelled", true, sale.StatusCancelled, 2, 1), // its unit is back
			e.entry("failed", false, sale.StatusFailed, 1, -1),
		},
	}
	banned, guest := e.user(), e.user()
	snap.Blocked, snap.Eligible = []int64{banned}, []int64{guest, banned}
	e.warmUp(snap)

	e.checkLifetimes(e.a.KeysUntil(24 * time.Hour))
	e.stock("SP1", 7) // 10 - 2 sold - 1 on its way back
	e.stock("SP2", 5)
	for token, state := range map[string]string{
		"pending": "committed", "paid": "committed", "closing": "committed", "cancelled": "released", "failed": "released",
	} {
		e.field(token, "state", state)
	}
	for i := range snap.Entries {
		en := &snap.Entries[i]
		got, ok, err := e.s.Result(e.ctx, e.a.ID, en.Token)
		e.must(err)
		if !ok || got.UserID != en.UserID || got.Result != en.Result() {
			t.Errorf("%s: %+v, want %+v", en.Token, got, en.Result())
		}
		mark := ""
		if en.Ordered {
			mark = en.Token
		}
		e.takesPart(en.UserID, mark)
	}
	e.outcome(e.reserve(banned, "b", "SP1", 1), sale.ReserveBlocked)
	e.want(sale.ReserveNotEligible)
	r := e.reserve(guest, "g", "SP1", 1)
	e.outcome(r, sale.ReserveAccepted)
	if r.Reservation.Epoch != 2 {
		t.Fatalf("epoch %d", r.Reservation.Epoch)
	}
	e.giveBack(snap.Entries[2].Decision, sale.StatusClosed, 2, sale.SettleDone)
	e.giveBack(snap.Entries[3].Decision, sale.StatusCancelled, 2, sale.SettleAlready)
	e.stock("SP1", 7)
}

func oldDataIsGone(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.accepted()
	e.must(e.s.SetUserList(e.ctx, e.a.ID, "blocked", 77, true))
	e.must(e.keys.PutFirst(e.ctx, e.key("waitlist:SP1"), "5"))
	e.a.Epoch = 2
	e.must(e.s.BeginRebuild(e.ctx, e.a, 2))
	names := e.allKeys()
	if len(names) != 1 || names[0] != e.key("meta") {
		t.Fatalf("left after the wipe: %v", names)
	}
	e.checkLifetimes(e.a.KeysUntil(24 * time.Hour))
	live, err := e.s.Live(e.ctx, []string{e.a.ID})
	e.must(err)
	if l := live[e.a.ID]; l.State != sale.StateNotReady || l.Epoch != 2 {
		t.Fatalf("live %+v", l)
	}
	e.must(e.s.BeginRebuild(e.ctx, e.a, 2)) // again, after a lost reply
	e.must(e.s.FinishRebuild(e.ctx, &sale.Snapshot{Activity: e.a}, 2))
	e.stock("SP1", 10)
	e.takesPart(r.UserID, "")
	e.outbox(0)
	e.outcome(e.reserve(r.UserID, r.Token, "SP1", 1), sale.ReserveAccepted)
}

func onlyThisEpochOpens(t *testing.T, b Backend) {
	e := newEnv(t, b)
	conflict := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, sale.ErrConflict) {
			t.Fatalf("%s: %v, want a conflict", what, err)
		}
	}
	snap := func() *sale.Snapshot {
		return &sale.Snapshot{Activity: e.a, Blocked: []int64{1}, Entries: []sale.SnapshotEntry{e.entry("s", true, sale.StatusPaid, 2, -1)}}
	}
	conflict("begin the epoch that is open", e.s.BeginRebuild(e.ctx, e.a, 1))
	conflict("finish without begin", e.s.FinishRebuild(e.ctx, snap(), 2))
	e.must(e.s.BeginRebuild(e.ctx, e.a, 3))
	conflict("begin an older epoch", e.s.BeginRebuild(e.ctx, e.a, 2))
	conflict("finish an older epoch", e.s.FinishRebuild(e.ctx, snap(), 2))
	conflict("open an older epoch", e.s.FinishRebuild(e.ctx, &sale.Snapshot{Activity: e.a}, 2))
	if names := e.allKeys(); len(names) != 1 {
		t.Fatalf("a lost rebuild wrote %v", names)
	}
	e.want(sale.ReserveNotReady)
	if err := e.s.SetUserList(e.ctx, e.a.ID, "blocked", 5, true); !errors.Is(err, sale.ErrNotReady) {
		t.Fatalf("list while rebuilding: %v", err)
	}
	e.a.Epoch = 3
	if err := e.s.SetMeta(e.ctx, &e.a); !errors.Is(err, sale.ErrNotReady) {
		t.Fatalf("meta while rebuilding: %v", err)
	}
	e.must(e.s.FinishRebuild(e.ctx, snap(), 3))
	conflict("open an older epoch", e.s.FinishRebuild(e.ctx, &sale.Snapshot{Activity: e.a}, 2))
	conflict("begin once more", e.s.BeginRebuild(e.ctx, e.a, 3))
	again := snap()
	d := order(e.accepted())
	e.settle(d, sale.SettleDone)
	e.giveBack(d, sale.StatusClosed, 2, sale.SettleDone)
	again.Entries[0].Decision, again.Blocked = d, []int64{55}
	conflict("finish what is open", e.s.FinishRebuild(e.ctx, again, 3))
	e.field(d.Token, "state", "released")
	e.stock("SP1", 10)
	if blocked, err := e.keys.Set(e.ctx, e.key("blocked")); err != nil || slices.Contains(blocked, "55") {
		t.Fatal("a late rebuild changed a list")
	}
	e.lose("meta")
	conflict("finish without meta", e.s.FinishRebuild(e.ctx, snap(), 3))
	if err := e.s.SetMeta(e.ctx, &e.a); !errors.Is(err, sale.ErrNotReady) {
		t.Fatalf("meta without meta: %v", err)
	}
}

// A payment and a settle between the snapshot and its writing are newer, and stay.
func higherVersionStays(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.a.Epoch, e.a.Items[0].Sold = 2, 2
	paid, same := e.entry("paid", true, sale.StatusPendingPayment, 1, -1), e.entry("same", true, sale.StatusPendingPayment, 1, -1)
	e.must(e.s.BeginRebuild(e.ctx, e.a, 2))
	now := paid.Result()
	now.Status, now.Version = sale.StatusPaid, 2
	_, err := e.s.SetStatus(e.ctx, []sale.UserResult{{UserID: paid.UserID, Result: now}, {UserID: same.UserID, Result: same.Result()}})
	e.must(err)
	e.must(e.s.FinishRebuild(e.ctx, &sale.Snapshot{Activity: e.a, Entries: []sale.SnapshotEntry{paid, same}}, 2))
	for token, status := range map[string]string{"paid": "paid", "same": "pending_payment"} {
		e.field(token, "status", status)
		e.field(token, "state", "committed")
		e.field(token, "price", "99.00")
	}
	e.stock("SP1", 8)
	if e.s.Rewound(e.a.ID) {
		t.Fatal("a rebuild counts as a rewind")
	}
}

// A leader that was replaced while it walked through the keys finds the sale of its successor, and leaves it alone.
func replacedLeader(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.accepted()
	came := false
	s := b.OpenSlow(t, e.o, func() {
		came = true
		e.a.Epoch = 3
		e.warmUp(sale.Snapshot{})
		e.accepted()
	})
	a := e.a
	a.Epoch = 2
	if err := s.BeginRebuild(e.ctx, a, 2); !errors.Is(err, sale.ErrConflict) || errors.Is(err, sale.ErrUncertain) {
		t.Fatalf("%v", err)
	}
	if !came {
		t.Fatal("nobody came between")
	}
	e.stock("SP1", 9)
	e.outbox(1)
	e.want(sale.ReserveAccepted)
}

func largeSnapshot(t *testing.T, b Backend) {
	e := newEnv(t, b)
	const n = 1000
	e.a.Epoch, e.a.Items[0].Total, e.a.Items[0].Sold = 2, 2*n, n
	snap := sale.Snapshot{Activity: e.a}
	for i := range n {
		snap.Entries = append(snap.Entries, e.entry(fmt.Sprint("big", i), true, sale.StatusPaid, 2, -1))
		snap.Blocked = append(snap.Blocked, int64(i+1))
	}
	e.warmUp(snap)
	e.stock("SP1", n)
	users, err := e.s.ParticipantsOf(e.ctx, e.a.ID)
	e.must(err)
	if len(users) != n {
		t.Fatalf("%d participants", len(users))
	}
	blocked, err := e.keys.Set(e.ctx, e.key("blocked"))
	e.must(err)
	if len(blocked) != n {
		t.Fatalf("%d blocked", len(blocked))
	}
	for i := range 3 {
		e.outcome(e.reserve(int64(i+1), "x", "SP1", 1), sale.ReserveBlocked)
	}
	e.outcome(e.reserve(snap.Entries[n-1].UserID, "x", "SP1", 1), sale.ReserveParticipated)
}

// FS-014: Redis goes back to an older state; every way of looking shows it.
func rewindIsNoticed(t *testing.T, b Backend) {
	for name, look := range map[string]func(e *env){
		"reserve": func(e *env) { e.reserve(e.user(), fmt.Sprint("l", e.users), "SP1", 1) },
		"settle": func(e *env) {
			lost := sale.Reservation{Token: fmt.Sprint("none", e.user()), UserID: 9, Epoch: 0}
			e.settle(refusal(lost, sale.ReasonInvalid), sale.SettleUnknown)
		},
		"return": func(e *env) {
			e.giveBack(sale.Decision{Reservation: sale.Reservation{Token: "none", CommodityID: "SP1"}}, "closed", 2, sale.SettleNotYet)
		},
		"live":   func(e *env) { _, err := e.s.Live(e.ctx, []string{e.a.ID}); e.must(err) },
		"seq":    func(e *env) { _, _, err := e.s.RaiseSeq(e.ctx, e.a.ID); e.must(err) },
		"audit":  func(e *env) { _, err := e.s.Audit(e.ctx, e.a.ID, nil, nil); e.must(err) },
		"counts": func(e *env) { _, err := e.s.TokenCounts(e.ctx, e.a.ID); e.must(err) },
	} {
		for _, loss := range []string{"seq", "epoch", "meta"} {
			told := 0
			e := newEnv(t, b, func(e *env) { e.a.Epoch = 4; e.o.OnRewind = func(string) { told++ } })
			for range 5 {
				e.want(sale.ReserveAccepted)
			}
			switch loss {
			case "seq":
				e.must(e.keys.SetField(e.ctx, e.key("meta"), "seq", "1"))
			case "epoch":
				e.must(e.keys.SetField(e.ctx, e.key("meta"), "epoch", "3"))
			case "meta":
				e.lose("meta")
			}
			look(e)
			look(e)
			if !e.s.Rewound(e.a.ID) || told != 1 {
				t.Errorf("%s after loss of %s: rewound %v, told %d times", name, loss, e.s.Rewound(e.a.ID), told)
			}
			e.a.Epoch = 5
			e.warmUp(sale.Snapshot{})
			if e.s.Rewound(e.a.ID) {
				t.Errorf("%s after loss of %s: still rewound after the rebuild", name, loss)
			}
		}
	}
}

// Answers that overtake one another are no rewind.
func noFalseRewind(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = 10_000 })
	done := make(chan error)
	for w := range int64(8) {
		go func() {
			for i := range int64(100) {
				u := (w+1)*1_000_000 + i
				if _, err := e.s.Reserve(e.ctx, e.a.ID, e.now, []sale.ReserveRequest{{Token: fmt.Sprint("n", u), UserID: u, CommodityID: "SP1", Quantity: 1}}); err != nil {
					done <- err
					return
				}
				if _, err := e.s.TokenCounts(e.ctx, e.a.ID); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		e.must(<-done)
	}
	if e.s.Rewound(e.a.ID) {
		t.Fatal("rewound")
	}
	epoch, seq := e.s.Position(e.a.ID)
	counts, err := e.s.TokenCounts(e.ctx, e.a.ID)
	e.must(err)
	if epoch != 1 || seq != counts.Seq || counts.Occupied != 800 || counts.Participants != 800 {
		t.Fatalf("position %d, %d; counts %+v", epoch, seq, counts)
	}
}

func metaFollowsEpoch(t *testing.T, b Backend) {
	e := newEnv(t, b)
	old := e.a
	e.a.Epoch = 2
	e.warmUp(sale.Snapshot{})
	old.State = sale.StatePaused
	if err := e.s.SetMeta(e.ctx, &old); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("an old epoch's meta: %v", err)
	}
	e.want(sale.ReserveAccepted)
}

func purgeTouchesNoOther(t *testing.T, b Backend) {
	e := newEnv(t, b)
	near := newEnv(t, b, func(n *env) { n.a.ID = e.a.ID + "x" })
	e.want(sale.ReserveAccepted)
	near.want(sale.ReserveAccepted)
	e.spoil("from-a-later-version", "1")
	e.must(e.s.Purge(e.ctx, e.a.ID))
	if names := e.allKeys(); len(names) != 0 {
		t.Fatalf("left: %v", names)
	}
	near.stock("SP1", 9)
	near.want(sale.ReserveAccepted)
	e.must(e.s.Purge(e.ctx, e.a.ID))
	near.must(near.s.Purge(near.ctx, near.a.ID))
}

func retentionPassed(t *testing.T, b Backend) {
	e := newEnv(t, b)
	s := b.Open(stock.Options{Now: func() time.Time { return e.now.Add(48 * time.Hour) }})
	if err := s.BeginRebuild(e.ctx, e.a, 9); !errors.Is(err, sale.ErrWrongState) {
		t.Fatalf("a rebuild of keys that are gone for good: %v", err)
	}
	e.want(sale.ReserveAccepted)
}
