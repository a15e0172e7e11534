package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/apiclient"
	"seckill/internal/auth"
	"seckill/internal/testenv"
)

// moreCases are those of TestCases that stand in this file and cases_b_kafka_test.go.
func moreCases() []struct {
	name string
	run  func(t *testing.T, s *stack)
} {
	return []struct {
		name string
		run  func(t *testing.T, s *stack)
	}{
		{"FS-017 a returned unit lowers the sold-out flag of every gateway", testFlagIsLowered},
		{"FS-021 a slow request is sent again to another node", testSentAgainElsewhere},
		{"S19 the commit path speaks to three back ends only", testCommitPathPeers},
		{"S9 each change is logged, and the log outlives Redis", testStoryOutlivesRedis},
		{"S22 everything is settled after the end, with a backlog", testSettledWithBacklog},
		{"R17 the leader dies and another takes over", testLeaderDies},
		{"FS-036 Redis is slow and the pool small", testSlowRedis},
		{"FS-061 consumers stop while others join", testConsumerStops},
		{"FS-044 a gateway stops in the middle of publishing", testStopWhilePublishing},
		{"FS-044 a gateway stops while the broker is frozen", testStopWhileBrokerFrozen},
		{"FS-006 two buyers of one unit, the broker frozen", testTwoBuyersBrokerFrozen},
		{"FS-063 FS-006 the only broker is away", testOnlyBrokerAway},
	}
}

// quickBuyer is a buyer who need not ask for a request token: thousands of them are made at once.
func (s *stack) quickBuyer(id int64, gateway, activity string) *buyer {
	s.t.Helper()
	tokens, err := auth.NewRequestTokens([]byte(requestTokenSecret), 10*time.Minute, time.Now)
	if err != nil {
		s.t.Fatal(err)
	}
	token, _ := tokens.Issue(id, activity)
	return &buyer{id: id, bearer: user(s.t, id), api: s.api(gateway), token: token}
}

