package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/shopspring/decimal"
	"github.com/twmb/franz-go/pkg/kfake"

	"seckill/internal/sale"
	"seckill/internal/testenv"
)

// eachBroker runs a test on the stand-in, and on a real broker where there is one. Topics and group are the test's own.
func eachBroker(t *testing.T, test func(t *testing.T, o Options)) {
	t.Helper()
	run := func(name string, brokers func(t *testing.T) []string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := ownTopics(brokers(t))
			ensureTopics(t, o)
			test(t, o)
		})
	}
	run("kfake", func(t *testing.T) []string { return fakeBroker(t).ListenAddrs() })
	run("kafka", func(t *testing.T) []string { return strings.Split(testenv.Kafka(t), ",") })
}

func fakeBroker(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func ownTopics(brokers []string) Options {
	id := fmt.Sprintf("h%d", time.Now().UnixNano())
	return Options{Brokers: brokers, OrdersTopic: id + ".orders", DeadTopic: id + ".dead", ResultsTopic: id + ".results", Group: id}
}

func ensureTopics(t *testing.T, o Options) *Topics {
	t.Helper()
	topics := NewTopics(o)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := topics.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	return topics
}

// orderOf is the n-th reservation of a test. Those of one user are in one partition.
func orderOf(user, n int64) sale.Reservation {
	return sale.Reservation{
		Token: fmt.Sprintf("t%d-%d", user, n), UserID: user, ActivityID: "A", CommodityID: "C", Price: decimal.New(1999, -2),
		Quantity: 1, Epoch: 1, At: time.UnixMilli(1_700_000_000_000).UTC(),
	}
}

// brokerConn is a connection to a broker that a test can hurt.
type brokerConn struct {
	net.Conn
	line  *brokerLine
	born  int64       // its number
	reset atomic.Bool // the next answer is lost
}

// brokerLine makes the connections of a producer, and hurts those that exist when it is told to.
type brokerLine struct {
	born      atomic.Int64
	swallowed atomic.Int64 // generations up to this one are dead: packets vanish, no FIN comes
	loseReply atomic.Bool  // the next answer to a produce request is lost and its connection reset
	lost      atomic.Int64
	writes    atomic.Int64 // on connections that were swallowed
}

func (l *brokerLine) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &brokerConn{Conn: c, line: l, born: l.born.Add(1)}, nil
}

// swallow lets the packets of every present connection vanish, as a firewall does that forgot them.
func (l *brokerLine) swallow() { l.swallowed.Store(l.born.Load()) }

func (c *brokerConn) Write(p []byte) (int, error) {
	if c.born <= c.line.swallowed.Load() {
		c.line.writes.Add(1)
		return len(p), nil // the broker never sees it, so no answer comes either
	}
	n, err := c.Conn.Write(p)
	// A request begins with its size, then the key of the call: 0 is produce.
	if err == nil && len(p) > 6 && p[4] == 0 && p[5] == 0 && c.line.loseReply.CompareAndSwap(true, false) {
		c.reset.Store(true)
	}
	return n, err
}

func (c *brokerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.reset.Load() { // the broker has answered: the messages are written
		c.line.lost.Add(1)
		_ = c.Close()
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return n, err
}

// throughLine routes a producer over a line.
func throughLine(p *Producer) *brokerLine {
	l := &brokerLine{}
	for _, w := range []*kafka.Writer{p.orders, p.dead} {
		w.Transport.(*kafka.Transport).Dial = l.dial
	}
	return l
}

// readTopic reads all messages of the orders topic, in the order of each partition.
func readTopic(t *testing.T, o Options) (tokens []string) {
	t.Helper()
	ends, err := NewTopics(o).EndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for p, end := range ends {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: o.Brokers, Topic: o.WithDefaults().OrdersTopic, Partition: p, MaxWait: 50 * time.Millisecond})
		for range end {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				t.Fatalf("read the topic: %v", err)
			}
			res, err := Decode(m.Value, 8<<10)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, res.Token)
		}
		_ = r.Close()
	}
	return tokens
}

