package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"seckill/internal/sale"
)

// seenRow is what a leader has seen of a sale in Redis.
type seenRow struct {
	sale.Sighting
	fence int64
}

// witness is Witness.
func (db *database) witness(fence int64, seen map[string]sale.Sighting) (behind []string, err error) {
	rows := map[string]seenRow{}
	for id := range seen {
		if !sale.ValidID(id) {
			return nil, sale.ErrBadID
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		now, before := seen[id], db.seen[id]
		again := now.Epoch == before.Epoch && now.Seq == before.Seq && before.fence != fence
		switch {
		case before.fence > fence:
			return nil, sale.ErrConflict
		case (now.Behind(before.Sighting) || again) && !db.bugs.Unwitnessed:
			behind = append(behind, id)
			continue
		case now.Server == "" && now.Epoch == before.Epoch:
			now.Server = before.Server
		}
		rows[id] = seenRow{now, fence}
	}
	maps.Copy(db.seen, rows)
	return behind, nil
}

func (db *database) acquireLease(name, holder string, ttl time.Duration) (int64, error) {
	if holder == "" || len(holder) > 128 || strings.ContainsFunc(holder, func(r rune) bool { return r < ' ' || r > '~' }) {
		return 0, sale.Errorf(sale.CodeInvalidRequest, "holder")
	}
	now := db.now()
	r := db.leases[name]
	switch {
	case r == nil:
		r = &leaseRow{fence: 1}
		db.leases[name] = r
	case r.expires.After(now) && r.holder != holder:
		return 0, sale.ErrConflict
	default:
		r.fence++
	}
	r.holder, r.expires = holder, now.Add(ttl)
	return r.fence, nil
}

func (db *database) updateLease(name, holder string, fence int64, renew bool, ttl time.Duration) error {
	r := db.leases[name]
	if r == nil || r.holder != holder || r.fence != fence || renew && !r.expires.After(db.now()) {
		return sale.ErrConflict
	}
	r.expires = time.Time{}
	if renew {
		r.expires = db.now().Add(ttl)
	}
	return nil
}
