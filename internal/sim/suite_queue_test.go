package sim

import (
	"context"
	"testing"
	"testing/synctest"

	"seckill/internal/queue"
	"seckill/internal/queue/queuetest"
	"seckill/internal/sale"
)

// The simulation's broker passes the product's own suite, for what it models: messages and groups, not bytes and topics.
func TestQueueSuite(t *testing.T) {
	t.Parallel()
	queuetest.RunCore(t, func(t *testing.T, test func(*testing.T, queuetest.Backend)) {
		synctest.Test(t, func(t *testing.T) {
			test(t, newQueueBench(t, 1).backend())
		})
	}, map[string]string{
		"FS-051 malformed messages come with what is known": "the bytes of messages",
		"S10 fewer partitions than configured is an error":  "topics and their configuration",
	})
}

// queueBench is a world of which only the broker is used, with a scheduler that runs beside a test.
type queueBench struct {
	w    *World
	todo chan func()
	over bool
}

// newQueueBench must be called in a bubble, and ends with the test.
func newQueueBench(t *testing.T, seed uint64) *queueBench {
	q := &queueBench{w: newWorld(Config{Seed: seed}), todo: make(chan func(), 64)}
	q.w.calm = true // nothing fails
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.loop()
	}()
	t.Cleanup(func() {
		q.in(func() { q.w.close(); q.over = true })
		<-ended
	})
	return q
}

// in does something between two steps of the scheduler, and waits for it.
func (q *queueBench) in(do func()) {
	done := make(chan struct{})
	q.todo <- func() { defer close(done); do() }
	select {
	case q.w.wake <- struct{}{}:
	default:
	}
	<-done
}

// loop is World.loop without an end of its own.
func (q *queueBench) loop() {
	w := q.w
	for !q.over {
		synctest.Wait()
		select {
		case do := <-q.todo:
			do()
			continue
		default:
		}
		w.gather()
		if w.runEvent() {
			continue
		}
		if ready := w.ready(); len(ready) > 0 {
			w.serve(w.choose(ready))
		} else if len(q.todo) == 0 {
			w.sleep()
		}
	}
}

func (q *queueBench) backend() queuetest.Backend {
	return queuetest.Backend{
		Topics: func(o queue.Options) queuetest.Topics {
			return &benchTopics{q: q, partitions: o.WithDefaults().PartitionCount()}
		},
		Producer: func(queue.Options) queuetest.Producer {
			var p *proc
			q.in(func() { p = q.w.spawn("publisher") })
			return benchProducer{&producer{b: q.w.broker, p: p}}
		},
		Member: func(o queue.Options) queuetest.Member { return &benchMember{q, int64(o.FetchBatch)} },
	}
}

// benchTopics makes the broker's partitions, and reads its offsets.
type benchTopics struct {
	*offsets
	q          *queueBench
	partitions int
}

// Ensure makes the topic.
func (b *benchTopics) Ensure(context.Context) error {
	b.q.in(func() {
		b.q.w.broker = newBroker(b.q.w, b.partitions)
		b.offsets = &offsets{b.q.w.broker, b.q.w.spawn("reader")}
	})
	return nil
}

type benchProducer struct{ *producer }

// Close has nothing to close.
func (benchProducer) Close() error { return nil }

// benchMember is a consumer process with a handler of the suite.
type benchMember struct {
	q       *queueBench
	fetches int64
}

// Run is as of package queue: a member that joins or leaves gives every partition a new generation, and one that leaves
// finishes the batches in hand.
func (b *benchMember) Run(ctx context.Context, handle queue.Handler) {
	w := b.q.w
	var p *proc
	b.q.in(func() {
		others := w.broker.consumer
		w.broker.consumer = func(m *member) func(context.Context, []sale.Delivery) error {
			if m.p == p {
				return handle
			}
			return others(m)
		}
		p = w.spawn("consumer")
		p.fetches = b.fetches
		for i := range w.broker.parts {
			w.broker.rebalance(i)
		}
	})
	<-ctx.Done()
	b.q.in(func() { p.leaving = true })
	p.loops.Wait()
	b.q.in(func() {
		p.die()
		w.broker.left(p)
	})
}
