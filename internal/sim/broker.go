package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"seckill/internal/sale"
)

// broker is a Kafka with one topic and one group. It loses nothing that it has acknowledged; what it has not
// acknowledged may be there, come later, or never.
type broker struct {
	w     *World
	parts []*partition
	// consumer makes what handles the batches of a member. Default: the product's consumer.
	consumer func(m *member) func(context.Context, []sale.Delivery) error
	partOf   func(user int64, partitions int) int // default: modulo
}

type partition struct {
	log        []sale.Reservation
	committed  int64
	owner      *proc // nil: nobody yet
	generation int
	planned    bool // a new owner will be chosen
}

func newBroker(w *World, n int) *broker {
	b := &broker{w: w, consumer: w.newConsumer, partOf: modulo}
	for range n {
		b.parts = append(b.parts, &partition{})
	}
	return b
}

// modulo is the partition of a user. Kafka's clients use a hash, which means the same for the order of messages.
func modulo(user int64, partitions int) int { return int(user % int64(partitions)) }

func (b *broker) append(r sale.Reservation) {
	p := b.parts[b.partOf(r.UserID, len(b.parts))]
	p.log = append(p.log, r)
}

// producer is one process's client of the broker.
type producer struct {
	b     *broker
	p     *proc
	relay bool // the reconciler's
}

