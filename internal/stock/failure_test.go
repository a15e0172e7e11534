package stock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/sale"
	"seckill/internal/stock"
	"seckill/internal/testenv"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// warm warms a sale of one item up and removes it again at the end.
func warm(t *testing.T, rdb redis.UniversalClient, id string, units int64) (*stock.Store, sale.Activity) {
	t.Helper()
	id += strconv.FormatInt(time.Now().UnixNano(), 36)
	now := time.Now()
	a := sale.Activity{
		ID: id, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PayWithin: time.Minute, State: sale.StateScheduled, Epoch: 1,
		Items: []sale.Item{{CommodityID: "SP1", Price: decimal.New(9900, -2), Total: units, MaxPerUser: 1}},
	}
	s := stock.New(rdb, stock.Options{UserPerSecond: 100})
	t.Cleanup(func() { _ = s.Purge(context.Background(), id) })
	must(t, s.BeginRebuild(t.Context(), a, 1))
	must(t, s.FinishRebuild(t.Context(), &sale.Snapshot{Activity: a}, 1))
	return s, a
}

func request(user int64) sale.ReserveRequest {
	return sale.ReserveRequest{Token: fmt.Sprint("t", user), UserID: user, CommodityID: "SP1", Quantity: 1}
}

func reserve(t *testing.T, s *stock.Store, id string, user int64) sale.ReserveReply {
	t.Helper()
	r, err := s.Reserve(t.Context(), id, time.Now(), []sale.ReserveRequest{request(user)})
	must(t, err)
	return r[0]
}

func units(t *testing.T, rdb redis.UniversalClient, id string) int64 {
	t.Helper()
	n, err := rdb.Get(t.Context(), "seckill:{"+id+"}:stock:SP1").Int64()
	must(t, err)
	return n
}

// FS-013: the script ran, its reply was lost, and go-redis tries again by itself: one unit, the buyer is accepted.
func TestLostReply(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); lostReply(t, miniredis.RunT(t).Addr()) })
	t.Run("redis", func(t *testing.T) { t.Parallel(); lostReply(t, testenv.Redis(t)) })
}

func lostReply(t *testing.T, addr string) {
	direct := client(t, addr)
	s, a := warm(t, direct, "LR", 2)
	// The server knows the scripts already: a lost NOSCRIPT would prove nothing.
	reserve(t, s, a.ID, 1)
	_, err := s.Settle(t.Context(), a.ID, []sale.Decision{decision(a.ID, 1)})
	must(t, err)
	_, _, err = s.Return(t.Context(), a.ID, []sale.Return{{Token: "t1", CommodityID: "SP1", Status: sale.StatusClosed, Version: 2}})
	must(t, err)
	px := startProxy(t, addr)
	via := stock.New(client(t, px.addr), stock.Options{UserPerSecond: 100})
	for _, op := range []struct {
		name string
		do   func() (sale.ReserveReply, error)
		left int64
	}{
		{"reserve", func() (sale.ReserveReply, error) {
			r, err := via.Reserve(t.Context(), a.ID, time.Now(), []sale.ReserveRequest{request(7)})
			if err != nil {
				return sale.ReserveReply{}, err
			}
			return r[0], nil
		}, 1},
		{"settle", func() (r sale.ReserveReply, err error) {
			_, err = via.Settle(t.Context(), a.ID, []sale.Decision{decision(a.ID, 7)})
			return r, err
		}, 1},
		{"return", func() (r sale.ReserveReply, err error) {
			_, _, err = via.Return(t.Context(), a.ID, []sale.Return{{Token: "t7", UserID: 7, CommodityID: "SP1", Quantity: 1, Status: sale.StatusClosed, Version: 2}})
			return r, err
		}, 2},
	} {
		px.swallow.Store(1)
		r, err := op.do()
		must(t, err)
		if px.swallow.Load() != 0 {
			t.Fatalf("%s: no reply was lost", op.name)
		}
		if got := units(t, direct, a.ID); got != op.left {
			t.Fatalf("%s: %d units left, want %d", op.name, got, op.left)
		}
		if op.name == "reserve" && (r.Outcome != sale.ReserveRepeat || r.Reservation.Token != "t7") {
			t.Fatalf("the buyer holds a unit and is told %+v", r)
		}
	}
	if r := reserve(t, s, a.ID, 7); r.Outcome != sale.ReserveRepeat || r.Result.Status != sale.StatusClosed {
		t.Fatalf("in the end: %+v", r)
	}
}

