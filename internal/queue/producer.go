package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"seckill/internal/sale"
)

// Producer publishes order messages and dead letters.
type Producer struct {
	o      Options
	orders *kafka.Writer
	dead   *kafka.Writer
}

// NewProducer returns a producer. It connects lazily; see Topics.Ensure.
func NewProducer(o Options) *Producer {
	o = o.WithDefaults()
	return &Producer{o: o, orders: newWriter(o, o.OrdersTopic), dead: newWriter(o, o.DeadTopic)}
}

func newWriter(o Options, topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr:         kafka.TCP(o.Brokers...),
		Topic:        topic,
		Balancer:     &kafka.Hash{}, // by key: one user, one partition, in order (FS-042)
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: o.BatchTimeout,
		BatchSize:    o.BatchSize,
		BatchBytes:   o.BatchBytes,
		// The writer's own retries may deliver twice. That is harmless: the consumer decides a token once (R1).
		MaxAttempts:            3,
		WriteBackoffMin:        20 * time.Millisecond,
		WriteBackoffMax:        200 * time.Millisecond,
		WriteTimeout:           o.PublishTimeout,
		ReadTimeout:            o.PublishTimeout,
		AllowAutoTopicCreation: false,
		Transport:              transport(o),
	}
}

// Publish writes the messages of these reservations, keyed by user, and waits until all in-sync replicas have them
// or PublishTimeout has passed. The result is nil when all are acknowledged; otherwise it has one entry for each
// reservation, nil where acknowledged. An error means "uncertain": the message may still arrive (R3, FS-006).
func (p *Producer) Publish(ctx context.Context, rs []sale.Reservation) []error {
	if len(rs) == 0 {
		return nil
	}
	msgs := make([]kafka.Message, len(rs))
	for i := range rs {
		msgs[i] = kafka.Message{Key: strconv.AppendInt(nil, rs[i].UserID, 10), Value: Encode(rs[i])}
		if rs[i].Relays > 0 {
			msgs[i].Headers = append(msgs[i].Headers, kafka.Header{Key: headerRelays, Value: strconv.AppendInt(nil, int64(rs[i].Relays), 10)})
		}
		if rs[i].TraceID != "" {
			msgs[i].Headers = append(msgs[i].Headers, kafka.Header{Key: headerTrace, Value: []byte(rs[i].TraceID)})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.PublishTimeout)
	defer cancel()
	err := p.orders.WriteMessages(ctx, msgs...)
	if err == nil {
		return nil
	}
	errs := make([]error, len(rs))
	var each kafka.WriteErrors
	if errors.As(err, &each) && len(each) == len(rs) {
		for i, e := range each {
			if e != nil {
				errs[i] = fmt.Errorf("publish order: %w: %w", sale.ErrUncertain, e)
			}
		}
		return errs
	}
	for i := range errs {
		errs[i] = fmt.Errorf("publish order: %w: %w", sale.ErrUncertain, err)
	}
	return errs
}

// Headers of an order message.
const (
	headerRelays = "relays"   // how often the reconciler has enqueued this reservation again
	headerTrace  = "trace-id" // of the request that made it, for the log (S9)
)

// Replay writes a dead letter to the orders topic as it was. A repeat is harmless: a token is decided once (R18).
func (p *Producer) Replay(ctx context.Context, key, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.PublishTimeout)
	defer cancel()
	if len(key) == 0 {
		key = []byte("unknown")
	}
	if err := p.orders.WriteMessages(ctx, kafka.Message{Key: key, Value: value}); err != nil {
		return fmt.Errorf("replay dead letter: %w: %w", sale.ErrUncertain, err)
	}
	return nil
}

// Park writes a message that can never succeed to the dead letter topic, with its reason and where it came from
// (S11). It returns once the replicas have it.
func (p *Producer) Park(ctx context.Context, d sale.Delivery, reason string) error {
	key := []byte("unknown")
	if d.UserID > 0 {
		key = strconv.AppendInt(nil, d.UserID, 10)
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.PublishTimeout)
	defer cancel()
	err := p.dead.WriteMessages(ctx, kafka.Message{
		Key: key, Value: d.Raw,
		Headers: []kafka.Header{
			{Key: "reason", Value: []byte(reason)},
			{Key: "origin-topic", Value: []byte(p.o.OrdersTopic)},
			{Key: "origin-partition", Value: strconv.AppendInt(nil, int64(d.Partition), 10)},
			{Key: "origin-offset", Value: strconv.AppendInt(nil, d.Offset, 10)},
		},
	})
	if err != nil {
		return fmt.Errorf("park dead letter: %w", err)
	}
	return nil
}

// Close writes what is still waiting and closes the connections, within CloseTimeout: the library waits for as long as
// its batches and their repeats take, which behind a silent broker is without end (FS-044). What is given up then was
// acknowledged to nobody: its reservations stay occupied, and the relay enqueues them again (R3).
func (p *Producer) Close() error {
	done := make(chan error, 2)
	for _, w := range []*kafka.Writer{p.orders, p.dead} {
		go func() { done <- w.Close() }()
	}
	late := time.NewTimer(p.o.CloseTimeout)
	defer late.Stop()
	var errs []error
	for range cap(done) {
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-late.C:
			p.o.Log.Warn("producer: closed with messages still on their way, left to the relay", "after", p.o.CloseTimeout)
			return errors.Join(errs...)
		}
	}
	return errors.Join(errs...)
}