// Publish is as of package queue: one error for each that is uncertain.
func (q *producer) Publish(ctx context.Context, rs []sale.Reservation) []error {
	if len(rs) == 0 {
		return nil
	}
	errs := make([]error, len(rs))
	failed := false
	err := q.p.call(ctx, toKafka, "publish", rs[0].Token, func() error {
		for i := range rs {
			if q.relay && rs[i].Relays > 0 && q.b.w.cfg.Bugs.RelayReleases {
				q.b.w.redis.release(&rs[i])
				continue
			}
			errs[i] = q.b.publish(rs[i])
			failed = failed || errs[i] != nil
		}
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	if failed {
		return errs
	}
	return nil
}

// release is what a relay must never do; see Bugs.
func (r *redisServer) release(res *sale.Reservation) {
	k := r.of(res.ActivityID)
	if t := k.tokens[res.Token]; t != nil && t.state == sale.TokenOccupied {
		t.state, t.status, t.version = sale.TokenReleased, sale.StatusFailed, 1
		delete(k.occupied, res.Token)
		delete(k.marks, res.UserID)
		k.stock[res.CommodityID] += int64(res.Quantity)
		k.touch()
	}
}

// publish appends a message, or fails in one of the ways in which it may.
func (b *broker) publish(r sale.Reservation) error {
	w := b.w
	if !w.calm && w.chance(w.p.lostPublish) {
		switch w.rng.IntN(3) {
		case 0:
			w.fault("publish lost")
		case 1:
			w.fault("publish delivered, not acknowledged")
			b.append(r)
		default:
			w.fault("publish delivered late, not acknowledged")
			w.after(w.upTo(6*time.Second), "late publish of "+r.Token, func() { b.append(r) })
		}
		return fmt.Errorf("publish order: %w", sale.ErrUncertain)
	}
	b.append(r)
	if !w.calm && w.chance(w.p.dupPublish) {
		w.fault("publish delivered twice")
		b.append(r)
	}
	return nil
}

// offsets reads how far the group is.
type offsets struct {
	b *broker
	p *proc
}

// EndOffsets is as of package queue.
func (o *offsets) EndOffsets(ctx context.Context) (map[int]int64, error) {
	out := map[int]int64{}
	err := o.p.call(ctx, toKafka, "end offsets", "", func() error {
		for i, p := range o.b.parts {
			out[i] = int64(len(p.log))
		}
		return nil
	})
	return out, err
}

// Committed is as of package queue.
func (o *offsets) Committed(ctx context.Context) (map[int]int64, error) {
	out := map[int]int64{}
	err := o.p.call(ctx, toKafka, "committed offsets", "", func() error {
		for i, p := range o.b.parts {
			out[i] = p.committed
		}
		return nil
	})
	return out, err
}

// left takes the partitions of a dead consumer from it; the group notices after a while.
func (b *broker) left(p *proc) {
	for i, part := range b.parts {
		if part.owner == p {
			part.owner = nil
			b.assign(i, b.w.upTo(2*time.Second))
		}
	}
}

// assign plans a new owner for a partition.
func (b *broker) assign(i int, in time.Duration) {
	part := b.parts[i]
	if part.planned {
		return
	}
	part.planned = true
	b.w.after(in, "", func() {
		part.planned = false
		b.rebalance(i)
	})
}

// rebalance gives a partition to a consumer, perhaps another one. The old owner does not know until it commits.
func (b *broker) rebalance(i int) {
	w := b.w
	members := slices.DeleteFunc(slices.Clone(w.procs), func(p *proc) bool { return p.role != "consumer" || p.leaving })
	if len(members) == 0 {
		b.assign(i, 200*time.Millisecond)
		return
	}
	m := b.give(i, members[w.rng.IntN(len(members))])
	w.logf("partition %d belongs to %s, generation %d, from offset %d", i, m.p.name, m.generation, m.next)
	m.handle = b.consumer(m)
	m.p.loops.Go(m.serve)
}

// give makes a consumer the owner of a partition, in a new generation, from where the group is.
func (b *broker) give(i int, owner *proc) *member {
	part := b.parts[i]
	part.owner = owner
	part.generation++
	return &member{b: b, p: owner, part: i, generation: part.generation, next: part.committed}
}

// member is the loop of package queue that serves one partition in one generation.
type member struct {
	b          *broker
	p          *proc
	part       int
	generation int
	next       int64
	handle     func(context.Context, []sale.Delivery) error
}

var errGeneration = errors.New("the group has another generation")

func (m *member) serve() {
	tag := fmt.Sprintf("p%dg%d", m.part, m.generation)
	ctx := tagged(context.Background(), tag)
	part := m.b.parts[m.part]
	for {
		var batch []sale.Delivery
		ready := func() bool { return int64(len(part.log)) > m.next || part.generation != m.generation || m.p.leaving }
		err := m.p.callWhen(ctx, blocking, "fetch", tag, ready, func() error {
			batch = m.fetch(part)
			return nil
		})
		if err != nil || len(batch) == 0 {
			return
		}
		next := batch[len(batch)-1].Offset + 1
		if m.b.w.cfg.Bugs.OffsetPastHole {
			_ = m.commit(ctx, part, tag, next)
		}
		if err = m.handle(ctx, batch); err == nil {
			err = m.commit(ctx, part, tag, next)
		}
		if err != nil {
			m.leave(ctx, part, tag)
			return
		}
		m.next = next
	}
}

// commit moves the group's offset, unless the partition has gone to somebody else.
func (m *member) commit(ctx context.Context, part *partition, tag string, next int64) error {
	return m.p.call(ctx, toKafka, "commit offset", tag, func() error { return m.move(part, next) })
}

// move is the effect of a commit.
func (m *member) move(part *partition, next int64) error {
	if part.generation != m.generation {
		return errGeneration
	}
	part.committed = next
	return nil
}

// leave is what the real member does after a failure: it leaves its generation and joins again, which gives the
// partition a new one.
func (m *member) leave(ctx context.Context, part *partition, tag string) {
	_ = m.p.call(ctx, blocking, "join again", tag, func() error {
		if part.generation == m.generation {
			part.owner = nil
			m.b.assign(m.part, 50*time.Millisecond)
		}
		return nil
	})
}

// fetch takes the next messages; none when the generation is over, or the member leaves.
func (m *member) fetch(part *partition) []sale.Delivery {
	if part.generation != m.generation || m.p.leaving {
		return nil
	}
	end := min(int64(len(part.log)), m.next+1+int64(m.b.w.rng.IntN(3)))
	if m.p.fetches > 0 {
		end = min(end, m.next+m.p.fetches)
	}
	var batch []sale.Delivery
	for off := m.next; off < end; off++ {
		batch = append(batch, sale.Delivery{Pending: sale.Pending{Reservation: part.log[off], Partition: m.part, Offset: off}})
	}
	return batch
}
