package pusher

import (
	"context"
	"log/slog"
	"time"

	"seckill/hub"
)

// subscriptions keeps the subscriber on exactly those shards and sales that have a client. It compares what is wanted
// with what is there whenever the hub says that something changed, and once a second; so it does not matter in which
// order changes are told.
type subscriptions struct {
	hub    *hub.Hub
	sub    Subscriber
	linger time.Duration
	log    *slog.Logger
	poke   chan struct{}

	// Only the goroutine of run uses these.
	shards map[int]time.Time    // subscribed; since when without a client, or zero
	sales  map[string]time.Time // likewise
}

func newSubscriptions(linger time.Duration, log *slog.Logger) *subscriptions {
	return &subscriptions{
		linger: linger, log: log, poke: make(chan struct{}, 1), shards: make(map[int]time.Time), sales: make(map[string]time.Time),
	}
}

// changed says that a shard or a sale has got its first client or lost its last.
func (s *subscriptions) changed() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// missing counts the shards that have a client and are not subscribed.
func (s *subscriptions) missing() int {
	n := 0
	for i := range s.hub.Shards() {
		if s.hub.ShardActive(i) && !s.sub.Subscribed(i) {
			n++
		}
	}
	return n
}

// run works until ctx ends.
func (s *subscriptions) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
		case <-tick.C:
		}
		now := time.Now()
		var active []int
		for i := range s.hub.Shards() {
			if s.hub.ShardActive(i) {
				active = append(active, i)
			}
		}
		adjust(ctx, s, s.shards, active, now, s.sub.Subscribe, s.sub.Unsubscribe)
		adjust(ctx, s, s.sales, s.hub.Sales(), now, s.sub.SubscribeLive, s.sub.UnsubscribeLive)
	}
}

// adjust subscribes what is wanted and not there, and unsubscribes what was not wanted for a while. What fails is tried
// again a second later.
func adjust[K comparable](ctx context.Context, s *subscriptions, have map[K]time.Time, want []K, now time.Time,
	subscribe, unsubscribe func(context.Context, K) error) {
	wanted := make(map[K]bool, len(want))
	for _, k := range want {
		wanted[k] = true
		if _, ok := have[k]; !ok {
			if err := subscribe(ctx, k); err != nil {
				s.log.Warn("pusher: subscribe", "what", k, "err", err)
				continue
			}
		}
		have[k] = time.Time{}
	}
	for k, idleSince := range have {
		switch {
		case wanted[k]:
		case idleSince.IsZero():
			have[k] = now
		case now.Sub(idleSince) >= s.linger:
			if err := unsubscribe(ctx, k); err != nil {
				s.log.Warn("pusher: unsubscribe", "what", k, "err", err)
				continue
			}
			delete(have, k)
		}
	}
}
