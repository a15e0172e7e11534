package pusher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"seckill/hub"
	"seckill/internal/sale"
)

// board is the last known live state of each sale. It decides the order in which viewers see states: what pub/sub
// brings is taken as it comes, what was read from Redis only if nothing came since the read began or just before. Clocks of
// other machines are not compared.
type board struct {
	hub *hub.Hub
	now func() time.Time

	telling sync.Mutex // held while a state is read here and queued, so that no viewer gets an older one after a newer; taken first

	mu    sync.Mutex
	lives map[string]*posted
	due   map[string]struct{} // whose state is to be told to all viewers
	wake  chan struct{}       // there are some
}

// liveQuiet is how long nothing must have come of a sale before what a read finds is told: twice the time between two
// publications, so that viewers of a busy sale get those and no more.
const liveQuiet = 500 * time.Millisecond

// posted is one live state.
type posted struct {
	live   sale.Live
	usable bool      // Redis held complete data of the sale
	at     time.Time // when it arrived here
}

func newBoard(h *hub.Hub, now func() time.Time) *board {
	return &board{hub: h, now: now, lives: make(map[string]*posted), due: make(map[string]struct{}), wake: make(chan struct{}, 1)}
}

// arrived takes a state that pub/sub brought and shows it to all viewers. It reports whether the sale's data in Redis
// was rebuilt since the state before, so that results may have been missed.
func (b *board) arrived(l sale.Live) (rebuilt bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.post(l, l.State != sale.StateNotReady, true)
}

// read takes a state that was read from Redis, and shows it when it differs from what viewers see: a safety net for
// lost messages. fallback is the state by database and clock: it stands for a sale that is not selling, of which Redis
// need not hold anything.
func (b *board) read(l sale.Live, fallback sale.State, began time.Time) (rebuilt bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.lives[l.ActivityID]
	if old != nil && old.at.After(began.Add(-liveQuiet)) {
		return false
	}
	usable := l.State != sale.StateNotReady
	if !usable {
		l.State = withoutRedis(fallback)
	}
	return b.post(l, usable, old == nil || old.live.State != l.State || !slices.Equal(old.live.Items, l.Items))
}

// withoutRedis is the state to tell of a sale of which Redis has no usable data: a sale by the database and the clock
// is only told to be open when Redis can sell it.
func withoutRedis(state sale.State) sale.State {
	if state == sale.StateOpen || state == sale.StateScheduled {
		return sale.StateNotReady
	}
	return state
}

// post is called with the lock held.
func (b *board) post(l sale.Live, usable, show bool) (rebuilt bool) {
	now := b.now()
	old := b.lives[l.ActivityID]
	b.lives[l.ActivityID] = &posted{live: l, usable: usable, at: now}
	if show && b.hub.Viewers(l.ActivityID) > 0 {
		b.due[l.ActivityID] = struct{}{}
		wakeUp(b.wake)
	}
	return old != nil && usable && (!old.usable || old.live.Epoch != l.Epoch)
}

// run tells viewers what is due until ctx ends. It has a goroutine of its own, so that a sale with very many viewers does not
// hold up results; states that come meanwhile are told as one.
func (b *board) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		b.mu.Lock()
		due := slices.Collect(maps.Keys(b.due))
		clear(b.due)
		b.mu.Unlock()
		for _, id := range due {
			b.tell(id)
		}
	}
}

// tell queues the newest state of a sale for all its viewers.
func (b *board) tell(activityID string) {
	b.telling.Lock()
	defer b.telling.Unlock()
	if l, ok := b.newest(activityID); ok {
		b.hub.Broadcast(activityID, liveFrame(&l, b.now()))
	}
}

func (b *board) newest(activityID string) (l sale.Live, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.lives[activityID]
	if ok {
		l = p.live
	}
	return l, ok
}

// show queues the state of a sale for one client. fallback is the state by database and clock, for a sale that was not
// read yet and is not selling; of one that may be selling nothing is told until it is read, within a refresh, since
// "not ready" would be a guess.
func (b *board) show(c *hub.Client, activityID string, fallback sale.State) {
	b.telling.Lock()
	defer b.telling.Unlock()
	l, ok := b.newest(activityID)
	if !ok {
		if withoutRedis(fallback) != fallback {
			return
		}
		l = sale.Live{ActivityID: activityID, State: fallback}
	}
	c.TellLive(liveFrame(&l, b.now()))
}

// usable reports whether Redis was last seen to hold complete data of a sale.
func (b *board) usable(activityID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.lives[activityID]
	return p != nil && p.usable
}

// keep forgets the sales that are neither listed nor viewed.
func (b *board) keep(activityIDs []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.lives {
		if !slices.Contains(activityIDs, id) && b.hub.Viewers(id) == 0 {
			delete(b.lives, id)
		}
	}
}
