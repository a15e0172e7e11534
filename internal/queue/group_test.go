package queue

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"seckill/internal/sale"
)

// groupMember is a member of a group that a test starts and stops.
type groupMember struct {
	*Group
	stop func() time.Duration // asks it to leave, and tells how long that took
}

func startMember(t *testing.T, o Options, handle Handler) *groupMember {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	m := &groupMember{Group: NewGroup(o)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx, handle)
	}()
	m.stop = func() time.Duration {
		start := time.Now()
		cancel()
		select {
		case <-done:
		case <-time.After(60 * time.Second):
			t.Error("the member never left")
		}
		return time.Since(start)
	}
	t.Cleanup(func() { m.stop() })
	return m
}

// handled is what the members of a test handled, in order.
type handled struct {
	mu     sync.Mutex
	tokens []string
}

func (h *handled) add(batch []sale.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range batch {
		h.tokens = append(h.tokens, d.Token)
	}
}

func (h *handled) times(token string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, x := range h.tokens {
		if x == token {
			n++
		}
	}
	return n
}

func (h *handled) handle(_ context.Context, batch []sale.Delivery) error {
	h.add(batch)
	return nil
}

// soon waits until ok, at most this long.
func soon(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) { // brokers give no signal
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func mustPublish(t *testing.T, o Options, rs ...sale.Reservation) {
	t.Helper()
	o.PublishTimeout = 15 * time.Second // the machine is shared
	p := NewProducer(o)
	defer func() { _ = p.Close() }()
	if errs := p.Publish(t.Context(), rs); errs != nil {
		t.Fatal(errs)
	}
}

func lagOf(t *testing.T, topics *Topics) (behind int64) {
	t.Helper()
	ends, err := topics.EndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	committed, err := topics.Committed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for p, end := range ends {
		behind += end - committed[p] // negative where an offset is beyond the end
	}
	return behind
}

// FS-048: A holds message 1 until it is expelled; B gets the partition, handles 1 and 2 and commits; then A finishes and
// commits 1. The offset does not go back: nothing is behind, without new messages, and 2 is not read again.
func TestLateCommitDoesNotMoveTheOffset(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, o Options) {
		o.SessionTimeout, o.RebalanceTimeout, o.FetchBatch = 6*time.Second, time.Second, 1
		topics := NewTopics(o)
		mustPublish(t, o, orderOf(1, 1))
		holds, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		var byA, byB handled
		a := startMember(t, o, func(_ context.Context, batch []sale.Delivery) error {
			once.Do(func() {
				close(holds)
				<-release
			})
			byA.add(batch)
			return nil
		})
		<-holds
		startMember(t, o, byB.handle)
		mustPublish(t, o, orderOf(1, 2))
		soon(t, 30*time.Second, "B has handled both", func() bool { return byB.times("t1-1") > 0 && byB.times("t1-2") > 0 })
		soon(t, 10*time.Second, "B has committed", func() bool { return lagOf(t, topics) == 0 })
		close(release)
		soon(t, 10*time.Second, "A has finished", func() bool { return byA.times("t1-1") > 0 })
		for range 20 { // whatever A does now, the offset stays
			if lag := lagOf(t, topics); lag != 0 {
				t.Fatalf("%d messages behind after the late commit", lag)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if n := byA.times("t1-2") + byB.times("t1-2"); n != 1 {
			t.Errorf("message 2 was handled %d times", n)
		}
		// The group lives: what comes next is handled once.
		mustPublish(t, o, orderOf(1, 3))
		soon(t, 30*time.Second, "message 3 is handled", func() bool { return byA.times("t1-3")+byB.times("t1-3") == 1 })
		a.stop()
	})
}

// FS-061: a member is stopped on an idle topic, while another joins, and while a third one holds the group up in the
// middle of its batch. It leaves within its grace, what it finished is committed, and the group is free at once.
func TestStopWhileOthersJoin(t *testing.T) {
	t.Parallel()
	const grace = 5 * time.Second
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		eachBroker(t, func(t *testing.T, o Options) {
			var got, rest handled
			mustPublish(t, o, orderOf(1, 1))
			a := startMember(t, o, got.handle)
			soon(t, 30*time.Second, "the first is handled", func() bool { return got.times("t1-1") == 1 })
			soon(t, 10*time.Second, "and committed", func() bool { return lagOf(t, NewTopics(o)) == 0 })
			if took := a.stop(); took > grace {
				t.Errorf("stopped after %v", took)
			}
			mustPublish(t, o, orderOf(1, 2))
			start := time.Now()
			startMember(t, o, rest.handle)
			soon(t, 5*time.Second, "the heir handles the next", func() bool { return rest.times("t1-2") == 1 })
			t.Logf("the heir had its message after %v", time.Since(start).Round(time.Millisecond))
			if rest.times("t1-1") != 0 {
				t.Error("finished work came again")
			}
		})
	})
	t.Run("another joins", func(t *testing.T) {
		t.Parallel()
		eachBroker(t, func(t *testing.T, o Options) {
			var got handled
			a := startMember(t, o, got.handle)
			soon(t, 30*time.Second, "A owns the partitions", func() bool { return len(a.Lag()) == 3 })
			b := startMember(t, o, got.handle)
			took := a.stop() // B's join has begun the rebalance, or is about to
			if took > grace {
				t.Errorf("stopped after %v", took)
			}
			start := time.Now()
			soon(t, 10*time.Second, "B owns all", func() bool { return len(b.Lag()) == 3 })
			t.Logf("stopped after %v, B owned all %v later", took.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
			mustPublish(t, o, orderOf(1, 1), orderOf(2, 1), orderOf(3, 1))
			soon(t, 5*time.Second, "B handles", func() bool { return got.times("t1-1")+got.times("t2-1")+got.times("t3-1") == 3 })
		})
	})
	t.Run("held up by a third", func(t *testing.T) {
		t.Parallel()
		eachBroker(t, func(t *testing.T, o Options) {
			mustPublish(t, o, orderOf(1, 1))
			holds, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			a := startMember(t, o, func(context.Context, []sale.Delivery) error {
				once.Do(func() {
					close(holds)
					<-release
				})
				return nil
			})
			<-holds
			b := startMember(t, o, func(context.Context, []sale.Delivery) error { return nil })
			time.Sleep(500 * time.Millisecond) // B asks to join and waits for A, of which there is no sign from outside
			if took := b.stop(); took > grace {
				t.Errorf("the one that waited to join stopped after %v", took)
			}
			close(release)
			if took := a.stop(); took > grace {
				t.Errorf("the one that held stopped after %v", took)
			}
		})
	})
}

