package push

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// Options of a Subscriber. The zero value of a bound means its default. Handlers are called from one goroutine, one at
// a time; they must be quick and hand longer work to others. A nil handler is not called.
type Options struct {
	// ChannelSize is how many messages wait for the handlers; more are dropped. Default 8192.
	ChannelSize int
	// PingEvery is after how much silence the server is asked for a sign of life. Default 3 s.
	PingEvery time.Duration
	// DeadAfter is after how much silence the connection is given up. Default 10 s.
	DeadAfter time.Duration
	// RetryMin and RetryMax bound the wait before a new connection; it doubles each time, with jitter.
	// Defaults 50 ms and 3 s.
	RetryMin, RetryMax time.Duration
	// CallTimeout bounds the sending of a subscription or a ping. Default 2 s.
	CallTimeout time.Duration
	// Jitter returns numbers from 0 to 1. Default math/rand/v2.
	Jitter func() float64

	// OnResults gets the results of one message of a shard.
	OnResults func(shard int, rs []sale.UserResult)
	// OnPlaces gets places in waitlists of one message of a shard.
	OnPlaces func(shard int, ps []sale.Place)
	// OnLive gets the state of a sale.
	OnLive func(l sale.Live)
	// OnSubscribed says that the channel of a shard is subscribed, the first time and after every loss of the connection
	// or of messages: what was told before may have been missed, so the shard reads its users' states now (S29).
	OnSubscribed func(shard int)
	// OnLiveSubscribed says the same of the live channel of one sale, or, with "", of those of all sales.
	OnLiveSubscribed func(activityID string)
	// OnDropped says that n messages were dropped because the handlers fell behind. OnSubscribed follows for each
	// shard concerned.
	OnDropped func(n int)
	// OnError gets connection losses and unreadable messages.
	OnError func(err error)
}