// FS-040: the packets of all idle broker connections vanish without a FIN. The next publish is delivered, or said to be
// uncertain within its deadline; those after it work. Idle connections are closed after 30 s, so this is the worst case.
func TestIdleConnectionIsDead(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, o Options) {
		o.PublishTimeout = time.Second
		p := NewProducer(o)
		t.Cleanup(func() { _ = p.Close() })
		line := throughLine(p)
		var acknowledged []string
		publish := func(n int64) error {
			r := orderOf(1, n)
			start := time.Now()
			errs := p.Publish(t.Context(), []sale.Reservation{r})
			if took := time.Since(start); took > o.PublishTimeout+2*time.Second {
				t.Errorf("publish %d took %v, deadline %v", n, took, o.PublishTimeout)
			}
			if errs == nil {
				acknowledged = append(acknowledged, r.Token)
				return nil
			}
			if !errors.Is(errs[0], sale.ErrUncertain) {
				t.Errorf("publish %d: %v, want uncertain", n, errs[0])
			}
			return errs[0]
		}
		if err := publish(1); err != nil {
			t.Fatal(err)
		}
		line.swallow()
		first := publish(2)
		if line.writes.Load() == 0 {
			t.Fatal("nothing went over the dead connection: the test proves nothing")
		}
		failed := 0
		for n := int64(3); n < 8; n++ {
			if publish(n) != nil {
				failed++
			}
		}
		if failed > 1 {
			t.Errorf("%d of 5 publishes after it failed too", failed)
		}
		got := readTopic(t, o)
		for _, token := range acknowledged {
			if !slices.Contains(got, token) {
				t.Errorf("%s was acknowledged and is not in the topic", token)
			}
		}
		t.Logf("first publish after the silence: %v; %d of the next 5 failed", first, failed)
	})
}

// R1, R3 (the retries of kafka-go's writer): the messages are written, their acknowledgement is lost, and the writer
// sends them again by itself. Every copy is the same reservation under the same token, which the database decides once.
func TestWriterRepeatsWhatWasWritten(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, o Options) {
		p := NewProducer(o)
		t.Cleanup(func() { _ = p.Close() })
		line := throughLine(p)
		rs := []sale.Reservation{orderOf(1, 1), orderOf(1, 2)}
		line.loseReply.Store(true)
		if errs := p.Publish(t.Context(), rs); errs != nil {
			t.Fatalf("publish: %v", errs)
		}
		if line.lost.Load() != 1 {
			t.Fatal("no reply was lost: the test proves nothing")
		}
		got := readTopic(t, o)
		if want := []string{rs[0].Token, rs[1].Token, rs[0].Token, rs[1].Token}; !slices.Equal(got, want) {
			t.Errorf("topic holds %v, want %v", got, want)
		}
	})
}

// FS-044: the producer is closed while it writes and while the broker is silent. It ends within its bound, and what it
// acknowledged is in the topic.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, o Options) {
		o.PublishTimeout, o.CloseTimeout, o.Log = 500*time.Millisecond, time.Second, slog.New(slog.DiscardHandler)
		p := NewProducer(o)
		line := throughLine(p)
		var mu sync.Mutex
		var acknowledged []string
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for user := range int64(20) {
			wg.Go(func() {
				for n := int64(0); ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					r := orderOf(user+1, n)
					if p.Publish(t.Context(), []sale.Reservation{r}) == nil {
						mu.Lock()
						acknowledged = append(acknowledged, r.Token)
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(300 * time.Millisecond)
		line.swallowed.Store(1 << 60)      // the broker says nothing any more, on whatever connection
		time.Sleep(700 * time.Millisecond) // batches pile up behind the silence
		start := time.Now()
		err := p.Close()
		took := time.Since(start)
		close(stop)
		wg.Wait()
		t.Logf("closed in %v: %v; %d acknowledged", took, err, len(acknowledged))
		if took > o.CloseTimeout+1500*time.Millisecond {
			t.Errorf("close took %v, bound %v", took, o.CloseTimeout)
		}
		got := map[string]bool{}
		for _, token := range readTopic(t, o) {
			got[token] = true
		}
		if len(acknowledged) < 20 {
			t.Fatalf("only %d acknowledged: the test proves nothing", len(acknowledged))
		}
		for _, token := range acknowledged {
			if !got[token] {
				t.Errorf("%s was acknowledged and is not in the topic", token)
			}
		}
	})
}
