package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"seckill/internal/testenv"
)

// FS-061: consumers are told to stop while others join, and while a third one is frozen in the middle of the group. They
// end within their grace, and the group goes on without them.
func testConsumerStops(t *testing.T, s *stack) {
	id := s.openSale(50)
	const grace = 10 * time.Second
	buyOne := func(user int64) {
		t.Helper()
		b := s.newBuyer(user, "gateway1", id)
		b.buy(t.Context(), id)
		if r := b.decided(t, 15*time.Second); r.Status != "pending_payment" {
			t.Errorf("user %d: %d %s %+v", user, b.status, b.code, r)
		}
	}
	stop := func(p *proc, when string) {
		t.Helper()
		took, err := p.stop()
		if err != nil || took > grace {
			t.Errorf("%s: ended after %v: %v", when, took, err)
		}
		t.Logf("%s: ended after %v", when, took.Round(time.Millisecond))
		delete(s.procs, p.name)
	}
	one := s.start("consumer", "join1")
	two := s.launch("consumer", "join2", freeAddr(t)) // about to join
	stop(one, "while another joins")
	s.ready(two)
	buyOne(31_000)
	s.freeze("consumer1")
	three := s.start("consumer", "join3") // waits for the frozen one
	stop(three, "while it waits for a frozen member")
	s.thaw("consumer1")
	buyOne(31_001)
	stop(two, "idle")
	buyOne(31_002)
	s.balanced(id, 50, 3)
}

// tokensInTopic reads the request tokens of all messages in the orders topic.
func (s *stack) tokensInTopic() map[string]int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	addr := s.kafka.Nodes[0].Addr
	conn, err := kafka.DialContext(ctx, "tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	parts, err := conn.ReadPartitions("seckill.orders")
	if err != nil {
		s.t.Fatal(err)
	}
	tokens := map[string]int{}
	for _, p := range parts {
		leader, err := kafka.DialLeader(ctx, "tcp", addr, p.Topic, p.ID)
		for err != nil && ctx.Err() == nil { // a broker that was frozen may have no leader for a moment
			time.Sleep(100 * time.Millisecond)
			leader, err = kafka.DialLeader(ctx, "tcp", addr, p.Topic, p.ID)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		end, err := leader.ReadLastOffset()
		_ = leader.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, Topic: p.Topic, Partition: p.ID, MaxWait: 50 * time.Millisecond, MaxBytes: 4 << 20})
		for range end {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				s.t.Fatalf("read the topic: %v", err)
			}
			var v struct{ RequestToken string }
			if err := json.Unmarshal(m.Value, &v); err == nil {
				tokens[v.RequestToken]++
			}
		}
		_ = r.Close()
	}
	return tokens
}

// publishSteadily lets users buy through a gateway, about 200 a second, until the gateway is gone. It returns those who
// were told "accepted".
func (s *stack) publishSteadily(gateway, id string, first int64, during func()) (accepted []*buyer, all int) {
	s.t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	stop := make(chan struct{})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	wg.Go(func() {
		for user := first; ; user++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			b := s.quickBuyer(user, gateway, id)
			all++
			wg.Go(func() {
				b.buy(context.Background(), id)
				if b.status == http.StatusAccepted {
					mu.Lock()
					accepted = append(accepted, b)
					mu.Unlock()
				}
			})
		}
	})
	during()
	close(stop)
	wg.Wait()
	return accepted, all
}

// FS-044: SIGTERM at 200 publishes a second: the gateway ends within its grace, and whatever it called accepted is in the
// topic.
func testStopWhilePublishing(t *testing.T, s *stack) {
	id := s.openSale(10_000)
	p := s.start("gateway", "leaver1")
	s.everyGatewayKnows(id)
	var took time.Duration
	var err error
	accepted, all := s.publishSteadily("leaver1", id, 50_000, func() {
		time.Sleep(time.Second)
		took, err = p.stop()
	})
	delete(s.procs, "leaver1")
	if err != nil || took > 10*time.Second {
		t.Errorf("ended after %v: %v", took, err)
	}
	s.allInTopic(accepted, all, 100)
	t.Logf("%d requests, %d accepted, ended %v after SIGTERM", all, len(accepted), took.Round(time.Millisecond))
	s.balanced(id, 10_000, -1)
}

func (s *stack) allInTopic(accepted []*buyer, all, atLeast int) {
	s.t.Helper()
	if len(accepted) < atLeast {
		s.t.Fatalf("%d of %d accepted: the test proves nothing", len(accepted), all)
	}
	in := s.tokensInTopic()
	for _, b := range accepted {
		if in[b.token] == 0 {
			s.t.Errorf("user %d was accepted and is not in the topic", b.id)
		}
	}
}

// FS-044: the same with the broker frozen a while before: what cannot be written is given up in time, and was accepted by
// nobody. When the broker goes on, every reservation is decided.
func testStopWhileBrokerFrozen(t *testing.T, s *stack) {
	id := s.openSale(10_000)
	p := s.start("gateway", "leaver2")
	s.everyGatewayKnows(id)
	node := s.kafka.Nodes[0]
	var took time.Duration
	var err error
	accepted, all := s.publishSteadily("leaver2", id, 60_000, func() {
		time.Sleep(700 * time.Millisecond)
		if err := node.Pause(); err != nil {
			t.Error(err)
		}
		time.Sleep(1500 * time.Millisecond) // batches pile up
		took, err = p.stop()
	})
	delete(s.procs, "leaver2")
	if rerr := node.Resume(); rerr != nil {
		t.Fatal(rerr)
	}
	if err != nil || took > 10*time.Second {
		t.Errorf("ended after %v: %v", took, err)
	}
	s.allInTopic(accepted, all, 50)
	t.Logf("%d requests, %d accepted, ended %v after SIGTERM", all, len(accepted), took.Round(time.Millisecond))
	s.balanced(id, 10_000, -1)
}

