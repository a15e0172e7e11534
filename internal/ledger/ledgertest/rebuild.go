package ledgertest

import (
	"errors"
	"slices"
	"testing"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

func rebuildTests(t *testing.T, s *suite) {
	s.each(t, map[string]func(*testing.T, Open){
		"R10 R17 epochs and fences":     epochs,
		"R10 R11 late mark of a return": lateMark,
		"R15 witness":                   witness,
		"R10 R11 snapshot":              snapshot,
	})
}

func epochs(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	for want := int64(1); want <= 3; want++ {
		if got, err := s.L.RaiseEpoch(ctx(t), s.A.ID, 5); err != nil || got != want {
			t.Fatalf("epoch %d, %v, want %d", got, err, want)
		}
	}
	if _, err := s.L.RaiseEpoch(ctx(t), s.A.ID, 4); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("a leader that was replaced: %v, want ErrConflict", err)
	}
	if _, err := s.L.RaiseEpoch(ctx(t), "no-such-id", 9); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("unknown activity: %v", err)
	}
	must(t, s.L.SaveBoundary(ctx(t), s.A.ID, 3, map[int]int64{0: 5, 1: 6}))
	must(t, s.L.SaveBoundary(ctx(t), s.A.ID, 3, map[int]int64{0: 7})) // a repeat replaces
	must(t, s.L.SaveBoundary(ctx(t), s.A.ID, 3, nil))                 // an empty topic has a boundary too
	if err := s.L.SaveBoundary(ctx(t), s.A.ID, 2, map[int]int64{0: 5}); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("boundary of an epoch that is over: %v, want ErrConflict", err)
	}
	if err := s.L.SaveBoundary(ctx(t), "no-such-id", 1, nil); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("unknown activity: %v", err)
	}
	m := s.message(s.user())
	m.Epoch, m.Offset = 2, 0
	if d := s.commit(m)[0]; d.Reason != sale.ReasonExpired {
		t.Fatalf("old epoch, empty boundary: %+v", d)
	}
	a, err := s.L.Activity(ctx(t), s.A.ID)
	must(t, err)
	if a.Epoch != 3 {
		t.Fatalf("epoch %d is told, want 3", a.Epoch)
	}
}

// A return that Redis answered before a rebuild and that is recorded after it: the rebuilt sale counts the unit as still
// to come, so the record must wait for its answer.
func lateMark(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	first, err := s.L.RaiseEpoch(ctx(t), s.A.ID, 1)
	must(t, err)
	m := s.message(s.user())
	m.Epoch = first
	d := s.buy(m)
	_, _, err = s.L.Cancel(ctx(t), d.OrderNo, m.UserID)
	must(t, err)
	second, err := s.L.RaiseEpoch(ctx(t), s.A.ID, 1)
	must(t, err)
	for _, epoch := range []int64{first, second + 1, 0} {
		if err := s.L.MarkReturned(ctx(t), m.Token, m.UserID, epoch); !errors.Is(err, sale.ErrConflict) {
			t.Fatalf("mark of epoch %d while %d is the activity's: %v, want ErrConflict", epoch, second, err)
		}
	}
	if b := s.balanced()[0]; b.Returning != 1 {
		t.Fatalf("returning %d units, want 1", b.Returning)
	}
	must(t, s.L.MarkReturned(ctx(t), m.Token, m.UserID, second))
	if err := s.L.MarkReturned(ctx(t), m.Token, m.UserID, second); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("a repeat: %v, want ErrConflict", err)
	}
	if b := s.balanced()[0]; b.Returning != 0 {
		t.Fatalf("returning %d units, want 0", b.Returning)
	}
}

