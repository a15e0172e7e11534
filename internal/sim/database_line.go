package sim

import (
	"cmp"
	"slices"
	"time"

	"seckill/internal/sale"
)

func (db *database) joinWaitlist(activityID, commodity string, user int64) (time.Time, error) {
	key := waitKey{activityID, commodity, user}
	r := db.waits[key]
	switch {
	case r != nil && r.state == "waiting":
		return r.joined, sale.ErrExists
	case r != nil && r.state == "promoted":
		return time.Time{}, sale.ErrWrongState
	}
	at := db.ms()
	if r != nil && !at.After(r.joined) {
		at = r.joined.Add(time.Millisecond)
	}
	db.waits[key] = &waitRow{state: "waiting", joined: at}
	return at, nil
}

// notWaiting is NotWaiting.
func (db *database) notWaiting(activityID, commodity string, ws []sale.Waiter) (gone []sale.Waiter) {
	for _, w := range ws {
		r := db.waits[waitKey{activityID, commodity, w.UserID}]
		if r == nil || r.state != "waiting" || db.byUser[userKey{activityID, w.UserID}] != nil {
			gone = append(gone, w)
		}
	}
	return gone
}

// waiters lists who waits, by commodity and in line.
func (db *database) waiters(activityID string) (list []sale.Waiter) {
	for k, r := range db.waits {
		if k.activityID == activityID && r.state == "waiting" {
			list = append(list, sale.Waiter{ActivityID: activityID, CommodityID: k.commodityID, UserID: k.user, JoinedAt: r.joined})
		}
	}
	slices.SortFunc(list, func(a, b sale.Waiter) int {
		return cmp.Or(cmp.Compare(a.CommodityID, b.CommodityID), a.JoinedAt.Compare(b.JoinedAt), cmp.Compare(a.UserID, b.UserID))
	})
	return list
}
