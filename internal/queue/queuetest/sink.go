package queuetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"seckill/internal/queue"
	"seckill/internal/sale"
)

// sink collects deliveries and tells when as many distinct tokens as wanted have come.
type sink struct {
	mu    sync.Mutex
	got   []sale.Delivery
	seen  map[string]int
	want  int
	done  chan struct{}
	fired bool
}

func newSink(want int) *sink {
	return &sink{seen: map[string]int{}, want: want, done: make(chan struct{})}
}

func (s *sink) handle(_ context.Context, batch []sale.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range batch {
		s.got = append(s.got, d)
		key := d.Token
		if d.Malformed != nil {
			key = fmt.Sprintf("malformed-%d-%d", d.Partition, d.Offset)
		}
		s.seen[key]++
	}
	if len(s.seen) >= s.want && !s.fired {
		s.fired = true
		close(s.done)
	}
	return nil
}

func (s *sink) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(40 * time.Second):
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Fatalf("got %d of %d messages", len(s.seen), s.want)
	}
}

// member runs a group member until stop is called; stop returns once it has left.
func member(t *testing.T, o with, h queue.Handler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.b.Member(o.Options).Run(ctx, h)
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(15 * time.Second):
			t.Error("member did not leave within 15 s")
		}
	}
	t.Cleanup(stop)
	return stop
}
