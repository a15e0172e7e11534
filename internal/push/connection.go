package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// errSilent is why a connection without a sign of life is given up.
var errSilent = errors.New("no sign of life")

// keepConnected makes one connection after another until Close.
func (s *Subscriber) keepConnected() {
	defer s.done.Done()
	wait := s.o.RetryMin
	for s.ctx.Err() == nil {
		answered, err := s.connection()
		if s.ctx.Err() != nil {
			return
		}
		s.report(fmt.Errorf("pub/sub connection lost: %w", err))
		if answered {
			wait = s.o.RetryMin
		}
		pause := time.NewTimer(wait/2 + time.Duration(float64(wait/2)*s.o.Jitter()))
		select {
		case <-s.ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		wait = min(2*wait, s.o.RetryMax)
	}
}

// connection subscribes to all that is wanted and receives until the connection fails. answered tells whether the
// server said anything.
func (s *Subscriber) connection() (answered bool, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	conn := s.rdb.Subscribe(ctx)
	defer func() { _ = conn.Close() }()

	s.heard.Store(true)
	defer func() {
		s.mu.Lock()
		s.conn = nil
		clear(s.active)
		s.mu.Unlock()
	}()
	if err := s.subscribeAll(ctx, conn); err != nil {
		return false, err
	}
	watched := make(chan error, 1)
	go func() { watched <- s.watch(ctx, cancel, conn) }()
	for {
		msg, err := conn.Receive(ctx)
		if err != nil {
			cancel()
			_ = conn.Close()
			return answered, errors.Join(err, <-watched)
		}
		answered = true
		s.heard.Store(true)
		s.receive(msg)
	}
}

// subscribeAll makes conn the present connection and sends all wishes on it.
func (s *Subscriber) subscribeAll(ctx context.Context, conn *redis.PubSub) error {
	s.wishes.Lock()
	defer s.wishes.Unlock()
	s.mu.Lock()
	s.conn = conn
	channels := make([]string, 0, len(s.channels))
	for c := range s.channels {
		channels = append(channels, c)
	}
	allLive := s.allLive
	s.mu.Unlock()
	if s.ctx.Err() != nil { // Close has come too early to see this connection
		return s.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	if len(channels) > 0 {
		if err := conn.Subscribe(ctx, channels...); err != nil {
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
func (s *Subscriber) receive(msg any) {
	switch m := msg.(type) {
	case *redis.Message:
		channel := m.Channel
		select {
		case s.events <- event{channel: channel, payload: m.Payload}:
		default:
			s.lost(channel)
		}
	case *redis.Subscription:
		s.confirmed(m)
	}
}

// lost notes a dropped message; its channel counts as newly subscribed.
func (s *Subscriber) lost(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped++
	if _, wanted := s.channels[channel]; wanted {
		s.fresh[channel] = struct{}{}
	} else if s.allLive {
		s.fresh[livePattern] = struct{}{}
	}
}

func (s *Subscriber) confirmed(m *redis.Subscription) {
	if m.Kind != "subscribe" && m.Kind != "psubscribe" {
		return
	}
	s.mu.Lock()
	_, wanted := s.channels[m.Channel]
	if wanted || m.Channel == livePattern {
		s.active[m.Channel] = struct{}{}
		s.fresh[m.Channel] = struct{}{}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// watch asks a silent server for a sign of life, and closes the connection when none comes.
func (s *Subscriber) watch(ctx context.Context, cancel context.CancelFunc, conn *redis.PubSub) error {
	tick := time.NewTicker(s.o.PingEvery)
	defer tick.Stop()
	silent := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if s.heard.Swap(false) {
			silent = 0
			continue
		}
		silent += s.o.PingEvery
		if silent >= s.o.DeadAfter {
			cancel() // so that go-redis does not dial again before it returns
			_ = conn.Close()
			return fmt.Errorf("%w for %s", errSilent, silent)
		}
		callCtx, done := context.WithTimeout(ctx, s.o.CallTimeout)
		err := conn.Ping(callCtx)
		done()
		if err != nil && ctx.Err() == nil {
			_ = conn.Close()
			return fmt.Errorf("ping: %w", err)
		}
	}
}
