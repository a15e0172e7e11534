package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/sale"
)

// round is the state of one term of leadership.
type round struct {
	r          *Reconciler
	term       context.Context //nolint:containedctx // ends with the leadership; rebuilds outlive the step that starts them
	fence      int64
	activities []*sale.Activity // warmed up and not settled
	live       map[string]shown
	loaded     bool            // the activities have been read in this term
	sound      map[string]bool // sales that this round has found in Redis as they should be
	rebuilding map[string]bool
	rebuilt    chan string // ids of finished rebuilds
	rebuilds   sync.WaitGroup
	passedAt   time.Time                  // every message in the queue at that time is finished
	placed     time.Time                  // when waiters were told their places last
	line       map[string]map[int64]int64 // places told, by activity/commodity and user
	ends       map[string]map[int]int64   // end offsets to pass before an activity is settled
	queue      []sample                   // how far the queue was, once a second
	auditSoon  atomic.Bool                // a difference was found: look again before long
	auditing   bool                       // one runs now
	audited    chan struct{}              // it has ended
	lastAudit  time.Time
	differed   map[string]bool         // sales whose last audit found something; used by the audit alone
	purged     map[string]bool         // settled sales whose keys were removed in this term
	expired    map[string][]sale.Place // who waited in a line that has ended, and is not told yet
	ended      map[string]bool         // activities whose waitlist was ended in this term
}

// shown is the live state that viewers were sent last.
type shown struct {
	live sale.Live
	at   time.Time
}

// tasks does what is due once a second.
func (w *round) tasks(ctx context.Context) {
	r := w.r
	r.step(ctx, "activities", w.load)
	r.step(ctx, "states", w.watch)
	r.step(ctx, "queue", w.sampleQueue)
	for _, a := range w.activities {
		if !w.rebuilding[a.ID] {
			r.step(ctx, "relay "+a.ID, func(ctx context.Context) error { return w.relayOccupied(ctx, a.ID) })
		}
	}
	r.step(ctx, "unpaid", r.closeUnpaid)
	r.step(ctx, "returns", w.returnUnits)
	r.step(ctx, "untold", r.tellAgain)
	r.step(ctx, "settle", w.settle)
	w.auditWhenDue()
	if now := r.d.Now(); now.Sub(w.placed) >= r.cfg.PlacesInterval {
		w.placed = now
		r.step(ctx, "waitlist", w.places)
	}
}

// load reads the activities that are warmed up and not settled: however long it takes, each is seen through to its end.
func (w *round) load(ctx context.Context) error {
	all, err := w.r.d.Ledger.Activities(ctx)
	if err != nil {
		return fmt.Errorf("read activities: %w", err)
	}
	w.loaded = true
	w.cleanUp(ctx, all)
	w.activities = slices.DeleteFunc(all, func(a *sale.Activity) bool {
		return a.State == sale.StateDraft || a.State == sale.StateSettled
	})
	for id := range w.live {
		if !slices.ContainsFunc(w.activities, func(a *sale.Activity) bool { return a.ID == id }) {
			delete(w.live, id)
		}
	}
	return nil
}

// watch compares each sale in Redis with the database: what is missing, of another epoch, or went backwards is
// rebuilt; what an operator changed and Redis was not told is written (R10, R15).
func (w *round) watch(ctx context.Context) error {
	w.sound = map[string]bool{}
	behind, err := w.witness(ctx)
	if err != nil {
		return err
	}
	lives, err := w.lives(ctx)
	if err != nil {
		return err
	}
	for _, a := range w.activities {
		live := lives[a.ID]
		switch {
		case w.rebuilding[a.ID]:
		case w.gone(a):
			w.sound[a.ID] = true // nothing is there to be wrong
		case live.State == sale.StateNotReady:
			w.startRebuild(a, "not in redis")
		case live.Epoch != a.Epoch:
			w.startRebuild(a, fmt.Sprintf("redis has epoch %d, the database %d", live.Epoch, a.Epoch))
		case w.r.d.Stock.Rewound(a.ID), slices.Contains(behind, a.ID):
			w.startRebuild(a, "redis went backwards")
		case live.State != a.StateAt(live.At) || !live.StartsAt.Equal(a.StartsAt) || !live.EndsAt.Equal(a.EndsAt):
			if err := w.r.d.Stock.SetMeta(ctx, a); err != nil {
				return fmt.Errorf("set meta of %s: %w", a.ID, err)
			}
			w.sound[a.ID] = true
		default:
			w.sound[a.ID] = true
		}
	}
	return nil
}

