package pusher

import (
	"context"
	"fmt"
	"os"
	"time"

	"seckill/hub"
)

// sweepStep is the pause between two looks at some of the sockets.
const sweepStep = 10 * time.Millisecond

// sweep looks at every socket at fixed times and does what timers would do if each socket had its own: pings, and the
// ends of peers that are silent, slow to finish a frame or to take bytes, or whose session is over. It looks at a few at a
// time, so that the pings of many sockets are spread and hold up no result.
func (p *Pusher) sweep(ctx context.Context) {
	every := p.cfg.sweepEvery()
	step := min(sweepStep, every/4)
	tick := time.NewTicker(step)
	defer tick.Stop()
	var all, left []*hub.Client
	some := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if len(left) == 0 {
			clear(all)
			all = p.hub.AppendClients(all[:0])
			left, some = all, 1+len(all)/int(every/step)
		}
		now := time.Now()
		n := min(some, len(left))
		p.check(left[:n], now)
		left = left[n:]
		p.reader.late(now)
	}
}

func (p *Pusher) check(clients []*hub.Client, now time.Time) {
	session := p.now().UnixMilli()
	for _, c := range clients {
		// A socket that is not attached yet is still its handshake's, which has a deadline of its own.
		if s, ok := c.Owner().(*socket); ok && s.events.Load()&detached == 0 {
			s.check(now, session)
		}
	}
}

// sweepEvery is how often each socket is looked at: often enough for the shortest of the times that depend on it.
func (c *Config) sweepEvery() time.Duration {
	shortest := min(c.PingEvery, c.PeerTimeout, c.WriteTimeout, c.FrameTimeout)
	return max(min(shortest/4, time.Second), 16*time.Millisecond)
}

// check does what is due. session is the time by which sessions expire, which tests set.
func (s *socket) check(now time.Time, session int64) {
	cfg, ms := &s.p.cfg, now.UnixMilli()
	over := func(since int64, limit time.Duration) bool { return since != 0 && ms-since > limit.Milliseconds() }
	switch {
	case session >= s.expires:
		s.client.Close(errUnauthenticated)
	case over(s.blockedAt.Load(), cfg.WriteTimeout):
		s.client.Close(fmt.Errorf("the peer takes no bytes: %w", os.ErrDeadlineExceeded))
	case s.ws != nil && over(s.heardAt.Load(), cfg.PeerTimeout):
		s.client.Close(fmt.Errorf("the peer is silent: %w", os.ErrDeadlineExceeded))
	case over(s.partialAt.Load(), cfg.FrameTimeout):
		s.client.Close(errPolicy)
	case ms >= s.pingAt:
		s.pingAt = ms + cfg.PingEvery.Milliseconds()
		s.signal(pingDue)
	}
}

// loopsOf makes as many loops as configured; a shard has one, so more than shards would be idle.
func loopsOf(cfg *Config) []*loop {
	loops := make([]*loop, min(cfg.Loops, cfg.Shards))
	for i := range loops {
		loops[i] = newLoop(2*cfg.MaxFrameBytes + maxControl + frameHeader + pumpBytes)
	}
	return loops
}