// FS-017: two gateways know that a sale is sold out; a unit comes back. Both sell again within seconds, and it sells once.
func testFlagIsLowered(t *testing.T, s *stack) {
	id := s.openSale(1)
	first := s.newBuyer(30_000, "gateway1", id)
	first.buy(t.Context(), id)
	r := first.decided(t, 10*time.Second)
	next := int64(30_001)
	for _, g := range []string{"gateway1", "gateway2"} {
		for range 3 {
			b := s.newBuyer(next, g, id)
			next++
			if b.buy(t.Context(), id); b.code != "sold_out" {
				t.Fatalf("%s: %d %s", g, b.status, b.code)
			}
		}
	}
	time.Sleep(500 * time.Millisecond) // the flags are up: they are set from what the gateways see four times a second
	if _, err := first.api.ChangeOrder(t.Context(), first.bearer, r.OrderNo, "cancel"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	again := s.newBuyer(next, "gateway2", id)
	eventually(t, 5*time.Second, "the returned unit sells", func() (bool, string) {
		again.buy(t.Context(), id)
		return again.status == http.StatusAccepted, fmt.Sprint(again.status, " ", again.code)
	})
	t.Logf("the returned unit was sold %v after the cancel", time.Since(start).Round(time.Millisecond))
	if res := again.decided(t, 10*time.Second); res.Status != "pending_payment" {
		t.Errorf("%+v", res)
	}
	late := s.newBuyer(next+1, "gateway1", id)
	if late.buy(t.Context(), id); late.code != "sold_out" {
		t.Errorf("a second buyer of it: %d %s", late.status, late.code)
	}
	if units, sold := s.units(id), s.sold(id); units != 0 || sold != 1 {
		t.Errorf("redis %d, sold %d", units, sold)
	}
}

// FS-021: a proxy holds the first POST for 2 s (the gateway stops between reserve and publish) and sends the identical one
// to another gateway after 1 s. One order, and both answers name it.
func testSentAgainElsewhere(t *testing.T, s *stack) {
	id := s.openSale(5)
	s.start("gateway", "held1", "SECKILL_TEST_FAILPOINT=gateway:reserved:2s")
	defer s.drop("held1")
	s.everyGatewayKnows(id)
	one := s.newBuyer(30_100, "held1", id)
	two := *one
	two.api = s.api("gateway2")
	var wg sync.WaitGroup
	var took time.Duration
	wg.Go(func() {
		start := time.Now()
		one.buy(t.Context(), id)
		took = time.Since(start)
	})
	time.Sleep(time.Second)
	two.buy(t.Context(), id)
	wg.Wait()
	if took < 2*time.Second {
		t.Fatalf("the first request was answered after %v: it was not held", took)
	}
	for _, b := range []*buyer{one, &two} {
		if (b.status != http.StatusAccepted && b.status != http.StatusOK) || b.result.RequestToken != one.token {
			t.Errorf("answer %d %s %+v", b.status, b.code, b.result)
		}
	}
	a, b := one.decided(t, 10*time.Second), two.decided(t, 10*time.Second)
	if a.OrderNo == "" || a.OrderNo != b.OrderNo {
		t.Errorf("orders %q and %q", a.OrderNo, b.OrderNo)
	}
	s.balanced(id, 5, 1)
}

// drop ends a process that a case started.
func (s *stack) drop(name string) {
	s.procs[name].kill()
	delete(s.procs, name)
}

// S19: while orders are committed, a consumer has connections to Redis, Kafka and the database and to nobody else.
func testCommitPathPeers(t *testing.T, s *stack) {
	id := s.openSale(500)
	p := s.procs["consumer1"]
	known := map[string]string{s.redis.Addr: "redis", s.kafka.Nodes[0].Addr: "kafka", mysqlAddr(t, s.dsn): "database"}
	seen := map[string]int{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, peer := range peersOf(t, p.cmd.Process.Pid, p.addr) {
				if name, ok := known[peer]; ok {
					seen[name]++
				} else {
					t.Errorf("the consumer speaks to %s", peer)
					return
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	buyers := make([]*buyer, 400)
	for i := range buyers {
		buyers[i] = s.quickBuyer(int64(30_200+i), fmt.Sprintf("gateway%d", 1+i%2), id)
	}
	each(buyers, func(b *buyer) { b.buy(t.Context(), id) })
	s.balanced(id, 500, 400)
	close(stop)
	<-done
	if seen["redis"] == 0 || seen["kafka"] == 0 || seen["database"] == 0 {
		t.Errorf("connections seen: %v; the test proves nothing", seen)
	}
}

// mysqlAddr is the host:port in a DSN.
func mysqlAddr(t *testing.T, dsn string) string {
	t.Helper()
	_, rest, ok := strings.Cut(dsn, "tcp(")
	addr, _, found := strings.Cut(rest, ")")
	if !ok || !found {
		t.Fatalf("DSN without an address: %s", dsn)
	}
	return addr
}

// peersOf lists the remote ends of the TCP connections of a process, but for those at its own port.
func peersOf(t *testing.T, pid int, own string) (peers []string) {
	t.Helper()
	inodes := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(to, "socket:[]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			const established = "01"
			if len(f) < 10 || f[3] != established || !inodes[f[9]] || hexAddr(f[1]) == own {
				continue
			}
			peers = append(peers, hexAddr(f[2]))
		}
	}
	return peers
}

// hexAddr reads an IPv4 address of /proc/net/tcp, or the one inside a mapped IPv6 address.
func hexAddr(s string) string {
	host, port, _ := strings.Cut(s, ":")
	if len(host) > 8 {
		host = host[len(host)-8:]
	}
	var a, b, c, d, p int
	if _, err := fmt.Sscanf(host+port, "%02x%02x%02x%02x%04x", &d, &c, &b, &a, &p); err != nil {
		return s
	}
	return fmt.Sprintf("%d.%d.%d.%d:%d", a, b, c, d, p)
}

// step is one row of a reservation's story, as the command line shows it.
type step struct {
	Version          int64
	From, To, Status string
	Reason           string
	Role, Node       string
	TraceID          string
	At               int64
}

// S9: who cancels, who lets the deadline pass and who pays: each change is a row that says when, from what to what, by which
// role and process, why, and in which request. The story is whole when Redis has lost everything of the sale.
func testStoryOutlivesRedis(t *testing.T, s *stack) {
	id := s.openSaleWith(5, time.Now().Add(time.Hour), "3s")
	begin := time.Now()
	cancels, expires := s.newBuyer(30_600, "gateway1", id), s.newBuyer(30_601, "gateway2", id)
	trace := func(c *apiclient.Client, n int) string {
		traceID := fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e47%02d", n)
		c.HTTP.Transport = withHeader{http.DefaultTransport, "traceparent", "00-" + traceID + "-00f067aa0ba902b7-01"}
		return traceID
	}
	bought := trace(cancels.api, 1)
	cancels.buy(t.Context(), id)
	r := cancels.decided(t, 10*time.Second)
	cancelled := trace(cancels.api, 2)
	if _, err := cancels.api.ChangeOrder(t.Context(), cancels.bearer, r.OrderNo, "cancel"); err != nil {
		t.Fatal(err)
	}
	expired := trace(expires.api, 3)
	expires.buy(t.Context(), id)
	expires.decided(t, 10*time.Second)
	eventually(t, 15*time.Second, "the unpaid order is closed", func() (bool, string) {
		r, err := expires.api.Result(t.Context(), expires.bearer, expires.token, 0)
		return err == nil && r.Status == "closed", fmt.Sprintf("%+v %v", r, err)
	})
	for _, c := range []struct {
		b    *buyer
		want []step
	}{
		{cancels, []step{
			{Version: 0, To: "occupied", Status: "processing", Role: "consumer", TraceID: bought},
			{Version: 1, From: "occupied", To: "committed", Status: "pending_payment", Role: "consumer", TraceID: bought},
			{Version: 2, From: "committed", To: "released", Status: "cancelled", Reason: "user", Role: "gateway", TraceID: cancelled},
		}},
		{expires, []step{
			{Version: 0, To: "occupied", Status: "processing", Role: "consumer", TraceID: expired},
			{Version: 1, From: "occupied", To: "committed", Status: "pending_payment", Role: "consumer", TraceID: expired},
			{Version: 2, From: "committed", To: "released", Status: "closed", Reason: "expired", Role: "reconciler"},
		}},
	} {
		before := s.story(c.b.token)
		checkStory(t, before, c.want, begin)
		s.forgetSale(id)
		if after := s.story(c.b.token); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the story without Redis is %+v", after)
		}
	}
}

// withHeader adds a header to every request.
type withHeader struct {
	next        http.RoundTripper
	name, value string
}

func (h withHeader) RoundTrip(req *http.Request) (*http.Response, error) {
	req.Header.Set(h.name, h.value)
	return h.next.RoundTrip(req)
}

// story asks the command line for the story of a reservation.
func (s *stack) story(token string) []step {
	s.t.Helper()
	var out struct{ Log []step }
	text := s.command("activity", "trace", token, "--json", "--server", "http://"+s.procs["gateway1"].addr)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	return out.Log
}

func checkStory(t *testing.T, got, want []step, begin time.Time) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("story %+v", got)
	}
	for i, g := range got {
		if at := time.UnixMilli(g.At); at.Before(begin.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
			t.Errorf("step %d was at %v", i, at)
		}
		if !strings.HasPrefix(g.Node, g.Role) { // processes are named after their roles here
			t.Errorf("step %d: role %s on node %s", i, g.Role, g.Node)
		}
		w := want[i]
		w.At, w.Node = g.At, g.Node
		if g != w {
			t.Errorf("step %d is\n%+v, want\n%+v", i, g, w)
		}
	}
}