// R2 (what kafka-go does not repeat, and what it does): the connection is cut under an offset commit, then under fetches.
// The commit is not repeated by the library: its batch comes again. Fetches are, and neither skip nor reorder.
func TestCutUnderCommitAndFetch(t *testing.T) {
	t.Parallel()
	broker := fakeBroker(t)
	o := ownTopics(broker.ListenAddrs())
	topics := ensureTopics(t, o)
	var want []string
	var rs []sale.Reservation
	for n := range int64(30) {
		r := orderOf(1, n)
		rs, want = append(rs, r), append(want, r.Token)
	}
	cut := func(key kmsg.Key, times int) func() int {
		left := times
		var mu sync.Mutex
		broker.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			mu.Lock()
			defer mu.Unlock()
			if left == 0 {
				return nil, nil, false
			}
			left--
			broker.KeepControl()
			return nil, errors.New("cut"), true
		})
		return func() int {
			mu.Lock()
			defer mu.Unlock()
			return times - left
		}
	}
	commits, fetches := cut(kmsg.OffsetCommit, 1), cut(kmsg.Fetch, 3)
	mustPublish(t, o, rs...)
	var got handled
	o.FetchBatch = 10
	startMember(t, o, got.handle)
	soon(t, 30*time.Second, "everything is committed", func() bool { return lagOf(t, topics) == 0 })
	if commits() != 1 || fetches() != 3 {
		t.Fatalf("%d commits and %d fetches were cut: the test proves nothing", commits(), fetches())
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if len(got.tokens) <= len(want) {
		t.Errorf("%d deliveries of %d messages: the batch of the cut commit did not come again", len(got.tokens), len(want))
	}
	first := map[string]int{}
	for i, token := range got.tokens {
		if _, ok := first[token]; !ok {
			first[token] = i
		}
	}
	order := slices.SortedFunc(maps.Keys(first), func(a, b string) int { return first[a] - first[b] })
	if !slices.Equal(order, want) {
		t.Errorf("first deliveries in the order %v", order)
	}
}
