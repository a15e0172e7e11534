package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/apiclient"
)

// buyer is one user who wants one unit through one gateway.
type buyer struct {
	id     int64
	bearer string
	api    *apiclient.Client
	token  string
	status int // of the last answer to the order
	code   string
	result apiclient.Result
}

// newBuyer signs in and gets a request token.
func (s *stack) newBuyer(id int64, gateway, activity string) *buyer {
	s.t.Helper()
	b := &buyer{id: id, bearer: user(s.t, id), api: s.api(gateway)}
	token, err := b.api.RequestToken(s.t.Context(), b.bearer, activity)
	if err != nil {
		s.t.Fatalf("request token of %d: %v", id, err)
	}
	b.token = token
	return b
}

// buy posts the order once and notes the answer.
func (b *buyer) buy(ctx context.Context, activity string) {
	status, r, err := b.api.Buy(ctx, b.bearer, activity, "C1", b.token, 1)
	b.status, b.result, b.code = status, r, ""
	var p *apiclient.Problem
	if errors.As(err, &p) {
		b.status, b.code = p.Status, p.Code
	} else if err != nil {
		b.code = err.Error()
	}
}

// decided polls until the request is decided.
func (b *buyer) decided(t *testing.T, within time.Duration) apiclient.Result {
	t.Helper()
	var last apiclient.Result
	eventually(t, within, fmt.Sprintf("user %d has a decision", b.id), func() (bool, string) {
		r, err := b.api.Result(t.Context(), b.bearer, b.token, 0)
		last = r
		return err == nil && r.Status != "processing", fmt.Sprintf("%+v %v", r, err)
	})
	return last
}

// each runs f for all buyers at once, at most 200 side by side.
func each(buyers []*buyer, f func(*buyer)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 200)
	for _, b := range buyers {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(b)
		})
	}
	wg.Wait()
}

// The usual installation serves these cases; each has its own sale.
func TestCases(t *testing.T) {
	s := newStack(t, options{})
	s.startAll()
	for _, c := range append([]struct {
		name string
		run  func(t *testing.T, s *stack)
	}{
		{"FS-001 the last unit sells once", testLastUnit},
		{"FS-004 a second click while the first is queued takes nothing", testSecondClickQueued},
		{"FS-018 a double submit through two gateways is one order", testDoubleSubmit},
		{"FS-003 FS-087 repeats tell the first token, ids are strings", testRepeats},
		{"FS-011 SCRIPT FLUSH in full traffic", testScriptFlush},
		{"FS-008 a new gateway does not bring sold units back", testNewGateway},
		{"FS-030 SIGTERM with idle connections and buys in flight", testGatewayStops},
		{"FS-049 consumers come and go", testConsumersComeAndGo},
		{"FS-025 a late publish is pending, never failed", testLatePublish},
		{"FS-039 Kafka away, units stay held and are relayed", testKafkaAway},
	}, moreCases()...) {
		ok := t.Run(c.name, func(t *testing.T) {
			sub := *s
			sub.t = t
			c.run(t, &sub)
		})
		if !ok && testing.Short() {
			return
		}
	}
}

func testLastUnit(t *testing.T, s *stack) {
	id := s.openSale(1)
	buyers := make([]*buyer, 200)
	for i := range buyers {
		buyers[i] = s.newBuyer(int64(1000+i), fmt.Sprintf("gateway%d", 1+i%2), id)
	}
	lowest := make(chan int64, 1)
	stop := make(chan struct{})
	go func() { // stock never below 0 at any sample
		least := int64(1)
		for {
			select {
			case <-stop:
				lowest <- least
				return
			default:
				if n, err := s.rdb.Get(context.Background(), "seckill:{"+id+"}:stock:C1").Int64(); err == nil {
					least = min(least, n)
				}
			}
		}
	}()
	each(buyers, func(b *buyer) { b.buy(t.Context(), id) })
	close(stop)
	if n := <-lowest; n != 0 {
		t.Errorf("lowest stock seen is %d, want 0", n)
	}
	accepted := 0
	for _, b := range buyers {
		switch {
		case b.status == http.StatusAccepted:
			accepted++
			if r := b.decided(t, 10*time.Second); r.Status != "pending_payment" {
				t.Errorf("the winner's result is %+v", r)
			}
		case b.code != "sold_out":
			t.Errorf("user %d: %d %s", b.id, b.status, b.code)
		}
	}
	if accepted != 1 {
		t.Errorf("%d accepted, want 1", accepted)
	}
	s.balanced(id, 1, 1)
}