func decision(activityID string, user int64) sale.Decision {
	return sale.Decision{
		Reservation: sale.Reservation{Token: fmt.Sprint("t", user), UserID: user, ActivityID: activityID, CommodityID: "SP1", Quantity: 1, Epoch: 1},
		Ordered:     true, OrderNo: "738529527931269407", Status: sale.StatusPendingPayment, Version: 1,
	}
}

// proxy passes everything on, and swallows the reply to the next script call when told to, then cuts the connection.
type proxy struct {
	addr    string
	swallow atomic.Int32
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{addr: l.Addr().String()}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			var cut atomic.Bool
			go p.requests(out, in, &cut)
			go replies(in, out, &cut)
		}
	}()
	return p
}

func (p *proxy) requests(to, from net.Conn, cut *atomic.Bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(bytes.ToLower(buf[:n]), []byte("evalsha")) && p.swallow.CompareAndSwap(1, 0) {
			cut.Store(true)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func replies(to, from net.Conn, cut *atomic.Bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || cut.Load() { // the server has answered: the script ran
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// FS-011: the server forgets all scripts again and again amid traffic: nobody notices, each buy takes one unit.
func TestScriptFlushAmidTraffic(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); scriptFlush(t, client(t, miniredis.RunT(t).Addr())) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		scriptFlush(t, client(t, testenv.OwnRedis(t, testenv.RedisOptions{}).Addr))
	})
}

func scriptFlush(t *testing.T, rdb redis.UniversalClient) {
	const buyers = 500
	s, a := warm(t, rdb, "SF", buyers)
	var evals evalCounter
	counted := client(t, rdb.(*redis.Client).Options().Addr)
	counted.AddHook(&evals)
	via := stock.New(counted, stock.Options{})
	stop := make(chan struct{})
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := rdb.ScriptFlush(context.Background()).Err(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	var wg sync.WaitGroup
	for w := range int64(5) {
		wg.Go(func() {
			for i := range int64(buyers / 5) {
				r, err := via.Reserve(t.Context(), a.ID, time.Now(), []sale.ReserveRequest{request(w*1000 + i + 1)})
				if err != nil || r[0].Outcome != sale.ReserveAccepted {
					t.Errorf("%v, %v", r, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	flusher.Wait()
	if left := units(t, rdb, a.ID); left != 0 {
		t.Fatalf("%d units left", left)
	}
	if evals.full.Load() == 0 {
		t.Fatal("the flush was never felt: the test proves nothing")
	}
	if reserve(t, s, a.ID, 99_999).Outcome != sale.ReserveSoldOut {
		t.Fatal("not sold out")
	}
	before := evals.full.Load()
	for i := range int64(10) { // back on the short way; another test may flush once more meanwhile
		_, err := via.Reserve(t.Context(), a.ID, time.Now(), []sale.ReserveRequest{request(200_000 + i)})
		must(t, err)
	}
	if n := evals.full.Load() - before; n > 5 {
		t.Fatalf("%d of 10 calls send the script in full", n)
	}
}

// evalCounter counts scripts that are sent in full.
type evalCounter struct{ full atomic.Int64 }

func (c *evalCounter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *evalCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *evalCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			c.full.Add(1)
		}
		return next(ctx, cmd)
	}
}

// FS-015: at maxmemory a batch happens whole or not at all, is told as a passing failure, and works again afterwards.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, testenv.RedisOptions{MaxMemoryBytes: 4 << 20})
	rdb := client(t, server.Addr)
	s, a := warm(t, rdb, "OOM", 1_000_000)
	user, accepted := int64(0), int64(0)
	var full error
	for full == nil && user < 100_000 {
		reqs := make([]sale.ReserveRequest, 50)
		for i := range reqs {
			user++
			reqs[i] = request(user)
		}
		rs, err := s.Reserve(t.Context(), a.ID, time.Now(), reqs)
		if full = err; err != nil {
			break
		}
		for _, r := range rs {
			if r.Outcome != sale.ReserveAccepted {
				t.Fatalf("outcome %q below the limit", r.Outcome)
			}
			accepted++
		}
	}
	if !errors.Is(full, sale.ErrTransient) || !strings.Contains(full.Error(), "OOM") {
		t.Fatalf("after %d users: %v", user, full)
	}
	whole := func() {
		t.Helper()
		marks, err := rdb.Eval(t.Context(), "return #redis.call('KEYS', KEYS[1])", []string{"seckill:{" + a.ID + "}:user:*"}).Int64()
		must(t, err)
		outbox := rdb.ZCard(t.Context(), "seckill:{"+a.ID+"}:occupied").Val()
		members := rdb.SCard(t.Context(), "seckill:{"+a.ID+"}:participants").Val()
		if left := units(t, rdb, a.ID); left != 1_000_000-accepted || marks != accepted || outbox != accepted || members != accepted {
			t.Fatalf("%d accepted; %d taken, %d marks, %d in the outbox, %d participants", accepted, 1_000_000-left, marks, outbox, members)
		}
	}
	whole()
	for refused := 0; refused < 20; { // a little may still fit: the buffers of the refused call are free again
		user++
		r, err := s.Reserve(t.Context(), a.ID, time.Now(), []sale.ReserveRequest{request(user)})
		switch {
		case errors.Is(err, sale.ErrTransient):
			refused++
		case err == nil && r[0].Outcome == sale.ReserveAccepted:
			accepted++
		default:
			t.Fatalf("at the limit: %+v, %v", r, err)
		}
	}
	whole()
	must(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	if r := reserve(t, s, a.ID, user+1); r.Outcome != sale.ReserveAccepted {
		t.Fatalf("with memory again: %+v", r)
	}
	accepted++
	whole()
}

// FS-099: the server becomes a replica under load and a master again: errors in between only, and no unit is lost.
func TestRoleSwitch(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, testenv.RedisOptions{})
	rdb := client(t, server.Addr)
	s, a := warm(t, rdb, "RS", 1_000_000)
	var accepted, failed, user atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := s.Reserve(context.Background(), a.ID, time.Now(), []sale.ReserveRequest{request(user.Add(1))})
				switch {
				case err == nil && r[0].Outcome == sale.ReserveAccepted:
					accepted.Add(1)
				case errors.Is(err, sale.ErrTransient):
					failed.Add(1)
				default:
					t.Errorf("%v, %v", r, err)
					return
				}
			}
		})
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	await("no load", func() bool { return accepted.Load() > 100 })
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := strconv.Itoa(dead.Addr().(*net.TCPAddr).Port)
	must(t, dead.Close())
	must(t, rdb.ReplicaOf(t.Context(), "127.0.0.1", port).Err())
	await("a read-only server took every write", func() bool { return failed.Load() > 4 })
	must(t, rdb.ReplicaOf(t.Context(), "NO", "ONE").Err())
	after := accepted.Load()
	await("no recovery", func() bool { return accepted.Load() > after+100 })
	close(stop)
	wg.Wait()
	if left := units(t, rdb, a.ID); left != 1_000_000-accepted.Load() {
		t.Fatalf("%d accepted, %d taken", accepted.Load(), 1_000_000-left)
	}
}

// S26: a Redis that comes back empty answers "not ready", never "sold out", is noticed, and sells after a rebuild.
func TestRestartWithoutData(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, testenv.RedisOptions{})
	s, a := warm(t, client(t, server.Addr), "RD", 10)
	if r := reserve(t, s, a.ID, 1); r.Outcome != sale.ReserveAccepted {
		t.Fatalf("%+v", r)
	}
	must(t, server.Kill())
	if _, err := s.Reserve(t.Context(), a.ID, time.Now(), []sale.ReserveRequest{request(2)}); !errors.Is(err, sale.ErrUncertain) {
		t.Fatalf("no server: %v", err)
	}
	must(t, server.Restart(t.Context()))
	if r := reserve(t, s, a.ID, 2); r.Outcome != sale.ReserveNotReady {
		t.Fatalf("empty server: %+v", r)
	}
	if !s.Rewound(a.ID) {
		t.Fatal("the loss goes unnoticed")
	}
	a.Epoch, a.Items[0].Sold = 2, 1
	d := decision(a.ID, 1)
	must(t, s.BeginRebuild(t.Context(), a, 2))
	must(t, s.FinishRebuild(t.Context(), &sale.Snapshot{Activity: a, Entries: []sale.SnapshotEntry{{Decision: d, Returned: -1}}}, 2))
	if r := reserve(t, s, a.ID, 2); r.Outcome != sale.ReserveAccepted || r.Reservation.Epoch != 2 {
		t.Fatalf("after the rebuild: %+v", r)
	}
	if r := reserve(t, s, a.ID, 1); r.Outcome != sale.ReserveRepeat || r.Result.Status != sale.StatusPendingPayment {
		t.Fatalf("the buyer from before: %+v", r)
	}
	if s.Rewound(a.ID) {
		t.Fatal("still rewound")
	}
}

// checkServers also holds that a sale's server keeps its name while it lives.
func checkServers(t *testing.T, s *stock.Store, ids ...string) {
	t.Helper()
	first, err := s.CheckServers(t.Context(), ids)
	must(t, err)
	again, err := s.CheckServers(t.Context(), ids)
	must(t, err)
	if len(first) != len(ids) || !maps.Equal(first, again) {
		t.Fatalf("servers %v, then %v", first, again)
	}
}

// R15: a server that restarts, even with all its data, may have lost what it had not written: its run id tells.
func TestRestartIsNoticedByRunID(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, testenv.RedisOptions{AOF: true})
	rdb := client(t, server.Addr)
	s, a := warm(t, rdb, "RI", 10)
	reserve(t, s, a.ID, 1)
	ids := []string{a.ID, "unheard-of"}
	for range 3 {
		checkServers(t, s, ids...)
	}
	if s.Rewound(a.ID) {
		t.Fatal("rewound without a restart")
	}
	must(t, server.Kill())
	must(t, server.Restart(t.Context()))
	if r := reserve(t, s, a.ID, 2); r.Outcome != sale.ReserveAccepted || s.Rewound(a.ID) {
		t.Fatalf("%+v: the data is there, the sequence number fits", r)
	}
	checkServers(t, s, ids...)
	if !s.Rewound(a.ID) || s.Rewound("unheard-of") {
		t.Fatal("the restart goes unnoticed")
	}
	a.Epoch = 2
	must(t, s.BeginRebuild(t.Context(), a, 2))
	must(t, s.FinishRebuild(t.Context(), &sale.Snapshot{Activity: a}, 2))
	checkServers(t, s, ids...)
	if s.Rewound(a.ID) {
		t.Fatal("rewound after the rebuild")
	}
}

// The stand-in tells no run id, and a cluster several: neither is an error.
func TestCheckServersElsewhere(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		s, a := warm(t, client(t, miniredis.RunT(t).Addr()), "CS", 1)
		checkServers(t, s, a.ID)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: testenv.RedisCluster(t)})
		t.Cleanup(func() { _ = rdb.Close() })
		s, a := warm(t, rdb, "CS", 1)
		for range 2 {
			checkServers(t, s, a.ID, "A", "B", "C", "D")
		}
		if s.Rewound(a.ID) {
			t.Fatal("rewound")
		}
	})
}
