package push

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// errSilent is why a connection without a sign of life is given up.
var errSilent = errors.New("no sign of life")

// link is one connection, its wishes, and what the server has confirmed on it.
type link struct {
	s       *Subscriber
	sharded string      // the one sharded channel that it carries, or ""
	heard   atomic.Bool // anything since the last tick of the watchdog

	// wishes is held while a wish is noted and sent, so that the server gets the wishes for a channel in the order in
	// which they were noted. It is taken before the subscriber's mu, which guards what follows.
	wishes sync.Mutex

	conn     *redis.PubSub       // nil between two connections
	channels map[string]struct{} // wanted
	allLive  bool                // wanted: the live channels of all sales
	active   map[string]struct{} // confirmed by the server on this connection
}

func (l *link) want(ctx context.Context, channel string) error {
	l.wishes.Lock()
	defer l.wishes.Unlock()
	l.s.mu.Lock()
	l.channels[channel] = struct{}{}
	conn := l.conn
	l.s.mu.Unlock()
	return l.send(ctx, conn, func(ctx context.Context) error { return l.subscribe(ctx, conn, channel) })
}

func (l *link) wantAllLive(ctx context.Context) error {
	l.wishes.Lock()
	defer l.wishes.Unlock()
	l.s.mu.Lock()
	l.allLive = true
	conn := l.conn
	l.s.mu.Unlock()
	return l.send(ctx, conn, func(ctx context.Context) error { return conn.PSubscribe(ctx, livePattern) })
}

func (l *link) unwant(ctx context.Context, channel string) error {
	l.wishes.Lock()
	defer l.wishes.Unlock()
	l.s.mu.Lock()
	delete(l.channels, channel)
	delete(l.active, channel)
	delete(l.s.fresh, channel)
	conn := l.conn
	l.s.mu.Unlock()
	return l.send(ctx, conn, func(ctx context.Context) error {
		if l.sharded != "" {
			return conn.SUnsubscribe(ctx, channel)
		}
		return conn.Unsubscribe(ctx, channel)
	})
}

func (l *link) subscribe(ctx context.Context, conn *redis.PubSub, channels ...string) error {
	if l.sharded != "" {
		return conn.SSubscribe(ctx, channels...)
	}
	return conn.Subscribe(ctx, channels...)
}

// send sends one wish on a connection. If that fails, the connection is given up and the next one starts with all
// wishes, so the caller need not try again.
func (l *link) send(ctx context.Context, conn *redis.PubSub, do func(ctx context.Context) error) error {
	if l.s.ctx.Err() != nil {
		return fmt.Errorf("subscriber: %w", l.s.ctx.Err())
	}
	if conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.s.o.CallTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		l.s.report(fmt.Errorf("subscribe: %w", err))
		l.drop(conn)
	}
	return nil
}

// drop closes a connection if it is still the present one; nil means whichever is.
func (l *link) drop(conn *redis.PubSub) {
	l.s.mu.Lock()
	present := l.conn
	l.s.mu.Unlock()
	if present != nil && (conn == nil || conn == present) {
		_ = present.Close() // ends the Receive of keepConnected
	}
}

