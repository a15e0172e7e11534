package pusher

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"seckill/hub"
	"seckill/internal/sale"
)

// reader reads the states of users and hands them to the hub: for a socket that has just connected or asked for a sync,
// and for all users of a shard after its subscription. Those who wait are read together, in one pipeline (P8).
type reader struct {
	cfg     *Config
	states  States
	ledger  Ledger
	catalog *catalog
	board   *board
	refused *refusals
	hub     *hub.Hub
	now     func() time.Time
	log     *slog.Logger
	// lookups bounds the database reads for users whom Redis does not know. Most of them take part in no sale, and Redis
	// is right about them while it is ready; asking all the same, as long as it costs little, finds what it has lost.
	lookups *rate.Limiter

	subscribedTo func(shard int) bool

	mu      sync.Mutex
	asks    []*socket          // whose state is to be read, the first first; each at most once
	waiting map[int][]*socket  // of each shard that is not subscribed yet
	since   map[int]time.Time  // when the first of those asked
	dirty   map[int]bool       // shards whose users are to be read again
	asking  chan struct{}      // there are asks
	poke    chan struct{}      // there are dirty shards
	told    prometheus.Counter // by reading again
}

func newReader(cfg *Config, d *Deps, c *catalog, b *board, rf *refusals, h *hub.Hub, told prometheus.Counter, subscribedTo func(int) bool) *reader {
	return &reader{
		cfg: cfg, states: d.States, ledger: d.Ledger, catalog: c, board: b, refused: rf, hub: h, now: d.Now, log: d.Log,
		lookups: rate.NewLimiter(rate.Limit(cfg.LedgerReadsPerSecond), cfg.LedgerReadsPerSecond), subscribedTo: subscribedTo,
		waiting: make(map[int][]*socket), since: make(map[int]time.Time), dirty: make(map[int]bool),
		asking: make(chan struct{}, 1), poke: make(chan struct{}, 1), told: told,
	}
}

// ask has the state of a socket's user read and told; with again, also what the socket has been told. It reads once the
// shard is subscribed: what is decided later comes by the subscription, what was decided before is in the state (FS-071).
func (r *reader) ask(s *socket, again bool) {
	if again {
		s.again.Store(true)
	}
	if s.asked.Swap(true) {
		return
	}
	shard := s.client.Shard()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.subscribedTo(shard) {
		r.asks = append(r.asks, s)
		wakeUp(r.asking)
		return
	}
	if len(r.waiting[shard]) == 0 {
		r.since[shard] = time.Now()
	}
	r.waiting[shard] = append(r.waiting[shard], s)
}

// subscribed says that the server has confirmed a shard: those who wait for it are read.
func (r *reader) subscribed(shard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release(shard)
}

// late has those read who have waited for long enough. They are read again when the subscription comes.
func (r *reader) late(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard, since := range r.since {
		if now.Sub(since) >= r.cfg.SubscribeWait {
			r.log.Debug("pusher: shard is not subscribed yet", "shard", shard)
			r.release(shard)
		}
	}
}

// release is called with the lock held.
func (r *reader) release(shard int) {
	r.asks = append(r.asks, r.waiting[shard]...)
	delete(r.waiting, shard)
	delete(r.since, shard)
	wakeUp(r.asking)
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// answer is one worker that answers asks until ctx ends.
func (r *reader) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asking:
		}
		for batch := r.nextAsks(); len(batch) > 0 && ctx.Err() == nil; batch = r.nextAsks() {
			r.tell(ctx, batch)
		}
	}
}

// nextAsks takes out a batch, and has another worker look at the rest.
func (r *reader) nextAsks() []*socket {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.asks), r.cfg.ReadBatch)
	batch := slices.Clone(r.asks[:n])
	if r.asks = r.asks[n:]; len(r.asks) == 0 {
		r.asks = nil
	} else {
		wakeUp(r.asking)
	}
	return batch
}

// tell reads the state of each socket's user and queues it: results, the live state of the sale it looks at, synced.
func (r *reader) tell(ctx context.Context, batch []*socket) {
	users := make([]int64, 0, len(batch))
	seen := make(map[int64]bool, len(batch))
	again := make([]bool, len(batch))
	for i, s := range batch {
		s.asked.Store(false) // who asks from now on is read again
		again[i] = s.again.Swap(false)
		if user := s.client.UserID(); !seen[user] {
			seen[user] = true
			users = append(users, user)
		}
	}
	results, failed := r.read(ctx, users)
	for i, s := range batch {
		user := s.client.UserID()
		if failed[user] {
			s.client.Close(errTryLater) // never "synced" without having read
			continue
		}
		for j := range results[user] {
			s.client.Tell(messageOf(&results[user][j], 0), again[i])
		}
		r.board.show(s.client, s.activity, r.catalog.state(s.activity))
		s.client.TellEnd(syncedFrame(r.now()))
	}
}

// messageOf is a result as the hub takes it.
func messageOf(res *sale.Result, at int64) hub.Message {
	return hub.Message{Key: res.RequestToken, Version: res.Version, Data: resultFrame(res), At: at}
}

