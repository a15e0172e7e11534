package pusher

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

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
	hub     *hub.Hub
	now     func() time.Time
	log     *slog.Logger
	// lookups bounds the database reads for users whom Redis does not know. Most of them take part in no sale, and Redis
	// is right about them while it is ready; asking all the same, as long as it costs little, finds what it has lost.
	lookups *rate.Limiter

	asks chan ask

	mu    sync.Mutex
	dirty map[int]bool // shards whose users are to be read again
	poke  chan struct{}
}

// ask is a client whose state is to be read and told.
type ask struct {
	client   *hub.Client
	activity string // the sale it looks at
	again    bool   // the client asked for it: it gets what it has as well
}

func newReader(cfg *Config, d *Deps, c *catalog, b *board, h *hub.Hub) *reader {
	return &reader{
		cfg: cfg, states: d.States, ledger: d.Ledger, catalog: c, board: b, hub: h, now: d.Now, log: d.Log,
		lookups: rate.NewLimiter(rate.Limit(cfg.LedgerReadsPerSecond), cfg.LedgerReadsPerSecond),
		asks:    make(chan ask, cfg.ReadBatch), dirty: make(map[int]bool), poke: make(chan struct{}, 1),
	}
}

// enqueue has the state of a client's user read and told. It waits while many are ahead, and reports false when that takes
// too long.
func (r *reader) enqueue(ctx context.Context, a ask) bool {
	select {
	case r.asks <- a:
		return true
	default:
	}
	timeout := time.NewTimer(r.cfg.StoreTimeout)
	defer timeout.Stop()
	select {
	case r.asks <- a:
		return true
	case <-timeout.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// answer is one worker that answers asks until ctx ends.
func (r *reader) answer(ctx context.Context) {
	for {
		var batch []ask
		select {
		case <-ctx.Done():
			return
		case a := <-r.asks:
			batch = append(batch, a)
		}
	gather:
		for len(batch) < r.cfg.ReadBatch {
			select {
			case a := <-r.asks:
				batch = append(batch, a)
			default:
				break gather
			}
		}
		r.tell(ctx, batch)
	}
}

// tell reads the state of each client's user and queues it: results, the live state of the sale it looks at, synced.
func (r *reader) tell(ctx context.Context, batch []ask) {
	users := make([]int64, 0, len(batch))
	seen := make(map[int64]bool, len(batch))
	for _, a := range batch {
		if user := a.client.UserID(); !seen[user] {
			seen[user] = true
			users = append(users, user)
		}
	}
	results, failed := r.read(ctx, users)
	for _, a := range batch {
		user := a.client.UserID()
		if failed[user] {
			a.client.Close(errTryLater) // never "synced" without having read
			continue
		}
		for i := range results[user] {
			a.client.Tell(messageOf(&results[user][i], 0), a.again)
		}
		r.board.show(a.client, a.activity, r.catalog.state(a.activity))
		a.client.TellEnd(syncedFrame(r.now()))
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
	select {
	case r.poke <- struct{}{}:
	default:
	}
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
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
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

// rereadShard delivers the present results of all users of a shard. The hub leaves out what they have been told.
func (r *reader) rereadShard(ctx context.Context, shard int) error {
	users := r.hub.Users(shard)
	sales := r.catalog.sales()
	if len(sales) == 0 {
		return nil
	}
	for len(users) > 0 {
		n := min(len(users), r.cfg.ReadBatch)
		results := make(map[int64][]sale.Result, n)
		if err := r.readStates(ctx, sales, users[:n], results); err != nil {
			return err
		}
		at := time.Now().UnixNano()
		for user, rs := range results {
			for i := range rs {
				r.hub.Deliver(user, messageOf(&rs[i], at))
			}
		}
		users = users[n:]
	}
	return nil
}
