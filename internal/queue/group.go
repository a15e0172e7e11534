package queue

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/segmentio/kafka-go"

	"seckill/internal/sale"
)

// Handler finishes a batch of one partition, in offset order: when it returns nil, every delivery in it is decided
// and told, or parked, and the offset may be committed. An error means the batch is not finished; it will be read
// again, by this member or another.
type Handler func(ctx context.Context, batch []sale.Delivery) error

// Group is one member of the consumer group. Each partition it owns has its own loop: fetch a batch, handle it,
// commit the offset after it. Commits carry the generation of the group, so a member that has lost a partition
// cannot move its offset (FS-048); an offset is committed only below the first unfinished message (FS-046, FS-047).
type Group struct {
	o   Options
	lag lagTable
}

// NewGroup returns a member; Run joins it.
func NewGroup(o Options) *Group {
	return &Group{o: o.WithDefaults(), lag: lagTable{of: map[int]int64{}}}
}

// Run consumes until ctx ends, then lets the batches in hand finish and leaves the group. It joins again after
// every failure with a bounded back-off, for ever: a queue that is away is not a reason to stop.
func (g *Group) Run(ctx context.Context, handle Handler) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, g.o.RetryBackoffMax
	for ctx.Err() == nil {
		if err := g.member(ctx, handle, wait.Reset); ctx.Err() == nil {
			g.o.Log.Warn("consumer group: joining again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.NextBackOff()):
		}
	}
}

// member joins the group and serves its generations until something fails or ctx ends.
func (g *Group) member(ctx context.Context, handle Handler, joined func()) error {
	cg, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:      g.o.Group,
		Brokers: g.o.Brokers,
		Topics:  []string{g.o.OrdersTopic},
		Dialer:  &kafka.Dialer{Timeout: g.o.DialTimeout, ClientID: "seckill-consumer"},
		// What came before the first commit is read too (FS-062).
		StartOffset:           kafka.FirstOffset,
		HeartbeatInterval:     g.o.SessionTimeout / 5,
		SessionTimeout:        g.o.SessionTimeout,
		RebalanceTimeout:      g.o.RebalanceTimeout,
		JoinGroupBackoff:      200 * time.Millisecond,
		WatchPartitionChanges: true,
		Timeout:               g.o.DialTimeout,
	})
	if err != nil {
		return fmt.Errorf("join consumer group: %w", err)
	}
	var loops sync.WaitGroup // of partitions; a batch in hand is finished
	leave, left := leaveInBackground(cg)
	stop := context.AfterFunc(ctx, leave)
	defer func() {
		stop()
		leave()
		loops.Wait()
		g.awaitLeft(left)
		g.lag.clear()
	}()
	for {
		gen, err := cg.Next(ctx)
		if err != nil {
			return fmt.Errorf("next generation: %w", err)
		}
		joined()
		assigned := gen.Assignments[g.o.OrdersTopic]
		g.lag.assign(assigned)
		g.o.Log.Info("consumer group: generation", "generation", gen.ID, "partitions", len(assigned))
		for _, p := range assigned {
			loops.Add(1)
			gen.Start(func(genCtx context.Context) {
				defer loops.Done()
				g.servePartition(ctx, genCtx, gen, p, handle)
			})
		}
	}
}

// leaveInBackground returns a function that closes the group, at the first call and without waiting, and a channel that
// is closed when it has left.
func leaveInBackground(cg *kafka.ConsumerGroup) (leave func(), left <-chan struct{}) {
	done := make(chan struct{})
	return sync.OnceFunc(func() {
		go func() {
			_ = cg.Close()
			close(done)
		}()
	}), done
}

// awaitLeft waits until the group was left, at most LeaveTimeout: one who waits to join cannot take that back, and a
// member that is busy may hold it up for the whole RebalanceTimeout (FS-061). The coordinator expels who is gone.
func (g *Group) awaitLeft(left <-chan struct{}) {
	late := time.NewTimer(g.o.LeaveTimeout)
	defer late.Stop()
	select {
	case <-left:
	case <-late.C:
		g.o.Log.Warn("consumer group: gone without leaving", "after", g.o.LeaveTimeout)
	}
}