// gone: the retention of the activity's keys is over, so that they are missing for good and not lost.
func (w *round) gone(a *sale.Activity) bool {
	return w.r.d.Now().After(a.KeysUntil(w.r.d.Retention))
}

// witness raises the sequence number of every sale, so that a rewind is seen even where nothing else writes, and looks at
// the run ids of the servers. What it has seen is compared with the record in the database and recorded there: nobody
// may be left who remembers what Redis has lost (R15). It returns the sales of which Redis is behind the record.
func (w *round) witness(ctx context.Context) (behind []string, err error) {
	if len(w.activities) == 0 {
		return nil, nil
	}
	ids := make([]string, 0, len(w.activities))
	seen := make(map[string]sale.Sighting, len(w.activities))
	for _, a := range w.activities {
		ids = append(ids, a.ID)
		if w.rebuilding[a.ID] {
			continue
		}
		epoch, seq, err := w.r.d.Stock.RaiseSeq(ctx, a.ID)
		if err != nil && !errors.Is(err, sale.ErrNotReady) {
			return nil, fmt.Errorf("raise seq of %s: %w", a.ID, err)
		}
		if epoch > 0 { // else it is missing, which shows by itself
			seen[a.ID] = sale.Sighting{Epoch: epoch, Seq: seq}
		}
	}
	servers, err := w.r.d.Stock.CheckServers(ctx, ids)
	if err != nil {
		return nil, err
	}
	for id, s := range seen {
		s.Server = servers[id]
		seen[id] = s
	}
	return w.r.d.Ledger.Witness(ctx, w.fence, seen)
}

func (w *round) lives(ctx context.Context) (map[string]sale.Live, error) {
	if len(w.activities) == 0 {
		return nil, nil
	}
	ids := make([]string, len(w.activities))
	for i, a := range w.activities {
		ids[i] = a.ID
	}
	return w.r.d.Stock.Live(ctx, ids)
}

// startRebuild rebuilds beside the rounds, one rebuild a sale at a time.
func (w *round) startRebuild(a *sale.Activity, why string) {
	w.rebuilding[a.ID] = true
	w.rebuilds.Go(func() {
		if err := w.r.rebuild(w.term, a, w.fence, why); err != nil && w.term.Err() == nil {
			w.r.d.Log.Warn("reconciler: rebuild, will try again", "activity", a.ID, "why", why, "err", err)
		}
		select {
		case w.rebuilt <- a.ID:
		case <-w.term.Done():
		}
	})
}

// showLive sends every sale's state and stock to its viewers when they changed, and now and then when not.
func (w *round) showLive(ctx context.Context) {
	w.r.step(ctx, "live", func(ctx context.Context) error {
		lives, err := w.lives(ctx)
		if err != nil {
			return err
		}
		now := w.r.d.Now()
		for id, live := range lives {
			last, ok := w.live[id]
			if ok && same(last.live, live) && now.Sub(last.at) < w.r.cfg.LiveRepeat {
				continue
			}
			if err := w.r.d.Announcer.Live(ctx, live); err != nil {
				return fmt.Errorf("show %s: %w", id, err)
			}
			w.live[id] = shown{live: live, at: now}
		}
		return nil
	})
}

func same(a, b sale.Live) bool {
	return a.State == b.State && a.StartsAt.Equal(b.StartsAt) && a.EndsAt.Equal(b.EndsAt) && slices.Equal(a.Items, b.Items)
}

// relayed says when a token was relayed last and how long to wait until the next time.
type relayed struct {
	at    time.Time
	wait  time.Duration
	seen  time.Time
	times int
}

// relayTable remembers relays, so that the wait doubles per token (R17).
type relayTable struct {
	mu sync.Mutex
	of map[string]relayed
}