// forgetSale removes all keys of a sale from Redis, as if they were lost.
func (s *stack) forgetSale(id string) {
	s.t.Helper()
	ctx := context.Background()
	names, err := s.rdb.Keys(ctx, "seckill:{"+id+"}:*").Result() // this server is this test's own
	if err == nil && len(names) > 0 {
		err = s.rdb.Del(ctx, names...).Err()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// S22: a sale ends while the consumers stand still: some reservations are in the queue, some were never published because
// their gateway died. Afterwards each of them is decided, none is left occupied.
func testSettledWithBacklog(t *testing.T, s *stack) {
	ends := time.Now().Add(6 * time.Second)
	id := s.openSaleUntil(100, ends)
	s.start("gateway", "victim1", "SECKILL_TEST_FAILPOINT=gateway:reserved:kill")
	s.everyGatewayKnows(id)
	for _, name := range []string{"consumer1", "consumer2"} {
		s.freeze(name)
	}
	buyers := make([]*buyer, 40)
	for i := range buyers {
		buyers[i] = s.quickBuyer(int64(30_700+i), fmt.Sprintf("gateway%d", 1+i%2), id)
	}
	each(buyers, func(b *buyer) { b.buy(t.Context(), id) })
	for _, b := range buyers {
		if b.status != http.StatusAccepted {
			t.Errorf("user %d: %d %s", b.id, b.status, b.code)
		}
	}
	lost := s.quickBuyer(30_750, "victim1", id)
	lost.buy(t.Context(), id) // its gateway dies holding the unit
	<-s.procs["victim1"].done
	delete(s.procs, "victim1")
	lost.api = s.api("gateway1")
	if n := s.occupied(id); n != 41 {
		t.Errorf("%d occupied, want 41", n)
	}
	time.Sleep(time.Until(ends.Add(time.Second)))
	if n := s.occupied(id); n != 41 {
		t.Errorf("%d occupied after the end: nobody but the consumer decides (R3)", n)
	}
	for _, name := range []string{"consumer1", "consumer2"} {
		s.thaw(name)
	}
	start := time.Now()
	decisions := map[string]int{}
	for _, b := range append(buyers, lost) {
		decisions[b.decided(t, 60*time.Second).Status]++
	}
	s.balanced(id, 100, int64(decisions["pending_payment"]))
	t.Logf("decided within %v of the consumers' return: %v", time.Since(start).Round(time.Millisecond), decisions)
	if decisions["pending_payment"]+decisions["failed"] != 41 {
		t.Errorf("decisions %v", decisions)
	}
}

// openSaleUntil creates a sale that is open now and ends at a time.
func (s *stack) openSaleUntil(stock int64, ends time.Time) string {
	s.t.Helper()
	return s.openSaleWith(stock, ends, "15m")
}

// openSaleWith creates a sale that is open now, with a time to pay.
func (s *stack) openSaleWith(stock int64, ends time.Time, payWithin string) string {
	s.t.Helper()
	id := fmt.Sprintf("E%d-%d", os.Getpid(), counter.Add(1))
	c := s.api("gateway1")
	_, err := c.Admin(s.t.Context(), adminToken, "", "", apiclient.Sale{
		ActivityID: id, Title: "End to end", StartsAt: time.Now().Add(-time.Second).UnixMilli(), EndsAt: ends.UnixMilli(), PayWithin: payWithin,
		Items: []apiclient.SaleItem{{CommodityID: "C1", Title: "Item", Price: "19.99", Total: stock, MaxPerUser: 2}},
	})
	if err == nil {
		_, err = c.Admin(s.t.Context(), adminToken, id, "warm-up", nil)
	}
	if err != nil {
		s.t.Fatalf("open sale: %v", err)
	}
	s.everyGatewayKnows(id)
	return id
}

// R17: of two reconcilers one leads. It is killed, and the other leads within ten seconds and does its work; the first one
// comes back and waits.
func testLeaderDies(t *testing.T, s *stack) {
	s.start("reconciler", "reconciler2")
	leads := func(name string) bool { return s.procs[name].metric(t, "seckill_leader") == 1 }
	if !leads("reconciler1") || leads("reconciler2") {
		t.Fatalf("leading: %v and %v", leads("reconciler1"), leads("reconciler2"))
	}
	killed := time.Now()
	s.procs["reconciler1"].kill()
	eventually(t, 10*time.Second, "the other leads", func() (bool, string) { return leads("reconciler2"), "" })
	took := time.Since(killed)
	s.relaunch("reconciler1")
	s.ready(s.procs["reconciler1"])
	id := s.openSale(5) // a warm-up is the leader's work
	b := s.newBuyer(30_790, "gateway1", id)
	if b.buy(t.Context(), id); b.status != http.StatusAccepted {
		t.Errorf("%d %s", b.status, b.code)
	}
	s.balanced(id, 5, 1)
	if leads("reconciler1") || !leads("reconciler2") {
		t.Errorf("leading: %v and %v", leads("reconciler1"), leads("reconciler2"))
	}
	t.Logf("led again after %v", took.Round(time.Millisecond))
	if _, err := s.procs["reconciler2"].stop(); err != nil {
		t.Error(err)
	}
	delete(s.procs, "reconciler2")
	eventually(t, 10*time.Second, "the first leads again", func() (bool, string) { return leads("reconciler1"), "" })
}

// slowLine is a TCP forwarder that holds everything back for a while.
type slowLine struct {
	addr  string
	delay atomic.Int64 // nanoseconds
}

func startSlowLine(t *testing.T, to string) *slowLine {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	l := &slowLine{addr: ln.Addr().String()}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go l.pass(out, in, true)
			go l.pass(in, out, false)
		}
	}()
	return l
}

