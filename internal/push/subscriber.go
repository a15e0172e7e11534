package push

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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

// Subscriber listens to channels over one connection and keeps that connection up.
//
// It uses go-redis' PubSub at its lowest level. PubSub.Channel drops messages silently after a minute of blocking,
// and its health check writes pings without waiting for the answer, so that a link that swallows everything stays in
// use until TCP gives up.
type Subscriber struct {
	rdb    redis.UniversalClient
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup
	events chan event
	wake   chan struct{}
	heard  atomic.Bool // anything since the last tick of the watchdog

	// wishes is held while a wish is noted and sent, so that the server gets the wishes for a channel in the order in
	// which they were noted. It is taken before mu.
	wishes sync.Mutex

	mu       sync.Mutex
	conn     *redis.PubSub       // nil between two connections
	channels map[string]struct{} // wanted
	allLive  bool                // wanted: the live channels of all sales
	active   map[string]struct{} // confirmed by the server on this connection
	fresh    map[string]struct{} // confirmed, or lossy: handlers are still to be told
	dropped  int
}

// event is one message.
type event struct{ channel, payload string }

// NewSubscriber makes a Subscriber and starts it. Close ends it. The client stays the caller's to close.
func NewSubscriber(rdb redis.UniversalClient, o Options) *Subscriber {
	o.setDefaults()
	s := &Subscriber{
		rdb: rdb, o: o, events: make(chan event, o.ChannelSize), wake: make(chan struct{}, 1),
		channels: make(map[string]struct{}), active: make(map[string]struct{}), fresh: make(map[string]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Add(2)
	go s.dispatch()
	go s.keepConnected()
	return s
}

// Close ends the connection and waits for the handlers to return.
func (s *Subscriber) Close() error {
	s.cancel()
	s.drop(nil)
	s.done.Wait()
	return nil
}

// Subscribe asks for the results of a shard. It returns once the wish is noted; OnSubscribed follows when the server
// has confirmed it, now or after a reconnect.
func (s *Subscriber) Subscribe(ctx context.Context, shard int) error {
	return s.want(ctx, resultChannel(shard))
}

// Unsubscribe ends the results of a shard. A message already received may still be delivered.
func (s *Subscriber) Unsubscribe(ctx context.Context, shard int) error {
	return s.unwant(ctx, resultChannel(shard))
}

// SubscribeLive asks for the live state of one sale.
func (s *Subscriber) SubscribeLive(ctx context.Context, activityID string) error {
	if !sale.ValidID(activityID) {
		return fmt.Errorf("subscribe live state: %w", sale.ErrBadID)
	}
	return s.want(ctx, liveChannel(activityID))
}

// UnsubscribeLive ends the live state of one sale.
func (s *Subscriber) UnsubscribeLive(ctx context.Context, activityID string) error {
	return s.unwant(ctx, liveChannel(activityID))
}

// SubscribeAllLive asks for the live state of every sale. Together with SubscribeLive a state comes twice.
func (s *Subscriber) SubscribeAllLive(ctx context.Context) error {
	s.wishes.Lock()
	defer s.wishes.Unlock()
	s.mu.Lock()
	s.allLive = true
	conn := s.conn
	s.mu.Unlock()
	return s.send(ctx, conn, func(ctx context.Context) error { return conn.PSubscribe(ctx, livePattern) })
}

// Subscribed reports whether the server has confirmed a shard's channel on the present connection.
func (s *Subscriber) Subscribed(shard int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.active[resultChannel(shard)]
	return ok
}

func (s *Subscriber) want(ctx context.Context, channel string) error {
	s.wishes.Lock()
	defer s.wishes.Unlock()
	s.mu.Lock()
	s.channels[channel] = struct{}{}
	conn := s.conn
	s.mu.Unlock()
	return s.send(ctx, conn, func(ctx context.Context) error { return conn.Subscribe(ctx, channel) })
}

func (s *Subscriber) unwant(ctx context.Context, channel string) error {
	s.wishes.Lock()
	defer s.wishes.Unlock()
	s.mu.Lock()
	delete(s.channels, channel)
	delete(s.active, channel)
	delete(s.fresh, channel)
	conn := s.conn
	s.mu.Unlock()
	return s.send(ctx, conn, func(ctx context.Context) error { return conn.Unsubscribe(ctx, channel) })
}

// send sends one wish on a connection. If that fails, the connection is given up and the next one starts with all
// wishes, so the caller need not try again.
func (s *Subscriber) send(ctx context.Context, conn *redis.PubSub, do func(ctx context.Context) error) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("subscriber: %w", s.ctx.Err())
	}
	if conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.CallTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		s.report(fmt.Errorf("subscribe: %w", err))
		s.drop(conn)
	}
	return nil
}

// drop closes a connection if it is still the present one; nil means whichever is.
func (s *Subscriber) drop(conn *redis.PubSub) {
	s.mu.Lock()
	present := s.conn
	s.mu.Unlock()
	if present != nil && (conn == nil || conn == present) {
		_ = present.Close() // ends the Receive of keepConnected
	}
}

func (s *Subscriber) report(err error) {
	if s.o.OnError != nil && s.ctx.Err() == nil {
		s.o.OnError(err)
	}
}

// dispatch calls the handlers.
func (s *Subscriber) dispatch() {
	defer s.done.Done()
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