// What leaders have seen of Redis is kept, and what falls behind it is told until a higher epoch comes.
func witness(t *testing.T, open Open) {
	l := open(t, nil)
	a, b := "W-"+randomText(10), "W-"+randomText(10)
	see := func(fence int64, s sale.Sighting, want ...string) {
		t.Helper()
		behind, err := l.Witness(ctx(t), fence, map[string]sale.Sighting{a: s, b: {Epoch: 1, Seq: s.Seq}})
		must(t, err)
		if !slices.Equal(behind, want) {
			t.Fatalf("leader %d sees %+v: behind %q, want %q", fence, s, behind, want)
		}
	}
	at := func(epoch, seq int64, server string) sale.Sighting {
		return sale.Sighting{Epoch: epoch, Seq: seq, Server: server}
	}
	see(3, at(2, 5, "r1"))
	see(3, at(2, 5, "r1")) // a repeat after an unknown outcome
	see(3, at(2, 6, "r1"))
	for range 2 {
		see(3, at(2, 7, "r2"), a)
	}
	see(3, at(2, 8, "r1"))
	see(3, at(2, 9, "")) // does not tell
	see(3, at(2, 10, "r3"), a)
	see(4, at(2, 11, "r1"))
	see(4, at(1, 12, "r1"), a)
	see(4, at(3, 13, "r9")) // rebuilt
	_, err := l.Witness(ctx(t), 3, map[string]sale.Sighting{a: at(3, 14, "r9")})
	if !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("a leader that was replaced: %v, want ErrConflict", err)
	}
	// b goes back in the same epoch, once below the record and once to the very number.
	for seq, fence := range map[int64]int64{12: 4, 13: 5} {
		behind, err := l.Witness(ctx(t), fence, map[string]sale.Sighting{b: at(1, seq, "")})
		if err != nil || !slices.Equal(behind, []string{b}) {
			t.Errorf("leader %d sees number %d after 13 of leader 4: behind %q, %v", fence, seq, behind, err)
		}
	}
	if behind, err := l.Witness(ctx(t), 1, nil); err != nil || behind != nil {
		t.Errorf("nothing seen: %q, %v", behind, err)
	}
	if _, err := l.Witness(ctx(t), 9, map[string]sale.Sighting{"bad id": {}}); !errors.Is(err, sale.ErrBadID) {
		t.Errorf("bad id: %v", err)
	}
}

func snapshot(t *testing.T, open Open) {
	s := newShop(t, open, nil, 20, 5)
	paid, cancelled, returned, plain := s.message(s.user()), s.message(s.user()), s.message(s.user()), s.message(s.user())
	cancelled.Quantity, returned.Quantity = 3, 2
	bad, again := s.message(s.user()), s.message(plain.UserID)
	bad.CommodityID, bad.Quantity = "C1", 99
	out := s.commit(paid, cancelled, returned, plain, bad, again)
	_, _, err := s.L.Pay(ctx(t), out[0].OrderNo, paid.UserID, start(), "test")
	must(t, err)
	for i := 1; i <= 2; i++ {
		_, _, err = s.L.Cancel(ctx(t), out[i].OrderNo, out[i].UserID)
		must(t, err)
	}
	must(t, s.L.MarkReturned(ctx(t), returned.Token, returned.UserID, 0))
	must(t, s.L.SetUserList(ctx(t), s.A.ID, ledger.ListBlocked, 77, true))
	must(t, s.L.SetUserList(ctx(t), s.A.ID, ledger.ListEligible, 88, true))

	snap, err := s.L.RebuildSnapshot(ctx(t), s.A.ID)
	must(t, err)
	if len(snap.Entries) != 6 || !slices.Equal(snap.Blocked, []int64{77}) || !slices.Equal(snap.Eligible, []int64{88}) || len(snap.Activity.Items) != 2 {
		t.Fatalf("snapshot: %+v", snap)
	}
	by := map[string]sale.SnapshotEntry{}
	for _, e := range snap.Entries {
		by[e.Token] = e
	}
	for name, c := range map[string]struct {
		m        sale.Pending
		status   sale.Status
		reason   sale.Reason
		version  int64
		returned int8
		ordered  bool
	}{
		"paid":      {paid, sale.StatusPaid, "", 2, -1, true},
		"cancelled": {cancelled, sale.StatusCancelled, sale.ReasonUser, 2, 0, true},
		"returned":  {returned, sale.StatusCancelled, sale.ReasonUser, 2, 1, true},
		"plain":     {plain, sale.StatusPendingPayment, "", 1, -1, true},
		"bad":       {bad, sale.StatusFailed, sale.ReasonInvalid, 1, -1, false},
		"again":     {again, sale.StatusFailed, sale.ReasonParticipated, 1, -1, false},
	} {
		e := by[c.m.Token]
		if e.Status != c.status || e.Reason != c.reason || e.Version != c.version || e.Returned != c.returned || e.Ordered != c.ordered ||
			e.UserID != c.m.UserID || e.CommodityID != c.m.CommodityID || e.Quantity != c.m.Quantity || e.At.IsZero() {
			t.Errorf("%s: %+v", name, e)
		}
	}
	// 20 units: 2 sold (paid, plain), 3 on their way back, 2 back (R11).
	if got := snap.Remaining("C0"); got != 15 {
		t.Errorf("remaining %d of C0, want 20 - 2 sold - 3 returning = 15", got)
	}
	if snap.Remaining("C1") != 5 || snap.Remaining("C9") != 0 {
		t.Errorf("remaining %d of C1, %d of C9", snap.Remaining("C1"), snap.Remaining("C9"))
	}
	if b := s.balanced()[0]; b.Returning != 3 {
		t.Errorf("returning %d, want 3", b.Returning)
	}
	if _, err := s.L.RebuildSnapshot(ctx(t), "no-such-id"); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("unknown activity: %v", err)
	}
}
