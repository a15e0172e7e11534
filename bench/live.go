package bench

import (
	"context"
	"errors"
	"time"
)

// Live is a time in which the stock of the sale changes all the time, every socket looks at it, and results go on at the
// fixed rate. The state is published four times a second, as by a reconciler.
type Live struct {
	Published      int           // states
	PerViewer      float64       // states that a socket was told, on average; a newer one replaces one that waits
	AgeP50, AgeP99 time.Duration // of a state when the client has it, since its pusher took it; whole milliseconds
	Results        Stretch       // meanwhile
	RSSPerSocket   float64       // bytes, at its end
}

// liveEvery is the time between two states.
const liveEvery = 250 * time.Millisecond

// live has the stock change, and takes how it is told and what that does to results.
func (b *pushBench) live(ctx context.Context) error {
	if b.o.Live <= 0 || b.o.Floor != "" {
		return nil
	}
	selling, stop := context.WithCancel(ctx)
	defer stop()
	published, failed, began := 0, error(nil), time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(liveEvery); failed == nil; {
			select {
			case <-selling.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			if failed = b.sellOne(ctx, published); failed == nil {
				published++
			}
		}
	}()
	r, ages, err := b.stretch(ctx, b.o.Live)
	stop()
	<-done
	took := time.Since(began)
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	u, err := b.usage(ctx)
	if err != nil {
		return err
	}
	sockets := float64(len(b.users))
	l := Live{
		Published: published, PerViewer: float64(ages.TotalCount()) / sockets, Results: r,
		AgeP50: time.Duration(ages.ValueAtQuantile(50)) * time.Microsecond, AgeP99: time.Duration(ages.ValueAtQuantile(99)) * time.Microsecond,
		RSSPerSocket: float64(u.RSS-b.empty.RSS) / sockets,
	}
	b.report.Live = &l
	b.say("%d states published, a viewer was told %.1f of them, %.0f in all a second; age p50 %v, p99 %v; %.2f KiB a socket afterwards",
		l.Published, l.PerViewer, float64(ages.TotalCount())/took.Seconds(), l.AgeP50, l.AgeP99, l.RSSPerSocket/1024)
	return nil
}
