package gateway

import (
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// readUsers is how many users the limiter remembers; the longest quiet one is forgotten first, which at worst gives
// that user a fresh second.
const readUsers = 100_000

// readLimiter limits each user's reads on this gateway. Reads move no stock, so it is local and costs Redis nothing.
type readLimiter struct {
	perSecond int
	now       func() time.Time
	users     *lru.Cache[int64, *rate.Limiter]
}

func newReadLimiter(perSecond int, now func() time.Time) (*readLimiter, error) {
	users, err := lru.New[int64, *rate.Limiter](readUsers)
	if err != nil {
		return nil, fmt.Errorf("read limiter: %w", err)
	}
	return &readLimiter{perSecond: perSecond, now: now, users: users}, nil
}

// allow takes one read, or says how long to wait for the next.
func (l *readLimiter) allow(user int64) (ok bool, retryAfter time.Duration) {
	lim, found := l.users.Get(user)
	if !found {
		lim = rate.NewLimiter(rate.Limit(l.perSecond), l.perSecond)
		if prev, was, _ := l.users.PeekOrAdd(user, lim); was {
			lim = prev
		}
	}
	now := l.now()
	res := lim.ReserveN(now, 1)
	if wait := res.DelayFrom(now); wait > 0 {
		res.CancelAt(now)
		return false, wait
	}
	return true, 0
}