func testDoubleSubmit(t *testing.T, s *stack) {
	id := s.openSale(50)
	for u := int64(2000); u < 2020; u++ {
		one := s.newBuyer(u, "gateway1", id)
		two := *one
		two.api = s.api("gateway2")
		var wg sync.WaitGroup
		wg.Go(func() { one.buy(t.Context(), id) })
		wg.Go(func() {
			time.Sleep(5 * time.Millisecond)
			two.buy(t.Context(), id)
		})
		wg.Wait()
		for _, b := range []*buyer{one, &two} {
			if (b.status != 200 && b.status != 202) || b.result.RequestToken != one.token {
				t.Errorf("user %d: %d %s %+v", u, b.status, b.code, b.result)
			}
		}
	}
	s.balanced(id, 50, 20)
}

func testSecondClickQueued(t *testing.T, s *stack) {
	id := s.openSale(5)
	for _, name := range []string{"consumer1", "consumer2"} {
		s.freeze(name)
	}
	a := s.newBuyer(2050, "gateway1", id)
	again, other := *a, s.newBuyer(2050, "gateway2", id)
	a.buy(t.Context(), id)
	time.Sleep(5 * time.Millisecond)
	again.buy(t.Context(), id)
	for _, b := range []*buyer{a, &again} {
		if b.status != http.StatusAccepted || b.result.RequestToken != a.token {
			t.Errorf("click: %d %s %+v", b.status, b.code, b.result)
		}
	}
	// The same user on another page, with another token, is pointed to the first.
	_, _, err := other.api.Buy(t.Context(), other.bearer, id, "C1", other.token, 1)
	var p *apiclient.Problem
	if !errors.As(err, &p) || p.Code != "already_participated" || p.RequestToken != a.token {
		t.Errorf("another token: %v", err)
	}
	if n := s.units(id); n != 4 {
		t.Errorf("stock %d, want 4", n)
	}
	for _, name := range []string{"consumer1", "consumer2"} {
		s.thaw(name)
	}
	s.balanced(id, 5, 1)
}

func testRepeats(t *testing.T, s *stack) {
	id := s.openSale(5)
	a := s.newBuyer(636507967185264641, "gateway1", id)
	a.buy(t.Context(), id)
	first := a.decided(t, 10*time.Second)
	for range 20 {
		again := s.newBuyer(a.id, "gateway2", id)
		_, _, err := again.api.Buy(t.Context(), again.bearer, id, "C1", again.token, 1)
		var p *apiclient.Problem
		if !errors.As(err, &p) || p.Code != "already_participated" || p.RequestToken != a.token {
			t.Fatalf("repeat: %v", err)
		}
	}
	orders, _, err := a.api.Orders(t.Context(), a.bearer, 10, "")
	if err != nil || len(orders) != 1 || orders[0].OrderNo != first.OrderNo {
		t.Errorf("orders %+v, %v", orders, err)
	}
	for u := int64(2101); u < 2105; u++ {
		b := s.newBuyer(u, "gateway1", id)
		b.buy(t.Context(), id)
		if r := b.decided(t, 10*time.Second); r.Status != "pending_payment" {
			t.Errorf("user %d: %+v", u, r)
		}
	}
	s.balanced(id, 5, 5)
}

func testScriptFlush(t *testing.T, s *stack) {
	id := s.openSale(2000)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			s.rdb.ScriptFlush(context.Background())
			time.Sleep(20 * time.Millisecond)
		}
	}()
	var mu sync.Mutex
	var buyers []*buyer
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil && i < 60; i++ {
				b := s.newBuyer(int64(3000+w*100+i), fmt.Sprintf("gateway%d", 1+w%2), id)
				b.buy(t.Context(), id)
				mu.Lock()
				buyers = append(buyers, b)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, b := range buyers {
		if b.status != http.StatusAccepted {
			t.Errorf("user %d: %d %s", b.id, b.status, b.code)
		}
	}
	t.Logf("%d buys while scripts were flushed", len(buyers))
	s.balanced(id, 2000, int64(len(buyers)))
}