// read reads the results of users in all sales, from Redis, and from the database what Redis may not know. failed are the
// users whose state could not be read.
func (r *reader) read(ctx context.Context, users []int64) (results map[int64][]sale.Result, failed map[int64]bool) {
	results, failed = make(map[int64][]sale.Result, len(users)), make(map[int64]bool)
	if !r.catalog.loaded() { // then it is not known where to look
		for _, user := range users {
			failed[user] = true
		}
		return results, failed
	}
	sales := r.catalog.sales()
	if len(sales) == 0 {
		return results, failed
	}
	err := r.readStates(ctx, sales, users, results)
	if err != nil {
		r.log.Warn("pusher: results are read from the database", "users", len(users), "err", err)
	}
	complete := true
	for _, id := range sales {
		complete = complete && (r.board.usable(id) || r.catalog.state(id) == sale.StateDraft)
	}
	// One deadline for the whole batch: waiting for the limit must not pile up.
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
	defer cancel()
	for _, user := range users {
		switch {
		case err != nil:
			failed[user] = r.lookups.Wait(ctx) != nil || r.lookUp(ctx, user, sales, results) != nil
		case (!complete || len(results[user]) == 0) && r.lookups.Allow():
			// What is missed here because Redis is being rebuilt comes when it is ready: then all users are read again.
			if err := r.lookUp(ctx, user, sales, results); err != nil {
				r.log.Debug("pusher: look-up in the database", "err", err)
			}
		}
		if rs := r.refused.add(user, results[user]); len(rs) > 0 {
			results[user] = rs
		}
	}
	return results, failed
}

func (r *reader) readStates(ctx context.Context, sales []string, users []int64, into map[int64][]sale.Result) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
	defer cancel()
	rs, err := r.states.ResultsOfUsers(ctx, sales, users)
	if err != nil {
		return fmt.Errorf("read states: %w", err)
	}
	for i := range rs {
		into[rs[i].UserID] = append(into[rs[i].UserID], rs[i].Result)
	}
	return nil
}

// lookUp adds what the database knows of a user. The hub takes the higher version where both know something.
func (r *reader) lookUp(ctx context.Context, user int64, sales []string, into map[int64][]sale.Result) error {
	ds, err := r.ledger.DecisionsOfUser(ctx, user, sales)
	if err != nil {
		return fmt.Errorf("look up decisions: %w", err)
	}
	for i := range ds {
		if ds[i].UserID == user {
			into[user] = append(into[user], ds[i].Result())
		}
	}
	return nil
}

// again has all users of a shard read, because messages for them may have been missed (S29).
func (r *reader) again(shards ...int) {
	r.mu.Lock()
	for _, shard := range shards {
		r.dirty[shard] = true
	}
	r.mu.Unlock()
	wakeUp(r.poke)
}

// reread works on dirty shards until ctx ends, one after the other, a batch of users at a time.
func (r *reader) reread(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.poke:
		}
		for shard, ok := r.nextDirty(); ok && ctx.Err() == nil; shard, ok = r.nextDirty() {
			if err := r.rereadShard(ctx, shard); err != nil {
				r.log.Warn("pusher: users of a shard could not be read again, trying on", "shard", shard, "err", err)
				r.again(shard)
				pause(ctx, time.Second)
			}
		}
	}
}

func (r *reader) nextDirty() (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard := range r.dirty {
		delete(r.dirty, shard)
		return shard, true
	}
	return 0, false
}

// checkUsers is how many users the check reads at a time.
const checkUsers = 32

// check reads all users again in turn, a few at a time, each once in CheckEvery: should anything ever get lost that nobody
// noticed, it is found here. It works until ctx ends.
func (r *reader) check(ctx context.Context) {
	for ctx.Err() == nil {
		var users []int64
		for shard := range r.hub.Shards() {
			users = append(users, r.hub.Users(shard)...)
		}
		if len(users) == 0 {
			pause(ctx, min(r.cfg.CheckEvery, time.Second))
		}
		for some := range slices.Chunk(users, checkUsers) {
			if err := r.restate(ctx, some); err != nil && ctx.Err() == nil {
				r.log.Debug("pusher: check", "err", err) // the next round reads them
			}
			if !pause(ctx, r.cfg.CheckEvery*time.Duration(len(some))/time.Duration(len(users))) {
				return
			}
		}
	}
}

// pause waits, and reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// rereadShard restates all users of a shard.
func (r *reader) rereadShard(ctx context.Context, shard int) error {
	for some := range slices.Chunk(r.hub.Users(shard), r.cfg.ReadBatch) {
		if err := r.restate(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// restate delivers the present results of users. The hub leaves out what they have been told.
func (r *reader) restate(ctx context.Context, users []int64) error {
	sales := r.catalog.sales()
	if len(sales) == 0 {
		return nil
	}
	results := make(map[int64][]sale.Result, len(users))
	if err := r.readStates(ctx, sales, users, results); err != nil {
		return err
	}
	at := time.Now().UnixNano()
	for user, rs := range results {
		for i := range rs {
			r.told.Add(float64(r.hub.Restate(user, messageOf(&rs[i], at))))
		}
	}
	return nil
}
