package push_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"seckill/internal/push"
	"seckill/internal/sale"
	"seckill/internal/testenv"
)

const patience = 15 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func client(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func miniClient(t *testing.T) redis.UniversalClient { return client(t, miniredis.RunT(t).Addr()) }

// subscriber is a Subscriber whose subscriptions can be waited for.
type subscriber struct {
	*push.Subscriber
	t    *testing.T
	told chan string // "shard:3", "live:A", "live:" for all
}

func start(t *testing.T, rdb redis.UniversalClient, o push.Options) *subscriber {
	t.Helper()
	s := &subscriber{t: t, told: make(chan string, 1024)}
	o.RetryMin, o.RetryMax = time.Millisecond, 50*time.Millisecond
	o.OnSubscribed = func(shard int) { s.told <- "shard:" + string(rune('0'+shard%10)) + string(rune('0'+shard/10)) }
	o.OnLiveSubscribed = func(id string) { s.told <- "live:" + id }
	s.Subscriber = push.NewSubscriber(rdb, o)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func shardName(shard int) string {
	return "shard:" + string(rune('0'+shard%10)) + string(rune('0'+shard/10))
}

func (s *subscriber) await(names ...string) {
	s.t.Helper()
	for len(names) > 0 {
		got := receive(s.t, s.told)
		if i := slices.Index(names, got); i >= 0 {
			names = slices.Delete(names, i, i+1)
		}
	}
}

func (s *subscriber) subscribe(shard int) {
	s.t.Helper()
	must(s.t, s.Subscribe(s.t.Context(), shard))
	s.await(shardName(shard))
	if !s.Subscribed(shard) {
		s.t.Fatalf("shard %d is confirmed, and not subscribed", shard)
	}
}

func result(user int64, version int64) []sale.UserResult {
	return []sale.UserResult{{UserID: user, Result: sale.Result{
		RequestToken: "t", ActivityID: "A", CommodityID: "C", Quantity: 1, Status: sale.StatusPaid, Version: version}}}
}

// S28: a shard gets its own results only, and none after it has left.
func TestShardGetsItsOwn(t *testing.T) {
	t.Parallel()
	rdb := miniClient(t)
	got := make(chan []sale.UserResult, 64)
	s := start(t, rdb, push.Options{OnResults: func(_ int, rs []sale.UserResult) { got <- rs }})
	mine, other := int64(1), int64(2)
	for push.ShardOf(other, 16) == push.ShardOf(mine, 16) {
		other++
	}
	shard := push.ShardOf(mine, 16)
	p := push.NewPublisher(rdb, 16)
	s.subscribe(shard)
	must(t, p.Results(t.Context(), append(result(other, 1), result(mine, 1)...)))
	if rs := receive(t, got); len(rs) != 1 || rs[0].UserID != mine {
		t.Fatalf("%+v", rs)
	}
	must(t, s.Unsubscribe(t.Context(), shard))
	if s.Subscribed(shard) {
		t.Fatal("still subscribed")
	}
	s.subscribe(push.ShardOf(other, 16))
	// Both are told; the first is a proof only once the second has come.
	must(t, p.Results(t.Context(), result(mine, 2)))
	must(t, p.Results(t.Context(), result(other, 2)))
	if rs := receive(t, got); rs[0].UserID != other {
		t.Fatalf("a shard that was left still gets %+v", rs)
	}
}

func TestAllLive(t *testing.T) {
	t.Parallel()
	rdb := miniClient(t)
	lives := make(chan sale.Live, 8)
	s := start(t, rdb, push.Options{OnLive: func(l sale.Live) { lives <- l }})
	must(t, s.SubscribeAllLive(t.Context()))
	s.await("live:")
	p := push.NewPublisher(rdb, 0)
	for _, id := range []string{"A", "B-2"} {
		must(t, p.Live(t.Context(), sale.Live{ActivityID: id, State: sale.StateOpen}))
		if l := receive(t, lives); l.ActivityID != id {
			t.Fatalf("%+v", l)
		}
	}
}

// On a cluster results go by sharded channels: the publisher's reach the subscriber, and a plain PUBLISH, which would
// cross every link between nodes, is not listened to. The state of a sale goes by plain channels, since gateways listen
// to all of them by a pattern.
func TestCluster(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: testenv.RedisCluster(t)})
	t.Cleanup(func() { _ = rdb.Close() })
	const base = 7000 // shards of this test on a shared server
	got := make(chan []sale.UserResult, 64)
	s := start(t, rdb, push.Options{OnResults: func(_ int, rs []sale.UserResult) { got <- rs }})
	for shard := range 8 {
		must(t, s.Subscribe(t.Context(), base+shard))
	}
	for len(s.told) < 8 {
		time.Sleep(time.Millisecond)
	}
	must(t, rdb.Publish(t.Context(), fmt.Sprintf("seckill:push:%d", base), `{"results":[`+
		`{"userId":"7","requestToken":"plain","activityId":"A","commodityId":"C","quantity":1,"status":"paid","version":2}]}`).Err())
	out := push.NewPublisher(rdb, base+8)
	seen := map[int64]bool{}
	for user := int64(1); len(seen) < 8; user++ {
		if shard := push.ShardOf(user, base+8); shard < base {
			continue
		}
		must(t, out.Results(t.Context(), result(user, 1)))
		rs := receive(t, got)
		if len(rs) != 1 || rs[0].UserID != user {
			t.Fatalf("got %+v, want user %d", rs, user)
		}
		seen[user] = true
	}

	live := make(chan sale.Live, 8)
	l := start(t, rdb, push.Options{OnLive: func(v sale.Live) { live <- v }})
	must(t, l.SubscribeAllLive(t.Context()))
	l.await("live:")
	must(t, out.Live(t.Context(), sale.Live{ActivityID: "CLUSTER", State: sale.StateOpen}))
	if v := receive(t, live); v.ActivityID != "CLUSTER" {
		t.Errorf("got %+v", v)
	}
}