// FS-006: one unit; A's publish fails by its deadline of 300 ms while the broker is frozen, and its message arrives after
// all when the broker goes on. The unit is A's all the while: B is told that it is sold out, and there is one order.
func testTwoBuyersBrokerFrozen(t *testing.T, s *stack) {
	node := s.kafka.Nodes[0]
	two := s.twoBuyers("hasty1", 31_100)
	if err := node.Pause(); err != nil {
		t.Fatal(err)
	}
	two.whileAway()
	if err := node.Resume(); err != nil {
		t.Fatal(err)
	}
	two.afterwards()
}

// twoBuyers are A and B, who want the same last unit through a gateway that gives up a publish after 300 ms.
type twoBuyers struct {
	s       *stack
	id      string
	gateway string
	a, b    *buyer
}

func (s *stack) twoBuyers(gateway string, first int64) *twoBuyers {
	s.t.Helper()
	id := s.openSale(1)
	s.start("gateway", gateway, "SECKILL_KAFKA_PUBLISH_TIMEOUT=300ms")
	s.everyGatewayKnows(id)
	return &twoBuyers{s: s, id: id, gateway: gateway, a: s.newBuyer(first, gateway, id), b: s.newBuyer(first+1, gateway, id)}
}

// whileAway: the broker does not answer; A holds the unit, B cannot have it.
func (w *twoBuyers) whileAway() {
	s, t, a, b := w.s, w.s.t, w.a, w.b
	t.Helper()
	start := time.Now()
	a.buy(t.Context(), w.id)
	if took := time.Since(start); a.status != http.StatusServiceUnavailable || a.code != "pending" || took > 3*time.Second {
		t.Errorf("A: %d %s after %v, want 503 pending", a.status, a.code, took)
	}
	if s.units(w.id) != 0 || s.occupied(w.id) != 1 {
		t.Errorf("stock %d, occupied %d; the unit stays held", s.units(w.id), s.occupied(w.id))
	}
	if s.procs[w.gateway].metric(t, "seckill_publish_uncertain_total") == 0 {
		t.Error("FS-039: no metric tells of the failed publish")
	}
	if b.buy(t.Context(), w.id); b.code != "sold_out" {
		t.Errorf("B while the broker is away: %d %s", b.status, b.code)
	}
}

// afterwards: A ends with one definite state, and B has not got the unit either.
func (w *twoBuyers) afterwards() {
	s, t, a, b := w.s, w.s.t, w.a, w.b
	t.Helper()
	if b.buy(t.Context(), w.id); b.code != "sold_out" {
		t.Errorf("B afterwards: %d %s", b.status, b.code)
	}
	r := a.decided(t, 60*time.Second)
	if r.Status != "pending_payment" {
		t.Errorf("A ends as %+v", r)
	}
	for range 10 {
		if again := a.decided(t, 5*time.Second); again.OrderNo != r.OrderNo || again.Status != r.Status {
			t.Fatalf("A was told %+v, then %+v", r, again)
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.balanced(w.id, 1, 1)
	s.drop(w.gateway)
}

// FS-063: the only broker is away for a minute in the long run, for ten seconds otherwise, in the middle of traffic. The
// consumers say that they are not ready; within 30 s of its return they go on by themselves, and nothing is lost. FS-006:
// meanwhile two users want the last unit of another sale.
func testOnlyBrokerAway(t *testing.T, s *stack) {
	away := 10 * time.Second
	if testenv.Long() {
		away = 60 * time.Second
	}
	id := s.openSale(1000)
	two := s.twoBuyers("hasty2", 31_110)
	node := s.kafka.Nodes[0]
	before := make([]*buyer, 60)
	for i := range before {
		before[i] = s.quickBuyer(int64(31_200+i), fmt.Sprintf("gateway%d", 1+i%2), id)
	}
	var killed sync.Once
	each(before, func(b *buyer) {
		if b.id == 31_230 {
			killed.Do(func() {
				if err := node.Kill(); err != nil {
					t.Error(err)
				}
			})
		}
		b.buy(t.Context(), id)
	})
	gone := time.Now()
	eventually(t, 10*time.Second, "the consumer is not ready", func() (bool, string) {
		res, err := http.Get("http://" + s.procs["consumer1"].addr + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		return res.StatusCode == http.StatusServiceUnavailable, res.Status
	})
	two.whileAway()
	time.Sleep(time.Until(gone.Add(away)))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := node.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	fresh := s.quickBuyer(31_300, "gateway1", id)
	eventually(t, 30*time.Second, "a new order goes through", func() (bool, string) {
		fresh.buy(t.Context(), id)
		return fresh.status == http.StatusAccepted || fresh.status == http.StatusOK, fmt.Sprint(fresh.status, fresh.code)
	})
	fresh.decided(t, 30*time.Second-time.Since(back))
	resumed := time.Since(back)
	held := 0
	for _, b := range before {
		switch {
		case b.status == http.StatusAccepted || b.code == "pending":
			held++
			if r := b.decided(t, 60*time.Second); r.Status != "pending_payment" {
				t.Errorf("user %d: %+v", b.id, r)
			}
		case b.code != "overloaded":
			t.Errorf("user %d: %d %s", b.id, b.status, b.code)
		}
	}
	t.Logf("away for %v; consumed again %v after the return; %d of 60 held a unit", away, resumed.Round(time.Millisecond), held)
	s.balanced(id, 1000, -1)
	two.afterwards()
}
