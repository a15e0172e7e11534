package pusher

import (
	"context"
	"fmt"
	"os"
	"time"
)

// sweep looks at every socket at fixed times and does what timers would do if each socket had its own: pings, and the
// ends of peers that are silent, slow to finish a frame or to take bytes, or whose session is over. The shards are
// looked at one after the other, so that the work is spread.
func (p *Pusher) sweep(ctx context.Context) {
	tick := time.NewTicker(p.cfg.sweepEvery() / time.Duration(p.hub.Shards()))
	defer tick.Stop()
	for shard := 0; ; shard = (shard + 1) % p.hub.Shards() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		p.sweepShard(shard, now)
		p.reader.late(now)
	}
}

func (p *Pusher) sweepShard(shard int, now time.Time) {
	session := p.now().UnixMilli()
	for _, c := range p.hub.Clients(shard) {
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

// loopsOf makes as many loops as configured.
func loopsOf(cfg *Config) []*loop {
	loops := make([]*loop, cfg.Loops)
	for i := range loops {
		loops[i] = newLoop(2*cfg.MaxFrameBytes + maxControl + frameHeader + pumpBytes)
	}
	return loops
}