func testNewGateway(t *testing.T, s *stack) {
	id := s.openSale(10)
	// With every consumer frozen nothing reaches the database, so a re-load from there would be wrong.
	for _, name := range []string{"consumer1", "consumer2"} {
		s.freeze(name)
	}
	var buyers []*buyer
	for u := int64(4000); u < 4007; u++ {
		b := s.newBuyer(u, "gateway1", id)
		b.buy(t.Context(), id)
		buyers = append(buyers, b)
	}
	if n := s.units(id); n != 3 {
		t.Errorf("stock is %d, want 3", n)
	}
	if _, err := s.procs["gateway2"].stop(); err != nil {
		t.Errorf("stop gateway2: %v", err)
	}
	s.start("gateway", "gateway2")
	s.start("gateway", "gateway3")
	s.everyGatewayKnows(id)
	if n := s.units(id); n != 3 {
		t.Errorf("stock is %d after the restart, want 3", n)
	}
	for u := int64(4007); u < 4020; u++ {
		b := s.newBuyer(u, "gateway3", id)
		b.buy(t.Context(), id)
		buyers = append(buyers, b)
	}
	for _, name := range []string{"consumer1", "consumer2"} {
		s.thaw(name)
	}
	accepted := 0
	for _, b := range buyers {
		if b.status == http.StatusAccepted {
			accepted++
		}
	}
	if accepted != 10 {
		t.Errorf("%d accepted, want 10", accepted)
	}
	s.balanced(id, 10, 10)
}

func testGatewayStops(t *testing.T, s *stack) {
	id := s.openSale(100)
	p := s.start("gateway", "gateway4")
	s.everyGatewayKnows(id)
	idle := make([]*http.Client, 100)
	for i := range idle {
		idle[i] = &http.Client{Transport: &http.Transport{}}
		res, err := idle[i].Get("http://" + p.addr + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body) // unread, the connection would not be kept
		_ = res.Body.Close()
	}
	buyers := make([]*buyer, 20)
	for i := range buyers {
		buyers[i] = s.newBuyer(int64(5000+i), "gateway4", id)
	}
	var wg sync.WaitGroup
	for _, b := range buyers {
		wg.Go(func() { b.buy(context.WithoutCancel(t.Context()), id) })
	}
	time.Sleep(2 * time.Millisecond)
	took, err := p.stop()
	wg.Wait()
	if err != nil || took > 10*time.Second {
		t.Errorf("stopped after %v: %v", took, err)
	}
	t.Logf("stopped after %v", took)
	accepted := int64(0)
	for _, b := range buyers {
		if b.status == http.StatusAccepted {
			accepted++
		}
	}
	if _, err := http.Get("http://" + p.addr + "/healthz"); err == nil {
		t.Error("a stopped gateway still answers")
	}
	eventually(t, 20*time.Second, "every accepted buy is an order", func() (bool, string) {
		n := s.orders(id)
		return n >= accepted && s.occupied(id) == 0, fmt.Sprintf("%d accepted, %d orders", accepted, n)
	})
	s.balanced(id, 100, -1)
	delete(s.procs, "gateway4")
}

func testConsumersComeAndGo(t *testing.T, s *stack) {
	id := s.openSale(3000)
	ctx, cancel := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			p := s.launch("consumer", fmt.Sprintf("extra%d", i), freeAddr(t))
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
			p.kill()
		}
	})
	buyers := make([]*buyer, 2000)
	for i := range buyers {
		buyers[i] = s.newBuyer(int64(6000+i), fmt.Sprintf("gateway%d", 1+i%2), id)
	}
	each(buyers, func(b *buyer) { b.buy(t.Context(), id) })
	time.Sleep(4 * time.Second)
	cancel()
	churn.Wait()
	for _, b := range buyers {
		if b.status != http.StatusAccepted {
			t.Errorf("user %d: %d %s", b.id, b.status, b.code)
		}
	}
	s.balanced(id, 3000, 2000)
	seen := map[string]int64{}
	for _, b := range buyers { // one final result for each user, and no two share an order
		r := b.decided(t, 10*time.Second)
		if other, twice := seen[r.OrderNo]; r.Status != "pending_payment" || twice {
			t.Errorf("user %d: %+v (order also of %d)", b.id, r, other)
		}
		seen[r.OrderNo] = b.id
	}
}

