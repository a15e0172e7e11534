package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"seckill/internal/sale"
)

// result is one to publish: its order number is the time when it was due.
func (b *pushBench) result(due time.Time) sale.UserResult {
	return sale.UserResult{UserID: b.users[rand.IntN(len(b.users))], Result: sale.Result{
		RequestToken: "bench-" + strconv.FormatInt(b.sent.Add(1), 10), ActivityID: benchSale, CommodityID: commodity, Quantity: 1,
		Status: sale.StatusPendingPayment, OrderNo: strconv.FormatInt(due.UnixNano(), 10), PayBefore: due.Add(time.Minute), Version: 1,
	}}
}

// atRate takes the latencies at a fixed rate.
func (b *pushBench) atRate(ctx context.Context) error {
	if b.o.For <= 0 {
		return nil
	}
	var err error
	b.report.AtRate, _, err = b.stretch(ctx, b.o.For)
	return err
}

// stretch publishes at the fixed rate, whether or not the servers keep up, and takes the latencies, and those of the
// live state that came meanwhile.
func (b *pushBench) stretch(ctx context.Context, during time.Duration) (s Stretch, live *hdrhistogram.Histogram, err error) {
	if _, _, err := b.collect(); err != nil { // forgets what was before
		return s, nil, err
	}
	before, err := b.usage(ctx)
	if err != nil {
		return s, nil, err
	}
	n := int(during * time.Duration(b.o.Rate) / time.Second)
	from := time.Now()
	// A publisher that pauses keeps its processor, and the others must not wait for it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + publishers))
	errs := make([]error, publishers)
	var all sync.WaitGroup
	for i := range publishers {
		all.Go(func() { errs[i] = b.publish(ctx, from, i, n) })
	}
	all.Wait()
	after, err := b.usage(ctx)
	if err = errors.Join(append(errs, err)...); err != nil {
		return s, nil, err
	}
	time.Sleep(settleAfter)
	h, live, err := b.collect()
	if err != nil {
		return s, nil, err
	}
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond }
	s = Stretch{
		Rate: b.o.Rate, P50: at(50), P99: at(99), P999: at(99.9), Max: time.Duration(h.Max()) * time.Microsecond,
		PusherP99:  after.within(0.99, before),
		CPUPerPush: (after.CPU - before.CPU) / time.Duration(max(1, n)),
	}
	inside := "" // a floor does not tell
	if b.o.Floor == "" {
		inside = fmt.Sprintf("inside the pusher p99 at most %v; ", s.PusherP99)
	}
	b.say("%d a second for %v: p50 %v, p99 %v, p99.9 %v, max %v; %s%v of processor a push",
		s.Rate, during, s.P50, s.P99, s.P999, s.Max, inside, s.CPUPerPush)
	return s, live, nil
}

// publish is one publisher: every so many-th result is its, from the i-th on, each when it is due.
func (b *pushBench) publish(ctx context.Context, from time.Time, i, n int) error {
	for i < n && ctx.Err() == nil {
		var batch []sale.UserResult
		for i < n && len(batch) < mostAtOnce {
			due := from.Add(time.Duration(i) * time.Second / time.Duration(b.o.Rate))
			if wait := time.Until(due); wait > 0 {
				if len(batch) == 0 {
					pause(wait)
					continue
				}
				break
			}
			batch = append(batch, b.result(due))
			i += publishers
		}
		if err := b.out.Results(ctx, batch); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// collect merges the workers' latencies since the last time: of results, and the ages of live states.
func (b *pushBench) collect() (results, live *hdrhistogram.Histogram, err error) {
	results, live = newHistogram(), newHistogram()
	for _, w := range b.workers {
		r, err := w.ask("report")
		if err != nil {
			return nil, nil, err
		}
		results.Merge(hdrhistogram.Import(r.Latency))
		live.Merge(hdrhistogram.Import(r.Live))
	}
	return results, live, nil
}