// What several goroutines wish at once is what the server is left with.
func TestConcurrentWishes(t *testing.T) {
	t.Parallel()
	rdb := miniClient(t)
	s := start(t, rdb, push.Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 50 {
				_ = s.Subscribe(context.Background(), i%8)
				_ = s.Unsubscribe(context.Background(), i%8)
			}
		})
	}
	wg.Wait()
	s.subscribe(9)
	counts, err := rdb.PubSubNumSub(t.Context(), "seckill:push:0", "seckill:push:3", "seckill:push:9").Result()
	must(t, err)
	if counts["seckill:push:0"] != 0 || counts["seckill:push:3"] != 0 || counts["seckill:push:9"] != 1 {
		t.Fatalf("subscriptions %v", counts)
	}
}

// S29: after the connection is lost, every shard is told to read its users again, and messages flow.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		m := miniredis.RunT(t)
		px := newProxy(t, m.Addr()) // its port stays, while that of a server that ended may be somebody else's
		connectionLost(t, client(t, px.addr), func() {
			m.Close()
			m = miniredis.RunT(t)
			px.lead(m.Addr())
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := testenv.OwnRedis(t, testenv.RedisOptions{})
		rdb := client(t, server.Addr)
		connectionLost(t, rdb, func() {
			n, err := rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Int()
			must(t, err)
			if n == 0 {
				t.Fatal("no connection to kill")
			}
		})
	})
	t.Run("redis restarts", func(t *testing.T) {
		t.Parallel()
		server := testenv.OwnRedis(t, testenv.RedisOptions{})
		connectionLost(t, client(t, server.Addr), func() {
			must(t, server.Kill())
			must(t, server.Restart(t.Context()))
		})
	})
}

