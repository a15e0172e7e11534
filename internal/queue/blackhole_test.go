package queue

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"seckill/internal/sale"
)

// FS-038: acks are asked from all in-sync replicas, on both writers; the library's own default would be none.
func TestAcksFromAll(t *testing.T) {
	t.Parallel()
	p := NewProducer(Options{Brokers: []string{"127.0.0.1:1"}})
	for name, w := range map[string]*kafka.Writer{"orders": p.orders, "dead letters": p.dead} {
		if w.RequiredAcks != kafka.RequireAll || w.Async || w.AllowAutoTopicCreation || w.BatchTimeout > 2*time.Millisecond {
			t.Errorf("%s: acks %v, async %v, auto creation %v, batch wait %v", name, w.RequiredAcks, w.Async, w.AllowAutoTopicCreation, w.BatchTimeout)
		}
	}
}

// FS-038, FS-039: a broker that takes the bytes and says nothing, and one that is not there: an error within the
// timeout, for each reservation, and one that says "uncertain"; never an acknowledgement.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := dead.Addr().String()
	_ = dead.Close()
	for name, addr := range map[string]string{"silent": ln.Addr().String(), "gone": gone} {
		p := NewProducer(Options{Brokers: []string{addr}, PublishTimeout: 300 * time.Millisecond})
		start := time.Now()
		errs := p.Publish(t.Context(), []sale.Reservation{{Token: "a", UserID: 1}, {Token: "b", UserID: 2}})
		if len(errs) != 2 || !errors.Is(errs[0], sale.ErrUncertain) || !errors.Is(errs[1], sale.ErrUncertain) {
			t.Errorf("%s: %v", name, errs)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}
