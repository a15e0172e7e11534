// Package queuetest is the conformance suite of the queue: what every broker that the product runs on must do.
// It is run against the embedded stand-in and against real Apache Kafka.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/queue"
	"seckill/internal/sale"
)

// Topics reads a topic and its group, as *queue.Topics does.
type Topics interface {
	Ensure(ctx context.Context) error
	EndOffsets(ctx context.Context) (map[int]int64, error)
	Committed(ctx context.Context) (map[int]int64, error)
}

// Producer publishes, as *queue.Producer does.
type Producer interface {
	Publish(ctx context.Context, rs []sale.Reservation) []error
	Close() error
}

// Member is one of the group, as *queue.Group is.
type Member interface {
	Run(ctx context.Context, handle queue.Handler)
}

// Backend makes the parts of one broker.
type Backend struct {
	Topics   func(o queue.Options) Topics
	Producer func(o queue.Options) Producer
	Member   func(o queue.Options) Member
}

// with is what a test works with: options of topics and a group that are its own, and who makes the parts.
type with struct {
	queue.Options
	b Backend
}

func tests() map[string]func(*testing.T, with) {
	return map[string]func(*testing.T, with){
		"S10 FS-043 first publish to fresh topics is read":  testFirstPublish,
		"FS-042 one key keeps partition and order":          testOrderPerKey,
		"FS-046 an unfinished batch comes again":            testUnfinishedComesAgain,
		"FS-047 a blocked message holds its offset":         testBlockedHoldsOffset,
		"FS-047 FS-061 a member that leaves hands over":     testHandOver,
		"FS-062 what came before the first commit is read":  testFromTheStart,
		"FS-051 malformed messages come with what is known": testMalformed,
		"R10 end and committed offsets":                     testOffsets,
		"S10 fewer partitions than configured is an error":  testTooFewPartitions,
		"FS-037 an idle publish does not wait a second":     testIdlePublish,
		"FS-049 members come and go, nothing is missed":     testChurn,
	}
}

// Run runs the suite against these brokers. Every test makes topics and groups of its own.
func Run(t *testing.T, brokers []string) {
	b := Backend{
		Topics:   func(o queue.Options) Topics { return queue.NewTopics(o) },
		Producer: func(o queue.Options) Producer { return queue.NewProducer(o) },
		Member:   func(o queue.Options) Member { return queue.NewGroup(o) },
	}
	for name, test := range tests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := fmt.Sprintf("t%d", time.Now().UnixNano())
			test(t, with{queue.Options{
				Brokers: brokers, OrdersTopic: id + ".orders", DeadTopic: id + ".dead", ResultsTopic: id + ".results", Group: id,
				PublishTimeout: 15 * time.Second, // the suite shares its broker and the machine
			}, b})
		})
	}
}

// RunCore runs the suite on a stand-in that is no broker and models a part of one. around runs each test, with a backend
// for it alone. notModelled names each test that is left out, with what is missing; the test is skipped and says so.
func RunCore(t *testing.T, around func(t *testing.T, test func(t *testing.T, b Backend)), notModelled map[string]string) {
	for name := range notModelled {
		if tests()[name] == nil {
			t.Errorf("%q is to be left out and is no test", name)
		}
	}
	for name, test := range tests() {
		t.Run(name, func(t *testing.T) {
			if why, ok := notModelled[name]; ok {
				t.Skip("not modelled: " + why)
			}
			around(t, func(t *testing.T, b Backend) { test(t, with{queue.Options{}, b}) })
		})
	}
}

func reservation(n int64) sale.Reservation {
	return sale.Reservation{
		Token: fmt.Sprintf("token%d", n), UserID: n, ActivityID: "A", CommodityID: "C", Price: decimal.New(1999, -2),
		Quantity: 1, Epoch: 3, At: time.UnixMilli(1_700_000_000_000 + n).UTC(),
	}
}

func ensure(t *testing.T, o with) Topics {
	t.Helper()
	topics := o.b.Topics(o.Options)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := topics.Ensure(ctx); err != nil {
		t.Fatalf("ensure topics: %v", err)
	}
	return topics
}