// keepConnected makes one connection after another until Close.
func (l *link) keepConnected() {
	wait := l.s.o.RetryMin
	for l.s.ctx.Err() == nil {
		answered, err := l.connection()
		if l.s.ctx.Err() != nil {
			return
		}
		l.s.report(fmt.Errorf("pub/sub connection lost: %w", err))
		if answered {
			wait = l.s.o.RetryMin
		}
		pause := time.NewTimer(wait/2 + time.Duration(float64(wait/2)*l.s.o.Jitter()))
		select {
		case <-l.s.ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		wait = min(2*wait, l.s.o.RetryMax)
	}
}

// connection subscribes to all that is wanted and receives until the connection fails. answered tells whether the
// server said anything.
func (l *link) connection() (answered bool, err error) {
	ctx, cancel := context.WithCancel(l.s.ctx)
	defer cancel()
	conn := l.s.rdb.Subscribe(ctx)
	defer func() { _ = conn.Close() }()

	l.heard.Store(true)
	defer func() {
		l.s.mu.Lock()
		l.conn = nil
		clear(l.active)
		l.s.mu.Unlock()
	}()
	if err := l.subscribeAll(ctx, conn); err != nil {
		return false, err
	}
	watched := make(chan error, 1)
	go func() { watched <- l.watch(ctx, cancel, conn) }()
	for {
		msg, err := conn.Receive(ctx)
		if err != nil {
			cancel()
			_ = conn.Close()
			return answered, errors.Join(err, <-watched)
		}
		answered = true
		l.heard.Store(true)
		l.receive(msg)
	}
}

// subscribeAll makes conn the present connection and sends all wishes on it.
func (l *link) subscribeAll(ctx context.Context, conn *redis.PubSub) error {
	l.wishes.Lock()
	defer l.wishes.Unlock()
	l.s.mu.Lock()
	l.conn = conn
	channels := make([]string, 0, len(l.channels))
	for c := range l.channels {
		channels = append(channels, c)
	}
	allLive := l.allLive
	l.s.mu.Unlock()
	if l.sharded != "" { // wanted or not: the first channel decides which node go-redis connects to
		channels = []string{l.sharded}
	}
	if l.s.ctx.Err() != nil { // Close has come too early to see this connection
		return l.s.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, l.s.o.CallTimeout)
	defer cancel()
	if len(channels) > 0 {
		if err := l.subscribe(ctx, conn, channels...); err != nil {
			return err
		}
	}
	if allLive {
		return conn.PSubscribe(ctx, livePattern)
	}
	return nil
}

// receive files one message of the server. It never blocks: a reader that waits for slow handlers would let the
// server's output buffer grow until the server ends the connection.
func (l *link) receive(msg any) {
	switch m := msg.(type) {
	case *redis.Message:
		channel := m.Channel
		select {
		case l.s.events <- event{channel: channel, payload: m.Payload}:
		default:
			l.lost(channel)
		}
	case *redis.Subscription:
		l.confirmed(m)
	}
}

// lost notes a dropped message; its channel counts as newly subscribed.
func (l *link) lost(channel string) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.dropped++
	if _, wanted := l.channels[channel]; wanted {
		l.s.fresh[channel] = struct{}{}
	} else if l.allLive {
		l.s.fresh[livePattern] = struct{}{}
	}
}

func (l *link) confirmed(m *redis.Subscription) {
	switch m.Kind {
	case "subscribe", "psubscribe", "ssubscribe":
	case "sunsubscribe": // asked for, or the slot has moved to another node
		l.s.mu.Lock()
		_, moved := l.channels[m.Channel]
		conn := l.conn
		l.s.mu.Unlock()
		if moved {
			l.drop(conn)
		}
		return
	default:
		return
	}
	l.s.mu.Lock()
	_, wanted := l.channels[m.Channel]
	if wanted || m.Channel == livePattern {
		l.active[m.Channel] = struct{}{}
		l.s.fresh[m.Channel] = struct{}{}
	}
	l.s.mu.Unlock()
	select {
	case l.s.wake <- struct{}{}:
	default:
	}
}

// watch asks a silent server for a sign of life, and closes the connection when none comes.
func (l *link) watch(ctx context.Context, cancel context.CancelFunc, conn *redis.PubSub) error {
	tick := time.NewTicker(l.s.o.PingEvery)
	defer tick.Stop()
	silent := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if l.heard.Swap(false) {
			silent = 0
			continue
		}
		silent += l.s.o.PingEvery
		if silent >= l.s.o.DeadAfter {
			cancel() // so that go-redis does not dial again before it returns
			_ = conn.Close()
			return fmt.Errorf("%w for %s", errSilent, silent)
		}
		callCtx, done := context.WithTimeout(ctx, l.s.o.CallTimeout)
		err := conn.Ping(callCtx)
		done()
		if err != nil && ctx.Err() == nil {
			_ = conn.Close()
			return fmt.Errorf("ping: %w", err)
		}
	}
}