func connectionLost(t *testing.T, rdb redis.UniversalClient, hurt func()) {
	got := make(chan []sale.UserResult, 64)
	s := start(t, rdb, push.Options{OnResults: func(_ int, rs []sale.UserResult) { got <- rs }})
	p := push.NewPublisher(rdb, 1)
	for _, shard := range []int{0, 3, 15} {
		s.subscribe(shard)
	}
	must(t, s.SubscribeAllLive(t.Context()))
	s.await("live:")
	for round := range int64(3) {
		hurt()
		s.await(shardName(0), shardName(3), shardName(15), "live:")
		must(t, p.Results(t.Context(), result(7, round)))
		for receive(t, got)[0].Version != round { // an earlier round may still be on its way
		}
	}
}

// A link that swallows everything without an error is given up, although writes to it succeed.
func TestSilentLinkIsGivenUp(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	px := newProxy(t, m.Addr())
	s := start(t, client(t, px.addr), push.Options{PingEvery: 20 * time.Millisecond, DeadAfter: 100 * time.Millisecond})
	s.subscribe(4)
	px.freeze()
	s.await(shardName(4))
	if !s.Subscribed(4) {
		t.Fatal("not subscribed")
	}
}

// Pings keep a quiet connection: no reconnect while the server answers.
func TestQuietLinkIsKept(t *testing.T) {
	t.Parallel()
	rdb := miniClient(t)
	errs := make(chan error, 16)
	s := start(t, rdb, push.Options{
		PingEvery: 5 * time.Millisecond, DeadAfter: 2 * time.Second, OnError: func(err error) { errs <- err },
	})
	s.subscribe(4)
	select {
	case err := <-errs:
		t.Fatal(err)
	case name := <-s.told:
		t.Fatal("subscribed again:", name)
	case <-time.After(300 * time.Millisecond): // 60 pings
	}
}

// Handlers that fall behind lose messages, are told so, and read the shard again; nothing grows without bound.
func TestSlowHandlerDropsAndReads(t *testing.T) {
	t.Parallel()
	rdb := miniClient(t)
	block, entered := make(chan struct{}), make(chan struct{}, 1024)
	dropped := make(chan int, 1024)
	s := start(t, rdb, push.Options{
		ChannelSize: 4,
		OnResults:   func(int, []sale.UserResult) { entered <- struct{}{}; <-block },
		OnDropped:   func(n int) { dropped <- n },
	})
	s.subscribe(0)
	p := push.NewPublisher(rdb, 1)
	must(t, p.Results(t.Context(), result(7, 0)))
	receive(t, entered)
	for i := range int64(100) {
		must(t, p.Results(t.Context(), result(7, i)))
	}
	// A confirmed subscription proves that the reader has seen all that was published before it.
	must(t, s.Subscribe(t.Context(), 5))
	for !s.Subscribed(5) {
		time.Sleep(time.Millisecond)
	}
	close(block)
	if n := receive(t, dropped); n != 96 {
		t.Fatalf("%d dropped, want 96", n)
	}
	s.await(shardName(0))
}

// Close ends while the server is unreachable, and twice does no harm.
func TestCloseWhileDisconnected(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	s := push.NewSubscriber(client(t, addr), push.Options{RetryMin: time.Hour, RetryMax: time.Hour})
	must(t, s.Subscribe(t.Context(), 1))
	must(t, s.Close())
	if err := s.Subscribe(t.Context(), 2); err == nil {
		t.Fatal("a closed subscriber takes wishes")
	}
	must(t, s.Close())
}

// proxy passes connections on, until it is frozen: then what is open stays open and silent, and new ones pass.
type proxy struct {
	addr string
	mu   sync.Mutex
	to   string
	live []*gate
}

type gate struct{ closed chan struct{} }

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{addr: l.Addr().String(), to: to}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.target())
			if err != nil {
				_ = in.Close()
				continue
			}
			g := &gate{closed: make(chan struct{})}
			p.mu.Lock()
			p.live = append(p.live, g)
			p.mu.Unlock()
			go g.pass(in, out)
			go g.pass(out, in)
		}
	}()
	return p
}

// lead has new connections go to another server.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to
}

func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.live {
		close(g.closed)
	}
	p.live = nil
}

func (g *gate) pass(to io.WriteCloser, from io.ReadCloser) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-g.closed: // swallowed
		default:
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}