func producer(t *testing.T, o with) Producer {
	p := o.b.Producer(o.Options)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func publish(t *testing.T, p Producer, from, to int64) {
	t.Helper()
	var rs []sale.Reservation
	for n := from; n < to; n++ {
		rs = append(rs, reservation(n))
	}
	for _, err := range p.Publish(t.Context(), rs) {
		if err != nil {
			t.Fatalf("publish: %v", err)
		}
	}
}

func testFirstPublish(t *testing.T, o with) {
	ensure(t, o)
	publish(t, producer(t, o), 1, 101)
	s := newSink(100)
	member(t, o, s.handle)
	s.wait(t)
	for _, d := range s.got {
		want := reservation(d.UserID)
		if d.Malformed != nil || d.Token != want.Token || !d.Price.Equal(want.Price) || !d.At.Equal(want.At) || d.Epoch != 3 {
			t.Fatalf("got %+v, want %+v", d, want)
		}
	}
}

func testOrderPerKey(t *testing.T, o with) {
	o.Partitions = 8
	ensure(t, o)
	p := producer(t, o)
	const users = 200
	for round := range 2 {
		var rs []sale.Reservation
		for n := int64(1); n <= users; n++ {
			r := reservation(n)
			r.Token = fmt.Sprintf("u%d-%d", n, round)
			rs = append(rs, r)
		}
		if errs := p.Publish(t.Context(), rs); errs != nil {
			t.Fatalf("publish: %v", errs)
		}
	}
	s := newSink(2 * users)
	member(t, o, s.handle)
	s.wait(t)
	first := map[int64]sale.Delivery{}
	parts := map[int]bool{}
	for _, d := range s.got {
		parts[d.Partition] = true
		f, ok := first[d.UserID]
		if !ok {
			first[d.UserID] = d
			if d.Token != fmt.Sprintf("u%d-0", d.UserID) {
				t.Fatalf("user %d: second message came first", d.UserID)
			}
			continue
		}
		if f.Partition != d.Partition || f.Offset >= d.Offset {
			t.Fatalf("user %d: partitions %d and %d, offsets %d and %d", d.UserID, f.Partition, d.Partition, f.Offset, d.Offset)
		}
	}
	if len(parts) != 8 {
		t.Fatalf("%d of 8 partitions used", len(parts))
	}
}

func testUnfinishedComesAgain(t *testing.T, o with) {
	ensure(t, o)
	publish(t, producer(t, o), 1, 21)
	s := newSink(20)
	var mu sync.Mutex
	failed := map[int]bool{}
	member(t, o, func(ctx context.Context, batch []sale.Delivery) error {
		mu.Lock()
		first := !failed[batch[0].Partition]
		failed[batch[0].Partition] = true
		mu.Unlock()
		if first {
			return errors.New("the database is away")
		}
		return s.handle(ctx, batch)
	})
	s.wait(t)
}

func testHandOver(t *testing.T, o with) {
	topics := ensure(t, o)
	publish(t, producer(t, o), 1, 51)
	one := newSink(50)
	stop := member(t, o, one.handle)
	one.wait(t)
	stop()
	publish(t, producer(t, o), 51, 61)
	two := newSink(10)
	start := time.Now()
	stop = member(t, o, two.handle)
	two.wait(t)
	if waited := time.Since(start); waited > 10*time.Second {
		t.Errorf("the group was not free at once: %v", waited)
	}
	stop()
	for _, d := range two.got {
		if d.UserID <= 50 {
			t.Errorf("user %d was finished and committed, yet came again", d.UserID)
		}
	}
	ends, err := topics.EndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	committed, err := topics.Committed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for p, end := range ends {
		if committed[p] != end {
			t.Errorf("partition %d: committed %d, end %d", p, committed[p], end)
		}
	}
}

// Message 4 of ten is stuck while other partitions go on; the member dies. Nothing from 4 on was committed.
func testBlockedHoldsOffset(t *testing.T, o with) {
	topics := ensure(t, o)
	one := o
	one.FetchBatch = 1
	rs := make([]sale.Reservation, 10)
	for i := range rs { // one user, so one partition
		rs[i] = reservation(1)
		rs[i].Token = fmt.Sprintf("m%d", i+1)
	}
	if errs := producer(t, o).Publish(t.Context(), rs); errs != nil {
		t.Fatal(errs)
	}
	blocked, release := make(chan struct{}), make(chan struct{})
	stop := member(t, one, func(_ context.Context, batch []sale.Delivery) error {
		if batch[0].Token == "m4" {
			close(blocked)
			<-release
			return errors.New("died")
		}
		return nil
	})
	<-blocked
	committed, err := topics.Committed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, n := range committed {
		sum += n
	}
	if sum != 3 {
		t.Errorf("committed %v while the fourth message is stuck, want 3 in all", committed)
	}
	close(release)
	stop()
	s := newSink(7)
	member(t, o, s.handle)
	s.wait(t)
	for _, token := range []string{"m1", "m2", "m3"} {
		if s.seen[token] > 0 {
			t.Errorf("%s was finished and committed, yet came again", token)
		}
	}
}

func testFromTheStart(t *testing.T, o with) {
	ensure(t, o)
	stop := member(t, o, func(context.Context, []sale.Delivery) error { return nil })
	stop()
	publish(t, producer(t, o), 1, 31)
	s := newSink(30)
	member(t, o, s.handle)
	s.wait(t)
}

func testOffsets(t *testing.T, o with) {
	topics := ensure(t, o)
	committed, err := topics.Committed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ends, err := topics.EndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(ends) != 3 || len(committed) != 3 {
		t.Fatalf("ends %v, committed %v; want 3 partitions each", ends, committed)
	}
	for p := range ends {
		if ends[p] != 0 || committed[p] != 0 {
			t.Errorf("fresh partition %d: end %d, committed %d", p, ends[p], committed[p])
		}
	}
	publish(t, producer(t, o), 1, 41)
	ends, err = topics.EndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, end := range ends {
		sum += end
	}
	if sum != 40 {
		t.Errorf("end offsets sum to %d, want 40", sum)
	}
}

func testTooFewPartitions(t *testing.T, o with) {
	ensure(t, o)
	o.Partitions = 12
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := o.b.Topics(o.Options).Ensure(ctx); err == nil {
		t.Fatal("3 partitions accepted where 12 are configured")
	}
}

func testIdlePublish(t *testing.T, o with) {
	ensure(t, o)
	p := producer(t, o)
	publish(t, p, 1, 2) // connects
	best := time.Hour
	for n := int64(2); n < 12; n++ {
		start := time.Now()
		publish(t, p, n, n+1)
		best = min(best, time.Since(start))
	}
	if best > 500*time.Millisecond {
		t.Errorf("the fastest of ten idle publishes took %v: the one-second batch default is on", best)
	}
	t.Logf("fastest idle publish: %v", best)
}

func testChurn(t *testing.T, o with) {
	ensure(t, o)
	const messages = 2000
	s := newSink(messages)
	member(t, o, s.handle)
	p := producer(t, o)
	for round := range int64(4) {
		stop := member(t, o, s.handle)
		publish(t, p, round*messages/4, (round+1)*messages/4)
		stop()
	}
	s.wait(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%d messages, %d deliveries", messages, len(s.got))
}
