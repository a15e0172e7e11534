package gateway

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/expirable"

	"seckill/internal/sale"
)

// entry is one activity as this gateway knows it: what the database holds, and what Redis said last.
type entry struct {
	sale.Activity
	live   sale.Live
	known  bool  // live has been read since the activity was loaded
	queued int64 // reservations that are not decided yet, as last counted
}

// state is what a client is told.
func (e *entry) state(now time.Time) sale.State {
	s := e.StateAt(now)
	if (s == sale.StateScheduled || s == sale.StateOpen) && (!e.known || e.live.State == sale.StateNotReady) {
		return sale.StateNotReady
	}
	return s
}

// catalog is the local cache of activities. It is refreshed on a timer, so requests never wait for it; only an
// activity it does not know yet is read at once.
type catalog struct {
	ledger   Ledger
	stock    Stock
	now      func() time.Time
	timeout  time.Duration
	all      atomic.Pointer[map[string]*entry]
	mu       sync.Mutex // serialises changes of all
	unknown  *lru.LRU[string, struct{}]
	onChange func(*entry) // told of every refreshed entry
}

func newCatalog(l Ledger, s Stock, now func() time.Time, timeout time.Duration, onChange func(*entry)) *catalog {
	c := &catalog{
		ledger: l, stock: s, now: now, timeout: timeout, onChange: onChange,
		// Ids that do not exist are remembered for a second, so that asking for them costs the database nothing.
		unknown: lru.NewLRU[string, struct{}](10_000, nil, time.Second),
	}
	c.all.Store(&map[string]*entry{})
	return c
}

// run refreshes until ctx ends.
func (c *catalog) run(ctx context.Context, refresh, reload, count time.Duration, onError func(error)) {
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	var loaded, counted time.Time
	for {
		if c.now().Sub(counted) >= count {
			counted = c.now()
			if err := c.count(ctx); err != nil && ctx.Err() == nil {
				onError(err)
			}
		}
		if c.now().Sub(loaded) >= reload {
			loaded = c.now()
			if err := c.reload(ctx); err != nil && ctx.Err() == nil {
				onError(err)
			}
		} else if err := c.refresh(ctx); err != nil && ctx.Err() == nil {
			onError(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reload reads the activities from the database, then their live state.
func (c *catalog) reload(ctx context.Context) error {
	rctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.ledger.Activities(rctx)
	if err != nil {
		return fmt.Errorf("reload activities: %w", err)
	}
	c.mu.Lock()
	old := *c.all.Load()
	next := make(map[string]*entry, len(list))
	for _, a := range list {
		e := &entry{Activity: *a}
		if o, ok := old[a.ID]; ok {
			e.live, e.known, e.queued = o.live, o.known, o.queued
		}
		next[a.ID] = e
	}
	c.all.Store(&next)
	c.mu.Unlock()
	return c.refresh(ctx)
}

// refresh reads state and stock of the activities that are warmed up and not long over.
func (c *catalog) refresh(ctx context.Context) error {
	now := c.now()
	var ids []string
	for id, e := range *c.all.Load() {
		if e.State != sale.StateDraft && e.State != sale.StateSettled && now.Before(e.KeysUntil(0)) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	lives, err := c.stock.Live(ctx, ids)
	if err != nil {
		return fmt.Errorf("refresh stock: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[string]*entry, len(*c.all.Load()))
	for id, e := range *c.all.Load() {
		if live, ok := lives[id]; ok {
			fresh := *e
			fresh.live, fresh.known = live, true
			e = &fresh
			c.onChange(e)
		}
		next[id] = e
	}
	c.all.Store(&next)
	return nil
}

// count reads how many reservations of each open sale wait for their decision.
func (c *catalog) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	now := c.now()
	queued := map[string]int64{}
	for id, e := range *c.all.Load() {
		if e.StateAt(now) != sale.StateOpen {
			continue
		}
		n, err := c.stock.TokenCounts(ctx, id)
		if err != nil {
			return fmt.Errorf("count reservations: %w", err)
		}
		queued[id] = n.Occupied
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[string]*entry, len(*c.all.Load()))
	for id, e := range *c.all.Load() {
		if e.queued != queued[id] {
			fresh := *e
			fresh.queued = queued[id]
			e = &fresh
		}
		next[id] = e
	}
	c.all.Store(&next)
	return nil
}

// queuedOf is how many reservations of a sale wait for their decision, as last counted.
func (c *catalog) queuedOf(activityID string) int64 {
	if e, ok := (*c.all.Load())[activityID]; ok {
		return e.queued
	}
	return 0
}

// get returns an activity, from the database if it is new here, or sale.ErrNotFound.
func (c *catalog) get(ctx context.Context, id string) (*entry, error) {
	if e, ok := (*c.all.Load())[id]; ok {
		return e, nil
	}
	if _, no := c.unknown.Get(id); no || !sale.ValidID(id) {
		return nil, sale.ErrNotFound
	}
	return c.fetch(ctx, id)
}

// fetch reads one activity from the database and Redis, whatever the cache holds.
func (c *catalog) fetch(ctx context.Context, id string) (*entry, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	a, err := c.ledger.Activity(ctx, id)
	if errors.Is(err, sale.ErrNotFound) {
		c.unknown.Add(id, struct{}{})
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("read activity: %w", err)
	}
	e := &entry{Activity: *a, queued: c.queuedOf(id)}
	if lives, err := c.stock.Live(ctx, []string{id}); err == nil {
		e.live, e.known = lives[id], true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[string]*entry, len(*c.all.Load())+1)
	for k, v := range *c.all.Load() {
		next[k] = v
	}
	next[id] = e
	c.all.Store(&next)
	c.onChange(e)
	return e, nil
}

// list returns the activities, the one that starts or started last first.
func (c *catalog) list() []*entry {
	all := *c.all.Load()
	out := make([]*entry, 0, len(all))
	for _, e := range all {
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool {
		if !out[i].StartsAt.Equal(out[j].StartsAt) {
			return out[i].StartsAt.After(out[j].StartsAt)
		}
		return out[i].ID < out[j].ID
	})
	return out
}