// servePartition is the loop of one partition in one generation.
func (g *Group) servePartition(ctx, genCtx context.Context, gen *kafka.Generation, p kafka.PartitionAssignment, handle Handler) {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers:       g.o.Brokers,
		Topic:         g.o.OrdersTopic,
		Partition:     p.ID,
		Dialer:        &kafka.Dialer{Timeout: g.o.DialTimeout, ClientID: "seckill-consumer"},
		MinBytes:      1,
		MaxBytes:      4 << 20,
		MaxWait:       g.o.FetchWait,
		QueueCapacity: g.o.FetchBatch * 2,
		MaxAttempts:   3, // of a fetch, before it is an error here; a repeated read changes nothing
		// A reader that lost its leader finds the new one within this (FS-063).
		ReadBackoffMin: 20 * time.Millisecond,
		ReadBackoffMax: g.o.RetryBackoffMax,
	})
	defer func() { _ = r.Close() }()
	if err := r.SetOffset(p.Offset); err != nil {
		g.o.Log.Error("consumer group: set offset", "partition", p.ID, "offset", p.Offset, "err", err)
		return
	}
	for {
		batch, err := g.fetch(genCtx, r, p.ID)
		if err != nil {
			if genCtx.Err() == nil {
				g.o.Log.Warn("consumer group: fetch", "partition", p.ID, "err", err)
			}
			return
		}
		// The batch is finished even if the generation ends meanwhile; the handler bounds its own time.
		if err := handle(context.WithoutCancel(ctx), batch); err != nil {
			g.o.Log.Warn("consumer group: batch not finished", "partition", p.ID, "offset", batch[0].Offset, "err", err)
			return
		}
		next := batch[len(batch)-1].Offset + 1
		// Sent once, not repeated by the library: after an error the batch comes again, to whoever owns the partition (R2).
		if err := gen.CommitOffsets(map[string]map[int]int64{g.o.OrdersTopic: {p.ID: next}}); err != nil {
			// Somebody else owns the partition now, or the coordinator is away: read again from what stands.
			g.o.Log.Warn("consumer group: commit offset", "partition", p.ID, "offset", next, "err", err)
			return
		}
	}
}

// fetch waits for a message, then takes what else comes within the linger, up to a batch.
func (g *Group) fetch(ctx context.Context, r *kafka.Reader, partition int) ([]sale.Delivery, error) {
	m, err := r.FetchMessage(ctx)
	if err != nil {
		return nil, err
	}
	batch := make([]sale.Delivery, 1, 16)
	batch[0] = g.delivery(m)
	high := m.HighWaterMark
	linger, cancel := context.WithTimeout(ctx, g.o.FetchLinger)
	defer cancel()
	for len(batch) < g.o.FetchBatch {
		m, err := r.FetchMessage(linger)
		if err != nil {
			if linger.Err() != nil { // the time is over, or the generation: hand over what is there
				break
			}
			return nil, err
		}
		high = max(high, m.HighWaterMark)
		batch = append(batch, g.delivery(m))
	}
	g.lag.set(partition, high-batch[len(batch)-1].Offset-1)
	return batch, nil
}

func (g *Group) delivery(m kafka.Message) sale.Delivery {
	res, err := Decode(m.Value, g.o.MaxMessageBytes)
	d := sale.Delivery{Malformed: err, Raw: m.Value, Arrived: m.Time}
	d.Reservation, d.Partition, d.Offset = res, m.Partition, m.Offset
	for _, h := range m.Headers {
		switch h.Key {
		case headerTrace:
			d.TraceID = string(h.Value)
		case headerRelays:
			if n, err := strconv.Atoi(string(h.Value)); err == nil && n > 0 {
				d.Relays = n
			}
		}
	}
	return d
}

// Lag returns, for each partition this member owns, how many messages it has not yet fetched, as last seen.
func (g *Group) Lag() map[int]int64 { return g.lag.copy() }

// lagTable holds the last known lag of each owned partition.
type lagTable struct {
	mu sync.Mutex
	of map[int]int64
}

func (l *lagTable) assign(ps []kafka.PartitionAssignment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.of)
	for _, p := range ps {
		l.of[p.ID] = 0
	}
}

func (l *lagTable) set(partition int, lag int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[partition] = max(0, lag)
}

func (l *lagTable) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.of)
}

func (l *lagTable) copy() map[int]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[int]int64, len(l.of))
	for p, n := range l.of {
		out[p] = n
	}
	return out
}