// pass copies one direction; requests are held back.
func (l *slowLine) pass(to, from net.Conn, hold bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 256<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if hold {
			time.Sleep(time.Duration(l.delay.Load()))
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// FS-036: a gateway with five connections to a Redis that takes 200 ms for each answer, and 500 users who buy at once, again
// and again. Everyone is answered in bounded time, what is too much is shed with 503 and Retry-After, no reservation is half
// made, and it is as before within 5 s of Redis.
func testSlowRedis(t *testing.T, s *stack) {
	const users = 500
	lasts := 3 * time.Second
	if testenv.Long() {
		lasts = 10 * time.Second
	}
	id := s.openSale(1_000_000)
	line := startSlowLine(t, s.redis.Addr)
	s.start("gateway", "slowredis1", "SECKILL_REDIS_ADDRS="+line.addr, "SECKILL_REDIS_POOL_SIZE=5", "SECKILL_GATEWAY_RESERVE_QUEUE=200")
	defer s.drop("slowredis1")
	s.everyGatewayKnows(id)
	line.delay.Store(int64(200 * time.Millisecond))
	var next atomic.Int64
	next.Store(40_000)
	var mu sync.Mutex
	answers := map[string]int{}
	longest, noHint, accepted := time.Duration(0), 0, []*buyer(nil)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var wg sync.WaitGroup
	for range users {
		wg.Go(func() {
			for ctx.Err() == nil {
				b := s.quickBuyer(next.Add(1), "slowredis1", id)
				start := time.Now()
				status, header, _, err := b.post(context.WithoutCancel(ctx), id)
				took := time.Since(start)
				mu.Lock()
				answers[fmt.Sprint(status)]++
				longest = max(longest, took)
				if status == http.StatusServiceUnavailable && header.Get("Retry-After") == "" {
					noHint++
				}
				if status == http.StatusAccepted {
					accepted = append(accepted, b)
				}
				mu.Unlock()
				if err != nil {
					t.Errorf("user %d: %v", b.id, err)
					return
				}
				time.Sleep(20 * time.Millisecond) // the shed ones would spin
			}
		})
	}
	wg.Wait()
	line.delay.Store(0)
	start := time.Now()
	eventually(t, 5*time.Second, "healthy again", func() (bool, string) {
		b := s.quickBuyer(next.Add(1), "slowredis1", id)
		began := time.Now()
		b.buy(t.Context(), id)
		if b.status == http.StatusAccepted {
			accepted = append(accepted, b)
		}
		return b.status == http.StatusAccepted && time.Since(began) < time.Second, fmt.Sprint(b.status, " ", b.code, " ", time.Since(began))
	})
	t.Logf("answers %v, the longest after %v; healthy %v after Redis was", answers, longest.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	if longest > 8*time.Second || noHint > 0 {
		t.Errorf("longest answer %v, %d refusals without Retry-After", longest, noHint)
	}
	if answers["503"] == 0 || answers["202"] == 0 || answers["202"]+answers["503"] != total(answers) {
		t.Errorf("answers %v: some are to be accepted, the rest shed", answers)
	}
	s.wholeReservations(id, 1_000_000)
	for _, b := range accepted[:min(50, len(accepted))] {
		b.api = s.api("gateway1")
		if r := b.decided(t, 20*time.Second); r.Status != "pending_payment" {
			t.Errorf("user %d: %+v", b.id, r)
		}
	}
}

func total(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// post sends the order and returns the raw answer.
func (b *buyer) post(ctx context.Context, activity string) (int, http.Header, []byte, error) {
	body := fmt.Sprintf(`{"requestToken":%q,"commodityId":"C1"}`, b.token)
	return b.api.Do(ctx, http.MethodPost, "/v1/activities/"+activity+"/orders", b.bearer, []byte(body))
}

// wholeReservations waits until nothing is undecided, then checks that each unit that is gone has its mark, its reservation
// and its order: none is half made.
func (s *stack) wholeReservations(id string, stock int64) {
	s.t.Helper()
	s.balanced(id, stock, -1)
	taken := stock - s.units(id)
	prefix := "seckill:{" + id + "}:"
	for kind, want := range map[string]int64{"user:": taken, "token:": taken} {
		if n := s.countKeys(prefix + kind + "*"); n != want {
			s.t.Errorf("%d units taken, %d keys %s", taken, n, kind)
		}
	}
}

func (s *stack) countKeys(pattern string) (n int64) {
	s.t.Helper()
	var cursor uint64
	seen := map[string]bool{}
	for {
		names, next, err := s.rdb.Scan(context.Background(), cursor, pattern, 5000).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, name := range names {
			seen[name] = true
		}
		if cursor = next; cursor == 0 {
			return int64(len(seen))
		}
	}
}

// metric reads a counter of a process.
func (p *proc) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	res, err := http.Get("http://" + p.addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if strings.HasPrefix(l, name+" ") || strings.HasPrefix(l, name+"{") {
			var v float64
			if _, err := fmt.Sscan(l[strings.LastIndex(l, " ")+1:], &v); err == nil {
				value += v
			}
		}
	}
	return value
}
