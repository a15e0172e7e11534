package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"seckill/internal/sale"
)

// maxUnknown bounds how many ids that do not exist are remembered, each for a second.
const maxUnknown = 10_000

// catalog is the local cache of activities: which exist, and whose results are told. It is refreshed on a timer; only an
// activity that it does not know is read at once.
type catalog struct {
	ledger    Ledger
	now       func() time.Time
	timeout   time.Duration
	retention time.Duration
	maxSales  int

	mu      sync.Mutex
	ok      bool // the list was read at least once
	known   map[string]*sale.Activity
	active  []string             // ids of those whose results are told, the latest first
	unknown map[string]time.Time // until when an id counts as not existing
}

func newCatalog(cfg *Config, l Ledger, now func() time.Time) *catalog {
	return &catalog{
		ledger: l, now: now, timeout: cfg.StoreTimeout, retention: cfg.ResultsFor, maxSales: cfg.MaxSales,
		known: make(map[string]*sale.Activity), unknown: make(map[string]time.Time),
	}
}

// reload reads the list of activities.
func (c *catalog) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.ledger.Activities(ctx)
	if err != nil {
		return fmt.Errorf("reload activities: %w", err)
	}
	known := make(map[string]*sale.Activity, len(list))
	for _, a := range list {
		known[a.ID] = a
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.ok = known, true
	c.sort()
	return nil
}

// loaded reports whether the list of activities is known.
func (c *catalog) loaded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ok
}

// sort lists the active sales anew. The lock is held.
func (c *catalog) sort() {
	now := c.now()
	var list []*sale.Activity
	for _, a := range c.known {
		// Drafts too: one that was warmed up a moment ago is still a draft here.
		if now.Before(a.KeysUntil(c.retention)) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b *sale.Activity) int { return b.StartsAt.Compare(a.StartsAt) })
	list = list[:min(len(list), c.maxSales)]
	c.active = make([]string, len(list))
	for i, a := range list {
		c.active[i] = a.ID
	}
}

// sales are the ids of the sales whose results are told. The slice is not to be changed.
func (c *catalog) sales() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}

// state is the state of an activity by database and clock. One that is not known here is taken for a draft.
func (c *catalog) state(id string) sale.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.known[id]; ok {
		return a.StateAt(c.now())
	}
	return sale.StateDraft
}

// find makes sure that an activity exists: sale.ErrNotFound when it does not.
func (c *catalog) find(ctx context.Context, id string) error {
	now := c.now()
	c.mu.Lock()
	_, known := c.known[id]
	missing := now.Before(c.unknown[id])
	c.mu.Unlock()
	switch {
	case known:
		return nil
	case missing:
		return sale.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	a, err := c.ledger.Activity(ctx, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, sale.ErrNotFound) {
		if len(c.unknown) >= maxUnknown {
			clear(c.unknown)
		}
		c.unknown[id] = now.Add(time.Second)
		return sale.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("read activity: %w", err)
	}
	c.known[id] = a
	c.sort()
	return nil
}
