package sale

import "time"

// Snapshot is one consistent view of an activity in the database: what Redis is rebuilt from (R10, R11).
type Snapshot struct {
	Activity Activity        // with its items and their sold counts
	Entries  []SnapshotEntry // every order of the activity, then every refusal
	Blocked  []int64         // users who may not buy
	Eligible []int64         // users who may, where the activity has an allow-list
}

// SnapshotEntry is one decided token of a Snapshot.
type SnapshotEntry struct {
	Decision
	Returned int8      // stock_returned of an order: -1 not closed, 0 unit on its way back, 1 returned; -1 for a refusal
	At       time.Time // when it was decided
}

// Remaining is the stock that a rebuild writes for one item: total - sold - units on their way back (R11). An
// unknown item has none. It is negative while Overdrawn has work to do, or if the database contradicts stock_total.
func (s *Snapshot) Remaining(commodityID string) int64 {
	it := s.Activity.Item(commodityID)
	if it == nil {
		return 0
	}
	left := it.Total - it.Sold
	for i := range s.Entries {
		if s.Entries[i].Returned == 0 && s.Entries[i].CommodityID == commodityID {
			left -= int64(s.Entries[i].Quantity)
		}
	}
	return left
}

// Overdrawn settles returns that have nothing left to give: after a rewind Redis may have sold once more a unit that was
// on its way back, since the database had counted it as free. Such an order is noted as returned, so that its token is
// restored as released and its return answers already; else its unit would come back a second time.
func (s *Snapshot) Overdrawn() {
	for _, it := range s.Activity.Items {
		missing := -s.Remaining(it.CommodityID)
		for i := range s.Entries {
			if e := &s.Entries[i]; missing > 0 && e.Returned == 0 && e.CommodityID == it.CommodityID {
				e.Returned = 1
				missing -= int64(e.Quantity)
			}
		}
	}
}
