package consumer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// headroom is the part of the database's measured speed that pacing uses: the rest stays free for reads and for the
// other writers (S18).
const headroom = 0.8

// pacer holds the commits of this process to a rate, so that the backlog waits in Kafka and not in the database.
// With a configured rate of the group, this member takes its share by the partitions it owns. Without one, and with
// finding on, it measures what the database takes and keeps below that; a failure halves the rate, which then grows back
// with the measurements.
type pacer struct {
	cfg   Config
	share func() float64 // part of the group's partitions owned here, 0 to 1
	now   func() time.Time
	limit *rate.Limiter

	mu       sync.Mutex
	inFlight int
	since    time.Time     // when the first of those in flight began
	busy     time.Duration // with at least one commit in flight, in this window
	orders   int           // committed in this window
	commits  int           // in how many transactions
	speed    float64       // orders a second that the database took, smoothed; 0 when unknown
}

// window is how much busy time one measurement takes. Batches of fewer than fullBatch on average say nothing about what
// the database takes: it was not asked for more.
const (
	window    = 500 * time.Millisecond
	fullBatch = 50
)

func newPacer(cfg Config, share func() float64, now func() time.Time) *pacer {
	p := &pacer{cfg: cfg, share: share, now: now, limit: rate.NewLimiter(rate.Inf, cfg.PaceBurst)}
	p.set()
	return p
}

// set applies the rate that holds now.
func (p *pacer) set() {
	target := rate.Inf
	switch {
	case p.cfg.RatePerSecond > 0:
		target = rate.Limit(max(1, float64(p.cfg.RatePerSecond)*p.share()))
	case p.cfg.FindRate && p.speed > 0:
		target = rate.Limit(max(float64(p.cfg.MinRatePerSecond), p.speed*headroom))
	}
	p.limit.SetLimit(target)
}

// wait holds back a batch of n messages until the rate allows it.
func (p *pacer) wait(ctx context.Context, n int) error {
	p.mu.Lock()
	p.set()
	p.mu.Unlock()
	for n > 0 {
		step := min(n, p.cfg.PaceBurst)
		if err := p.limit.WaitN(ctx, step); err != nil {
			return fmt.Errorf("pace: %w", err)
		}
		n -= step
	}
	return nil
}

// begin and end surround one commit; end is told how many messages it decided, 0 when it failed.
func (p *pacer) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight == 0 {
		p.since = p.now()
	}
	p.inFlight++
}

func (p *pacer) end(decided int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.busy += now.Sub(p.since)
	p.since = now
	p.inFlight--
	if decided == 0 {
		p.speed /= 2
		p.busy, p.orders, p.commits = 0, 0, 0
		return
	}
	p.orders += decided
	p.commits++
	if p.busy < window {
		return
	}
	measured := float64(p.orders) / p.busy.Seconds()
	switch {
	case p.orders < fullBatch*p.commits:
	case measured > p.speed: // room was left: use it at once
		p.speed = measured
	default:
		p.speed += (measured - p.speed) / 4
	}
	p.busy, p.orders, p.commits = 0, 0, 0
}

// rateNow is the rate that holds now, for the metric; 0 without one.
func (p *pacer) rateNow() float64 {
	if l := p.limit.Limit(); l != rate.Inf {
		return float64(l)
	}
	return 0
}