func testLatePublish(t *testing.T, s *stack) {
	id := s.openSale(5)
	s.start("gateway", "slow1", "SECKILL_TEST_FAILPOINT=gateway:reserved:2s", "SECKILL_GATEWAY_ADMIT_TIMEOUT=500ms")
	b := s.newBuyer(7000, "slow1", id)
	b.buy(t.Context(), id)
	if b.status != http.StatusServiceUnavailable || b.code != "pending" {
		t.Errorf("answer %d %s, want 503 pending", b.status, b.code)
	}
	r := b.decided(t, 15*time.Second)
	if r.Status != "pending_payment" {
		t.Errorf("result %+v", r)
	}
	again := *b
	again.api = s.api("gateway1")
	again.buy(t.Context(), id)
	if again.status != http.StatusOK || again.result.OrderNo != r.OrderNo {
		t.Errorf("retry: %d %s %+v", again.status, again.code, again.result)
	}
	s.balanced(id, 5, 1)
	s.procs["slow1"].kill()
	delete(s.procs, "slow1")
}

func testKafkaAway(t *testing.T, s *stack) {
	id := s.openSale(5)
	b := s.newBuyer(7100, "gateway1", id)
	node := s.kafka.Nodes[0]
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	b.buy(t.Context(), id)
	if b.status != http.StatusServiceUnavailable || (b.code != "pending" && b.code != "overloaded") {
		t.Errorf("answer %d %s, want 503", b.status, b.code)
	}
	res, err := http.Get("http://" + s.procs["gateway1"].addr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz %d without Kafka", res.StatusCode)
	}
	if b.code == "pending" && (s.units(id) != 4 || s.occupied(id) != 1) {
		t.Errorf("stock %d, occupied %d; the unit must stay held", s.units(id), s.occupied(id))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := node.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if r := b.decided(t, 60*time.Second); r.Status != "pending_payment" {
		t.Errorf("result %+v", r)
	}
	s.balanced(id, 5, 1)
}

// S10: three brokers, two in-sync replicas required: one is killed in the middle, and every accepted buy is an order.
func TestThreeBrokersOneKilled(t *testing.T) {
	s := newStack(t, options{brokers: 3, env: []string{"SECKILL_KAFKA_REPLICATION=3", "SECKILL_KAFKA_MIN_IN_SYNC_REPLICAS=2"}})
	s.startSome(2, 2, 0)
	id := s.openSale(1000)
	buyers := make([]*buyer, 600)
	for i := range buyers {
		buyers[i] = s.newBuyer(int64(8000+i), fmt.Sprintf("gateway%d", 1+i%2), id)
	}
	half := make(chan struct{})
	var once sync.Once
	var n int
	var mu sync.Mutex
	go func() {
		<-half
		_ = s.kafka.Nodes[2].Kill()
	}()
	each(buyers, func(b *buyer) {
		mu.Lock()
		if n++; n == 200 {
			once.Do(func() { close(half) })
		}
		mu.Unlock()
		for range 40 { // as a client does: the same token again while it is told to wait
			b.buy(t.Context(), id)
			if b.status == 202 || b.status == 200 {
				return
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
	for _, b := range buyers {
		if b.status != 202 && b.status != 200 {
			t.Errorf("user %d: %d %s", b.id, b.status, b.code)
		}
	}
	s.balanced(id, 1000, 600)
}

// The whole chain on a Redis Cluster (FS-012).
func TestRedisCluster(t *testing.T) {
	s := newStack(t, options{cluster: true, env: []string{"SECKILL_REDIS_CLUSTER=true"}})
	s.startSome(2, 1, 1)
	id := s.openSale(20)
	buyers := make([]*buyer, 60)
	for i := range buyers {
		buyers[i] = s.newBuyer(int64(9000+i), fmt.Sprintf("gateway%d", 1+i%2), id)
	}
	each(buyers, func(b *buyer) { b.buy(t.Context(), id) })
	s.balanced(id, 20, 20)
}

// FS-045, R2: the consumer dies between the fetch and the database commit, and between that and the offset commit, at
// each step; the message comes again and nothing is lost, doubled or untold.
func TestConsumerKilledBetweenCommits(t *testing.T) {
	s := newStack(t, options{})
	s.startSome(1, 0, 0)
	for i, step := range []string{"fetched", "decided", "settled", "announced"} {
		helper := s.start("consumer", "steady") // the warm-up waits for the group
		id := s.openSale(10)
		if _, err := helper.stop(); err != nil {
			t.Fatal(err)
		}
		victim := s.start("consumer", "victim", "SECKILL_TEST_FAILPOINT=consumer:"+step+":kill")
		b := s.newBuyer(int64(9100+i), "gateway1", id)
		b.buy(t.Context(), id)
		if b.status != http.StatusAccepted {
			t.Fatalf("%s: %d %s", step, b.status, b.code)
		}
		select {
		case <-victim.done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the failpoint was not reached", step)
		}
		want := int64(1)
		if step == "fetched" {
			want = 0
		}
		if n := s.orders(id); n != want {
			t.Errorf("%s: %d orders after the crash, want %d", step, n, want)
		}
		s.start("consumer", "heir")
		if r := b.decided(t, 30*time.Second); r.Status != "pending_payment" {
			t.Errorf("%s: %+v", step, r)
		}
		s.balanced(id, 10, 1)
		s.procs["heir"].kill()
	}
}

// FS-043: a fresh, empty broker; everything is started at once, and the first accepted buy becomes an order.
func TestFreshBroker(t *testing.T) {
	s := newStack(t, options{})
	s.startSome(1, 1, 0)
	id := s.openSale(1)
	b := s.newBuyer(9200, "gateway1", id)
	b.buy(t.Context(), id)
	if b.status != http.StatusAccepted {
		t.Fatalf("%d %s", b.status, b.code)
	}
	if r := b.decided(t, 10*time.Second); r.Status != "pending_payment" {
		t.Errorf("%+v", r)
	}
}

// A role that is not migrated says so; the command line speaks to the admin API.
func TestCommandLine(t *testing.T) {
	s := newStack(t, options{})
	s.startSome(1, 1, 0)
	file := writeFile(t, "sale.yaml", `
activityId: CLI1
title: From the command line
startsAt: 2026-01-02T03:04:05+08:00
endsAt: "2099-01-01T00:00:00Z"
payWithin: 15m
items:
  - {commodityId: C1, title: Thing, price: "9.90", total: 7, maxPerUser: 1}
`)
	server := "http://" + s.procs["gateway1"].addr
	args := func(a ...string) []string { return append(a, "--server", server) }
	out := s.command(args("activity", "create", "-f", file)...)
	if !strings.Contains(out, `"startsAt": 1767294245000`) {
		t.Errorf("FS-034: start is not the same instant: %s", out)
	}
	out = s.command(args("activity", "warm-up", "CLI1")...)
	if !strings.Contains(out, `"state": "open"`) {
		t.Errorf("warm-up: %s", out)
	}
	s.command(args("user", "block", "CLI1", "77")...)
	b := s.newBuyer(77, "gateway1", "CLI1")
	b.buy(t.Context(), "CLI1")
	if b.code != "blocked" {
		t.Errorf("blocked user: %d %s", b.status, b.code)
	}
	token := strings.TrimSpace(s.command("token", "--user", "78"))
	if _, err := b.api.RequestToken(t.Context(), token, "CLI1"); err != nil {
		t.Errorf("token command: %v", err)
	}
	if out, err := s.tryCommand("gateway", "--set", "gateway.adr=x"); err == nil || !strings.Contains(out, "gateway.adr") {
		t.Errorf("unknown key: %v %s", err, out)
	}
	out = s.command("gateway", "--check-config")
	if strings.Contains(out, jwtSecret) || !strings.Contains(out, "auth.jwtSecret: ********") {
		t.Errorf("check-config: %s", out)
	}
}