func (o *Options) setDefaults() {
	if o.ChannelSize <= 0 {
		o.ChannelSize = 8192
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&o.PingEvery, 3 * time.Second}, {&o.DeadAfter, 10 * time.Second}, {&o.RetryMin, 50 * time.Millisecond},
		{&o.RetryMax, 3 * time.Second}, {&o.CallTimeout, 2 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
}

// Subscriber listens to channels and keeps its connections up. On a Redis it has one for all channels. On a Redis Cluster
// the results of each shard have one of their own: they are sharded channels (SSUBSCRIBE), each at home on the node of its
// slot, so that a result crosses no link between nodes.
//
// It uses go-redis' PubSub at its lowest level. PubSub.Channel drops messages silently after a minute of blocking,
// and its health check writes pings without waiting for the answer, so that a link that swallows everything stays in
// use until TCP gives up.
type Subscriber struct {
	rdb     redis.UniversalClient
	o       Options
	sharded bool
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	done    sync.WaitGroup
	events  chan event
	wake    chan struct{}

	mu      sync.Mutex
	links   map[string]*link    // by the channel they are for; "": for all others
	fresh   map[string]struct{} // confirmed, or lossy: handlers are still to be told
	dropped int
}

// event is one message.
type event struct{ channel, payload string }

// NewSubscriber makes a Subscriber and starts it. Close ends it. The client stays the caller's to close.
func NewSubscriber(rdb redis.UniversalClient, o Options) *Subscriber {
	o.setDefaults()
	_, cluster := rdb.(*redis.ClusterClient)
	s := &Subscriber{
		rdb: rdb, o: o, sharded: cluster, events: make(chan event, o.ChannelSize), wake: make(chan struct{}, 1),
		links: make(map[string]*link), fresh: make(map[string]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Go(s.dispatch)
	s.linkFor("")
	return s
}

// linkFor is the connection that carries a channel, made when there is none yet.
func (s *Subscriber) linkFor(channel string) *link {
	name := ""
	if _, results := shardOfChannel(channel); results && s.sharded {
		name = channel
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links[name]
	if l == nil {
		l = &link{s: s, sharded: name, channels: make(map[string]struct{}), active: make(map[string]struct{})}
		s.links[name] = l
		if s.ctx.Err() == nil {
			s.done.Go(l.keepConnected)
		}
	}
	return l
}

// Close ends the connections and waits for the handlers to return.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.cancel() // with the lock, so that no link is made afterwards
	links := slices.Collect(maps.Values(s.links))
	s.mu.Unlock()
	for _, l := range links {
		l.drop(nil)
	}
	s.done.Wait()
	return nil
}

// Subscribe asks for the results of a shard. It returns once the wish is noted; OnSubscribed follows when the server
// has confirmed it, now or after a reconnect.
func (s *Subscriber) Subscribe(ctx context.Context, shard int) error {
	return s.linkFor(resultChannel(shard)).want(ctx, resultChannel(shard))
}

// Unsubscribe ends the results of a shard. A message already received may still be delivered.
func (s *Subscriber) Unsubscribe(ctx context.Context, shard int) error {
	return s.linkFor(resultChannel(shard)).unwant(ctx, resultChannel(shard))
}

// SubscribeLive asks for the live state of one sale.
func (s *Subscriber) SubscribeLive(ctx context.Context, activityID string) error {
	if !sale.ValidID(activityID) {
		return fmt.Errorf("subscribe live state: %w", sale.ErrBadID)
	}
	return s.linkFor(liveChannel(activityID)).want(ctx, liveChannel(activityID))
}

// UnsubscribeLive ends the live state of one sale.
func (s *Subscriber) UnsubscribeLive(ctx context.Context, activityID string) error {
	return s.linkFor(liveChannel(activityID)).unwant(ctx, liveChannel(activityID))
}

// SubscribeAllLive asks for the live state of every sale. Together with SubscribeLive a state comes twice.
func (s *Subscriber) SubscribeAllLive(ctx context.Context) error {
	return s.linkFor(livePattern).wantAllLive(ctx)
}

// Subscribed reports whether the server has confirmed a shard's channel on the present connection.
func (s *Subscriber) Subscribed(shard int) bool {
	channel := resultChannel(shard)
	l := s.linkFor(channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := l.active[channel]
	return ok
}

func (s *Subscriber) report(err error) {
	if s.o.OnError != nil && s.ctx.Err() == nil {
		s.o.OnError(err)
	}
}

// dispatch calls the handlers.
func (s *Subscriber) dispatch() {
	// While the handlers are behind, telling of losses after every message would only make it worse.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case ev := <-s.events:
			s.deliver(ev)
			if len(s.events) == 0 {
				s.tellFresh()
			}
		case <-s.wake:
			s.tellFresh()
		case <-tick.C:
			s.tellFresh()
		}
	}
}

func (s *Subscriber) deliver(ev event) {
	if shard, ok := shardOfChannel(ev.channel); ok {
		rs, places, err := parseMessage(ev.payload)
		if err != nil {
			s.report(err)
		}
		if s.o.OnResults != nil && len(rs) > 0 {
			s.o.OnResults(shard, rs)
		}
		if s.o.OnPlaces != nil && len(places) > 0 {
			s.o.OnPlaces(shard, places)
		}
		return
	}
	l, err := parseLive(ev.payload)
	if err != nil {
		s.report(err)
	} else if s.o.OnLive != nil {
		s.o.OnLive(l)
	}
}

// tellFresh tells the handlers of new subscriptions and of losses.
func (s *Subscriber) tellFresh() {
	s.mu.Lock()
	dropped := s.dropped
	s.dropped = 0
	fresh := make([]string, 0, len(s.fresh))
	for channel := range s.fresh {
		fresh = append(fresh, channel)
	}
	clear(s.fresh)
	s.mu.Unlock()
	if dropped > 0 && s.o.OnDropped != nil {
		s.o.OnDropped(dropped)
	}
	for _, channel := range fresh {
		if shard, ok := shardOfChannel(channel); ok {
			if s.o.OnSubscribed != nil {
				s.o.OnSubscribed(shard)
			}
		} else if s.o.OnLiveSubscribed != nil {
			s.o.OnLiveSubscribed(strings.TrimSuffix(strings.TrimPrefix(channel, livePrefix), "*"))
		}
	}
}