// due returns how often a token will have been relayed with this time, or 0 while its wait is not over.
func (t *relayTable) due(token string, now time.Time, first, most time.Duration) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.of[token]
	last.seen = now
	if ok && now.Sub(last.at) < last.wait {
		t.of[token] = last
		return 0
	}
	last.at, last.wait = now, min(most, max(first, 2*last.wait))
	last.times++
	t.of[token] = last
	return last.times
}

// forget drops tokens that have not been seen occupied for a while.
func (t *relayTable) forget(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for token, r := range t.of {
		if r.seen.Before(before) {
			delete(t.of, token)
		}
	}
}

// auditAgain is the wait between an audit that found something and the one that mends it.
const auditAgain = 3 * time.Second

// sample is where the queue ended at one time.
type sample struct {
	at   time.Time
	ends map[int]int64
}

// maxSamples bounds the history: an hour, one a second. Older ones are thinned to the oldest.
const maxSamples = 3600

// sampleQueue notes where the queue ends now, and forgets what the group has passed.
func (w *round) sampleQueue(ctx context.Context) error {
	at := w.r.d.Now()
	ends, err := w.r.d.Offsets.EndOffsets(ctx)
	if err != nil {
		return err
	}
	committed, err := w.r.d.Offsets.Committed(ctx)
	if err != nil {
		return err
	}
	w.queue = append(w.queue, sample{at, ends})
	passed := 0
	for passed < len(w.queue) && lag(w.queue[passed].ends, committed) == 0 {
		passed++
	}
	if passed > 0 {
		w.passedAt = w.queue[passed-1].at
		w.queue = w.queue[passed:]
	}
	if len(w.queue) > maxSamples {
		w.queue = append(w.queue[:1], w.queue[len(w.queue)-maxSamples+1:]...)
	}
	return nil
}

// relayOccupied enqueues again the reservations that have been occupied too long: their gateway died before its
// publish, or the publish was uncertain (S21). Those younger than the group's lag are left alone: it may just not have
// come to them (R17).
func (w *round) relayOccupied(ctx context.Context, activityID string) error {
	r := w.r
	now := r.d.Now()
	before := now.Add(-r.cfg.RelayAfter)
	if read := w.passedAt.Add(-r.cfg.RelayMargin); read.Before(before) {
		before = read
	}
	rs, err := r.d.Stock.Occupied(ctx, activityID, before, r.cfg.RelayBatch)
	if err != nil {
		return err
	}
	for i := range rs {
		rs[i].Relays = r.relays.due(rs[i].Token, now, r.cfg.RelayAfter, r.cfg.RelayMax)
	}
	rs = slices.DeleteFunc(rs, func(res sale.Reservation) bool { return res.Relays == 0 })
	r.relays.forget(now.Add(-2 * r.cfg.RelayMax))
	if len(rs) == 0 {
		return nil
	}
	failed := 0
	for _, err := range r.d.Queue.Publish(ctx, rs) {
		if err != nil {
			failed++
		}
	}
	r.relay.Add(float64(len(rs) - failed))
	r.d.Log.Info("reconciler: relayed", "activity", activityID, "reservations", len(rs), "failed", failed)
	return nil
}

// tellAgain writes and announces the statuses whose telling was not confirmed (R8).
func (r *Reconciler) tellAgain(ctx context.Context) error {
	orders, err := r.d.Ledger.Untold(ctx, r.cfg.TaskBatch)
	if err != nil {
		return fmt.Errorf("untold: %w", err)
	}
	if len(orders) == 0 {
		return nil
	}
	rs := make([]sale.UserResult, len(orders))
	for i := range orders {
		rs[i] = sale.UserResult{UserID: orders[i].UserID, Result: orders[i].Result()}
	}
	found, err := r.d.Stock.SetStatus(ctx, rs)
	if err != nil {
		return fmt.Errorf("write statuses: %w", err)
	}
	if err := r.d.Announcer.Results(ctx, rs); err != nil {
		return fmt.Errorf("announce statuses: %w", err)
	}
	var errs []error
	for i, s := range found {
		if s == sale.SettleNotYet {
			continue
		}
		errs = append(errs, r.d.Ledger.MarkTold(ctx, orders[i].RequestToken, orders[i].UserID, orders[i].Version))
	}
	return errors.Join(errs...)
}
