package sim

import (
	"time"

	"seckill/internal/sale"
)

func (db *database) acquireLease(name, holder string, ttl time.Duration) (int64, error) {
	now := db.now()
	r := db.leases[name]
	switch {
	case r == nil:
		r = &leaseRow{fence: 1}
		db.leases[name] = r
	case r.expires.After(now) && r.holder != holder:
		return 0, sale.ErrConflict
	case !r.expires.After(now):
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
