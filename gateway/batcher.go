package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"seckill/internal/sale"
)

// admission is the answer to one order request: what Redis said, and whether the broker has the message.
type admission struct {
	reply     sale.ReserveReply
	published bool  // the broker acknowledged the message of this reservation (R9)
	err       error // the script call as a whole failed
}

// waiting is one order request on its way through a batcher.
type waiting struct {
	req   sale.ReserveRequest
	trace string
	done  chan admission // holds one, so that nobody waits for a caller that has left
}

// batcher admits the order requests of one sale. Those that wait while a script call is in flight go together in the
// next call; there is no timer. Publishing does not hold up the next call.
type batcher struct {
	g          *Gateway
	activityID string
	queue      chan *waiting
	publishing chan struct{} // bounds publish calls in flight
}

// batchers holds one batcher for each sale that has had an order request.
type batchers struct {
	mu sync.Mutex
	of map[string]*batcher
}

// batcherOf returns the batcher of a sale, starting it if need be.
func (g *Gateway) batcherOf(activityID string) *batcher {
	g.batchers.mu.Lock()
	defer g.batchers.mu.Unlock()
	b, ok := g.batchers.of[activityID]
	if !ok {
		b = &batcher{
			g: g, activityID: activityID,
			queue:      make(chan *waiting, g.cfg.ReserveQueue),
			publishing: make(chan struct{}, g.cfg.PublishesInFlight),
		}
		g.batchers.of[activityID] = b
		g.background.Go(b.run)
	}
	return b
}

// admit asks for stock and waits for the answer. After AdmitTimeout the outcome is unknown: the request may yet be
// admitted, so the caller tells "pending" (FS-025).
func (b *batcher) admit(req sale.ReserveRequest, trace string) admission {
	w := &waiting{req: req, trace: trace, done: make(chan admission, 1)}
	select {
	case b.queue <- w:
	default:
		return admission{err: retryLater(sale.CodeOverloaded, "too many requests wait here, please try again", time.Second)}
	}
	timeout := time.NewTimer(b.g.cfg.AdmitTimeout)
	defer timeout.Stop()
	select {
	case a := <-w.done:
		return a
	case <-timeout.C:
		return admission{err: sale.ErrUncertain}
	}
}

// run gathers and admits batches until the gateway stops and the queue is empty.
func (b *batcher) run() {
	batch := make([]*waiting, 0, b.g.cfg.ReserveBatch)
	for {
		select {
		case w := <-b.queue:
			batch = append(batch[:0], w)
		case <-b.g.stopping:
			return
		}
		for len(batch) < cap(batch) {
			select {
			case w := <-b.queue:
				batch = append(batch, w)
				continue
			default:
			}
			break
		}
		b.admitBatch(batch)
	}
}

// admitBatch makes one script call for a batch and hands on what was accepted.
func (b *batcher) admitBatch(batch []*waiting) {
	ctx, cancel := context.WithTimeout(context.Background(), b.g.cfg.StoreTimeout)
	defer cancel()
	granted, err := b.g.quota.take(ctx, len(batch))
	if err != nil {
		// Nothing was asked of the sale yet, whatever became of the permits.
		b.fail(batch, fmt.Errorf("system-wide window: %w: %s", sale.ErrTransient, err.Error()))
		return
	}
	for _, w := range batch[granted:] {
		w.done <- admission{err: retryLater(sale.CodeRateLimited, "the shop is at its limit, please try again", time.Second)}
	}
	batch = batch[:granted]
	if len(batch) == 0 {
		return
	}
	reqs := make([]sale.ReserveRequest, len(batch))
	for i, w := range batch {
		reqs[i] = w.req
	}
	replies, err := b.g.stock.Reserve(ctx, b.activityID, b.g.now(), reqs)
	if err != nil {
		b.fail(batch, err)
		return
	}
	var held []*waiting
	var heldReplies []sale.ReserveReply
	for i, r := range replies {
		b.g.metrics.reserved.WithLabelValues(string(r.Outcome)).Inc()
		if toPublish(&r) {
			held, heldReplies = append(held, batch[i]), append(heldReplies, r)
			continue
		}
		batch[i].done <- admission{reply: r}
	}
	if len(held) > 0 {
		b.publish(held, heldReplies)
	}
}

// toPublish: a fresh reservation, and a repeat that finds its token still occupied, since the first publish may have
// been lost (R9).
func toPublish(r *sale.ReserveReply) bool {
	return r.Outcome == sale.ReserveAccepted || (r.Outcome == sale.ReserveRepeat && r.Reservation.Token != "")
}

// publish enqueues reservations in the background and answers each request when the broker has answered.
func (b *batcher) publish(held []*waiting, replies []sale.ReserveReply) {
	b.publishing <- struct{}{}
	b.g.background.Go(func() {
		defer func() { <-b.publishing }()
		rs := make([]sale.Reservation, len(replies))
		for i := range replies {
			rs[i] = replies[i].Reservation
			rs[i].TraceID = held[i].trace
		}
		b.g.step("reserved")
		start := time.Now()
		errs := b.g.queue.Publish(context.Background(), rs)
		b.g.metrics.published.Observe(time.Since(start).Seconds())
		for i, w := range held {
			a := admission{reply: replies[i], published: true}
			if errs != nil && errs[i] != nil {
				a.published = false
				b.g.metrics.publishFailed.Inc()
				b.g.log.Warn("gateway: publish uncertain, left to the relay", "activity", b.activityID, "err", errs[i])
			}
			w.done <- a
		}
	})
}

// fail answers a whole batch whose script call failed. Only an error that says for sure that nothing ran is told as
// "try again"; otherwise the outcome is unknown.
func (b *batcher) fail(batch []*waiting, err error) {
	b.g.metrics.reserved.WithLabelValues("error").Add(float64(len(batch)))
	b.g.log.Warn("gateway: reserve failed", "activity", b.activityID, "requests", len(batch), "err", err)
	if !errors.Is(err, sale.ErrUncertain) {
		err = retryLater(sale.CodeOverloaded, "busy, please try again", time.Second)
	}
	for _, w := range batch {
		w.done <- admission{err: err}
	}
}

// quota holds permits of the system-wide window, fetched in chunks so that one Redis call serves many requests (S4).
type quota struct {
	mu      sync.Mutex
	stock   Stock
	now     func() time.Time
	chunk   int
	permits int
	until   time.Time // permits are good within their second
}

// take returns how many of n requests may go on.
func (q *quota) take(ctx context.Context, n int) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	if !now.Before(q.until) {
		q.permits = 0
	}
	if q.permits < n {
		granted, err := q.stock.SystemQuota(ctx, now, max(q.chunk, n-q.permits))
		if err != nil {
			return 0, err
		}
		if q.permits == 0 {
			q.until = now.Truncate(time.Second).Add(time.Second)
		}
		q.permits += granted
	}
	n = min(n, q.permits)
	q.permits -= n
	return n, nil
}
