package sale

import "testing"

// R11: more units on their way back than there are: the return that has nothing to give does not come back.
func TestOverdrawnReturnsAreSettled(t *testing.T) {
	t.Parallel()
	entry := func(c string, returned int8, quantity int) SnapshotEntry {
		e := SnapshotEntry{Returned: returned}
		e.CommodityID, e.Quantity = c, quantity
		return e
	}
	s := Snapshot{
		Activity: Activity{Items: []Item{{CommodityID: "a", Total: 2, Sold: 1}, {CommodityID: "b", Total: 1}, {CommodityID: "c", Total: 3, Sold: 3}}},
		Entries: []SnapshotEntry{
			entry("a", -1, 1), entry("a", 0, 1), entry("a", 0, 1), entry("b", 0, 1), entry("c", 0, 2),
		},
	}
	s.Overdrawn()
	for c, want := range map[string]int64{"a": 0, "b": 0, "c": 0} {
		if got := s.Remaining(c); got != want {
			t.Errorf("%s: %d units remain, want %d", c, got, want)
		}
	}
	for i, want := range []int8{-1, 1, 0, 0, 1} {
		if s.Entries[i].Returned != want {
			t.Errorf("entry %d: returned %d, want %d", i, s.Entries[i].Returned, want)
		}
	}
}
