package pusher

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/hub"
	"seckill/internal/sale"
)

// refusals knows which users were refused lately. Redis forgets that a refused user took part, so that they may try
// again; a refusal that was told while nobody listened is therefore in no state that is read on connect or after a new
// subscription. Its row in the database is, and it is read here, told to who is connected, and kept for who connects (S29).
type refusals struct {
	cfg    *Config
	states States
	ledger Ledger
	sales  func() []string
	hub    *hub.Hub
	now    func() time.Time
	log    *slog.Logger
	told   prometheus.Counter

	mu   sync.Mutex
	from time.Time                // what was decided before is known
	of   map[int64][]knownRefusal // by user
}

type knownRefusal struct {
	result sale.Result
	at     time.Time
}

// refusalOverlap is how long after its time stamp a refusal may appear: a transaction's deadline and what clocks differ by.
const refusalOverlap = 30 * time.Second

func newRefusals(cfg *Config, d *Deps, sales func() []string, h *hub.Hub, told prometheus.Counter) *refusals {
	return &refusals{
		cfg: cfg, states: d.States, ledger: d.Ledger, sales: sales, hub: h, now: d.Now, log: d.Log, told: told,
		of: make(map[int64][]knownRefusal),
	}
}

// run reads what is new until ctx ends, not more often than every twentieth part of its time.
func (r *refusals) run(ctx context.Context) {
	for {
		began := time.Now()
		if err := r.refresh(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("pusher: refusals", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(r.cfg.RefusalsEvery, 20*time.Since(began))):
		}
	}
}

// refresh reads the refusals since the last time and tells those that are new.
func (r *refusals) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
	defer cancel()
	now := r.now()
	r.mu.Lock()
	since := r.from
	r.mu.Unlock()
	if oldest := now.Add(-r.cfg.RefusalsFor); since.Before(oldest) {
		since = oldest
	}
	sales := r.sales()
	if len(sales) == 0 {
		return nil // or not known yet
	}
	ds, err := r.ledger.RecentRefusals(ctx, sales, since, r.cfg.MaxRefusalsRead)
	if err != nil {
		return fmt.Errorf("read refusals: %w", err)
	}
	fresh := r.keep(ds, now)
	if len(fresh) == 0 {
		return nil
	}
	return r.tell(ctx, fresh)
}

// keep notes refusals, drops the old ones, and returns those of connected users that were not known.
func (r *refusals) keep(ds []sale.Decision, now time.Time) (fresh map[int64][]sale.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = now.Add(-refusalOverlap)
	fresh = make(map[int64][]sale.Result)
	for i := range ds {
		res := ds[i].Result()
		user := ds[i].UserID
		if slices.ContainsFunc(r.of[user], func(k knownRefusal) bool { return k.result.RequestToken == res.RequestToken }) {
			continue
		}
		r.of[user] = append(r.of[user], knownRefusal{res, ds[i].At})
		if r.hub.Online(user) {
			fresh[user] = append(fresh[user], res)
		}
	}
	oldest := now.Add(-r.cfg.RefusalsFor)
	for user, list := range r.of {
		list = slices.DeleteFunc(list, func(k knownRefusal) bool { return k.at.Before(oldest) })
		if r.of[user] = list; len(list) == 0 {
			delete(r.of, user)
		}
	}
	return fresh
}

// tell delivers refusals, but not in a sale in which Redis knows something of the user: a later try, or the order that
// the refused request was a second one to. The hub leaves out what a socket has been told.
func (r *refusals) tell(ctx context.Context, fresh map[int64][]sale.Result) error {
	users := make([]int64, 0, len(fresh))
	for user := range fresh {
		users = append(users, user)
	}
	for some := range slices.Chunk(users, r.cfg.ReadBatch) {
		rs, err := r.states.ResultsOfUsers(ctx, r.sales(), some)
		if err != nil {
			r.forget(users) // and read them again
			return fmt.Errorf("read states of refused users: %w", err)
		}
		known := make(map[int64][]sale.Result, len(rs))
		for i := range rs {
			known[rs[i].UserID] = append(known[rs[i].UserID], rs[i].Result)
		}
		at := time.Now().UnixNano()
		for _, user := range some {
			for i := range fresh[user] {
				if !inSale(known[user], fresh[user][i].ActivityID) {
					r.told.Add(float64(r.hub.Restate(user, messageOf(&fresh[user][i], at))))
				}
			}
		}
	}
	return nil
}

func (r *refusals) forget(users []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, user := range users {
		delete(r.of, user)
	}
	r.from = time.Time{}
}

// add adds what is known of a user to the results that Redis and the order tables have, by the rule of tell.
func (r *refusals) add(user int64, results []sale.Result) []sale.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := results
	for _, k := range r.of[user] {
		if !inSale(results, k.result.ActivityID) {
			found = append(found, k.result)
		}
	}
	return found
}

func inSale(rs []sale.Result, activityID string) bool {
	return slices.ContainsFunc(rs, func(res sale.Result) bool { return res.ActivityID == activityID })
}
