package ledgertest

import (
	"errors"
	"slices"
	"testing"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

func rebuildTests(t *testing.T, open Open) {
	t.Run("R10 R17 epochs and fences", func(t *testing.T) { t.Parallel(); epochs(t, open) })
	t.Run("R10 R11 snapshot", func(t *testing.T) { t.Parallel(); snapshot(t, open) })
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
	must(t, s.L.MarkReturned(ctx(t), returned.Token, returned.UserID))
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
