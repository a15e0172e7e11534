package queuetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"seckill/internal/queue"
	"seckill/internal/sale"
)

func testMalformed(t *testing.T, o with) {
	ensure(t, o)
	w := &kafka.Writer{Addr: kafka.TCP(o.Brokers...), Topic: o.OrdersTopic, BatchTimeout: time.Millisecond, RequiredAcks: kafka.RequireAll}
	t.Cleanup(func() { _ = w.Close() })
	good := queue.Encode(reservation(7))
	bad := [][]byte{[]byte("not-json {{{"), {}, nil, []byte(`{"v":1,"requestToken":"tok9","userId":9,"activityId":"A","quantity":-1}`)}
	msgs := []kafka.Message{{Key: []byte("7"), Value: good}}
	for _, b := range bad {
		msgs = append(msgs, kafka.Message{Key: []byte("7"), Value: b})
	}
	msgs = append(msgs, kafka.Message{Key: []byte("8"), Value: queue.Encode(reservation(8))})
	if err := w.WriteMessages(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
	p := queue.NewProducer(o.Options)
	t.Cleanup(func() { _ = p.Close() })
	s := newSink(6)
	member(t, o, func(ctx context.Context, batch []sale.Delivery) error {
		for _, d := range batch {
			if d.Malformed != nil {
				if err := p.Park(ctx, d, "malformed"); err != nil {
					return err
				}
			}
		}
		return s.handle(ctx, batch)
	})
	s.wait(t)
	malformed := 0
	for _, d := range s.got {
		if d.Malformed == nil {
			continue
		}
		malformed++
		if !errors.Is(d.Malformed, queue.ErrMalformed) {
			t.Errorf("error is %v", d.Malformed)
		}
		if d.Token == "tok9" && d.UserID != 9 {
			t.Errorf("the readable part is lost: %+v", d)
		}
	}
	if malformed != 4 {
		t.Errorf("%d malformed, want 4", malformed)
	}
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: o.Brokers, Topic: o.DeadTopic, Partition: 0, MaxWait: 100 * time.Millisecond})
	defer func() { _ = r.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 4 {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			t.Fatalf("read dead letters: %v", err)
		}
		if len(m.Headers) != 4 || m.Headers[0].Key != "reason" || string(m.Headers[0].Value) != "malformed" {
			t.Errorf("headers %v", m.Headers)
		}
	}
}
