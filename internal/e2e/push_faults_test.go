package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/push"
	"seckill/internal/sale"
	"seckill/internal/stock"
	"seckill/internal/testenv"
)

// Each fault happens while 10,000 results are told: 2,000 users with a socket each take part in five sales.
const (
	fleetUsers   = 2000
	salesAFault  = 5
	tellTogether = 50 // results in one publish
)

// pushTest is Redis, a database file, one pusher, and this test in the place of the consumers.
type pushTest struct {
	*stack
	fleet  *fleet
	store  *stock.Store
	out    *push.Publisher
	detour *detourProxy
	hold   string // while this file exists, the pusher does not take messages
}

// S29, FS-072, FS-073, FS-070, FS-069, P8: whatever happens to the way from a decision to a socket, nobody is left without the
// result, and nobody has to ask.
func TestPushFaults(t *testing.T) {
	faults := []struct {
		name  string
		fault func(p *pushTest)
		long  bool
	}{
		{"nothing", func(*pushTest) {}, false},
		{"pub-sub connection killed 50 times FS-072", (*pushTest).killSubscriptions, false},
		{"Redis restarted", (*pushTest).restartRedis, false},
		{"pusher killed and restarted P8", (*pushTest).killPusher, false},
		{"pusher frozen 2 s", func(p *pushTest) { p.freezeFor(2 * time.Second) }, false},
		{"subscriber blocked 3 s FS-073", func(p *pushTest) { p.blockFor(3 * time.Second) }, false},
		{"half of the clients stop reading FS-070", (*pushTest).stopReading, false},
		{"a tenth of the clients drop off without FIN FS-069", func(p *pushTest) { p.detour.frozen.Store(true) }, false},
		{"pusher frozen 90 s", func(p *pushTest) { p.freezeFor(90 * time.Second) }, true},
		{"subscriber blocked 90 s FS-073", func(p *pushTest) { p.blockFor(90 * time.Second) }, true},
	}
	p := newPushTest(t, len(faults))
	for i, f := range faults {
		if f.long && !testenv.Long() {
			continue
		}
		ok := t.Run(f.name, func(t *testing.T) {
			p.t, p.fleet.t = t, t
			if strings.Contains(f.name, "without FIN") {
				p.takeDetour()
			}
			p.round(i, f.fault)
		})
		if !ok {
			return
		}
	}
	t.Run("20,000 come and go", func(t *testing.T) {
		p.t, p.fleet.t = t, t
		p.soak()
	})
}

// soak has 20,000 sockets come and go, one in five in a way that fails, and looks whether anything is left behind.
func (p *pushTest) soak() {
	const visits, atOnce = 20_000, 64
	t := p.t
	p.fleet.allSynced(60 * time.Second)
	use := func() (goroutines, files, sockets float64) {
		return p.metric("go_goroutines"), p.metric("process_open_fds"), p.metric("seckill_sockets")
	}
	goroutines, files, sockets := use()
	memory := p.metric("go_gc_heap_live_bytes")
	began := time.Now()
	next := make(chan int)
	var visitors sync.WaitGroup
	for range atOnce {
		visitors.Go(func() {
			for i := range next {
				p.visit(i)
			}
		})
	}
	for i := range visits {
		next <- i
	}
	close(next)
	visitors.Wait()
	t.Logf("%d visits in %v", visits, time.Since(began).Round(time.Millisecond))
	eventually(t, 30*time.Second, "nothing is left behind", func() (bool, string) {
		g, f, s := use()
		return g <= goroutines+10 && f <= files+10 && s == sockets,
			fmt.Sprintf("goroutines %v, were %v; files %v, were %v; sockets %v, were %v", g, goroutines, f, files, s, sockets)
	})
	// Memory is what the last collection found. The traffic of the check itself makes collections come, if slowly.
	eventually(t, 150*time.Second, "the memory is free again", func() (bool, string) {
		now := p.metric("go_gc_heap_live_bytes")
		return now <= memory+8<<20, fmt.Sprintf("%.1f MiB live, were %.1f", now/(1<<20), memory/(1<<20))
	})
}

// visit is one socket that comes and goes.
func (p *pushTest) visit(i int) {
	addr, token := p.procs["pusher1"].addr, user(p.t, int64(100_000+i))
	switch i % 20 {
	case 0: // a bad token
		token = "x"
	case 1: // a bad path, a plain request
		if resp, err := http.Get("http://" + addr + "/v1/ws?activity=" + p.fleet.sale); err == nil {
			resp.Body.Close()
		}
		return
	case 2: // half a request
		if conn, err := net.Dial("tcp", addr); err == nil {
			_, _ = conn.Write([]byte("GET /v1/ws HTTP/1.1\r\nHost: x\r\n"))
			conn.Close()
		}
		return
	}
	d := websocket.Dialer{HandshakeTimeout: 20 * time.Second, ReadBufferSize: 512, WriteBufferSize: 256}
	conn, _, err := d.Dial("ws://"+addr+"/v1/ws?activity="+p.fleet.sale, http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		return
	}
	defer conn.Close()
	switch i % 20 {
	case 3: // gone before the state is told
	case 4: // half a frame
		_, _ = conn.NetConn().Write([]byte{0x81})
	default:
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				p.t.Errorf("visit %d: %v", i, err)
				return
			}
			if strings.HasPrefix(string(data), `{"type":"synced"`) {
				break
			}
		}
	}
	if i%2 == 0 {
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second))
	}
}

func newPushTest(t *testing.T, rounds int) *pushTest {
	t.Helper()
	p := newPushStack(t, rounds)
	p.start("pusher", "pusher1")
	p.fleet = newFleet(t, p.procs["pusher1"].addr, pushSale(0).ID, fleetUsers)
	p.fleet.allSynced(60 * time.Second)
	return p
}

// newPushStack is a Redis and a database file with the sales of some rounds.
func newPushStack(t *testing.T, rounds int) *pushTest {
	t.Helper()
	s := &stack{t: t, owner: t, mu: &sync.Mutex{}, procs: map[string]*proc{}}
	s.redis = testenv.OwnRedis(t, testenv.RedisOptions{AOF: true})
	s.rdb = redis.NewClient(&redis.Options{Addr: s.redis.Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = s.rdb.Close() })
	dir := t.TempDir()
	dsn := filepath.Join(dir, "push.db")
	p := &pushTest{stack: s, store: stock.New(s.rdb, stock.Options{UserPerSecond: 1 << 20, SystemPerSecond: 1 << 30}),
		out: push.NewPublisher(s.rdb, push.DefaultShards), hold: filepath.Join(dir, "hold")}
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "SECKILL_REDIS_ADDRS=" + s.redis.Addr, "SECKILL_DATABASE_DRIVER=sqlite",
		"SECKILL_DATABASE_DSN=" + dsn, "SECKILL_AUTH_JWT_SECRET=" + jwtSecret, "SECKILL_PUSHER_MAX_SOCKETS_PER_ADDRESS=10000",
		"SECKILL_PUSHER_PING_EVERY=1s", "SECKILL_PUSHER_PEER_TIMEOUT=3s", "SECKILL_PUSHER_SEND_BUFFER_BYTES=4096", "SECKILL_PUSHER_WRITE_TIMEOUT=3s",
		"SECKILL_PUSHER_SUBSCRIBER_QUEUE=200", "SECKILL_PUSHER_CHECK_EVERY=5m",
		"SECKILL_TEST_FAILPOINT=pusher:arrived:while:" + p.hold,
	}
	l, err := ledger.Open(t.Context(), ledger.Options{Driver: "sqlite", DSN: dsn, Role: "tester", Node: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := l.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range rounds * salesAFault {
		a := pushSale(i)
		if err := l.CreateActivity(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.Epoch, a.State = 1, sale.StateScheduled
		if err := p.store.BeginRebuild(t.Context(), *a, 1); err != nil {
			t.Fatal(err)
		}
		if err := p.store.FinishRebuild(t.Context(), &sale.Snapshot{Activity: *a}, 1); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func pushSale(i int) *sale.Activity {
	now := time.Now()
	return &sale.Activity{
		ID: fmt.Sprintf("PUSH%02d", i), Title: "Push", StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PayWithin: time.Hour,
		WaitlistUntil: now.Add(time.Hour), Items: []sale.Item{{CommodityID: "C1", Title: "Unit", Price: decimal.NewFromInt(1), Total: fleetUsers, MaxPerUser: 1}},
	}
}

// round reserves for all users, tells all decisions while something happens, and waits until everybody knows.
func (p *pushTest) round(n int, fault func(*pushTest)) {
	t := p.t
	p.fleet.allSynced(60 * time.Second)
	back := p.fleet.back.Load()
	var decisions []sale.Decision
	for i := range salesAFault {
		decisions = append(decisions, p.reserve(pushSale(n*salesAFault+i).ID)...)
	}
	var done sync.WaitGroup
	done.Go(func() {
		time.Sleep(500 * time.Millisecond)
		fault(p)
	})
	began := time.Now()
	for i := 0; i < len(decisions); i += tellTogether {
		p.tell(decisions[i:min(i+tellTogether, len(decisions))])
		time.Sleep(time.Until(began.Add(time.Duration(i) * 300 * time.Microsecond))) // over 3 s
	}
	told := time.Now()
	done.Wait()
	over := time.Now()
	var last time.Time
	eventually(t, 60*time.Second, "everybody is told", func() (bool, string) {
		p.fleet.mu.Lock()
		defer p.fleet.mu.Unlock()
		missing := 0
		last = time.Time{}
		for i := range decisions {
			at, ok := p.fleet.told[decisions[i].Token]
			if !ok {
				missing++
			} else if at.After(last) {
				last = at
			}
		}
		return missing == 0, fmt.Sprintf("%d of %d results are missing", missing, len(decisions))
	})
	t.Logf("%d results told in %v, 0 missing; the last came %v after the last decision, %v after the fault's end; %d sockets came back",
		len(decisions), told.Sub(began).Round(time.Millisecond), max(0, last.Sub(told)).Round(time.Millisecond),
		max(0, last.Sub(over)).Round(time.Millisecond), p.fleet.back.Load()-back)
}

// reserve takes a unit for every user of the fleet.
func (p *pushTest) reserve(id string) []sale.Decision {
	p.t.Helper()
	now := time.Now()
	var out []sale.Decision
	for from := int64(1); from <= fleetUsers; from += 250 {
		var reqs []sale.ReserveRequest
		for user := from; user < from+250 && user <= fleetUsers; user++ {
			reqs = append(reqs, sale.ReserveRequest{Token: fmt.Sprintf("%s-%d", id, user), UserID: user, CommodityID: "C1", Quantity: 1})
		}
		replies, err := p.store.Reserve(p.t.Context(), id, now, reqs)
		if err != nil {
			p.t.Fatal(err)
		}
		for i, r := range replies {
			if r.Outcome != sale.ReserveAccepted {
				p.t.Fatalf("reserve: %+v", r)
			}
			out = append(out, sale.Decision{
				Reservation: sale.Reservation{Token: reqs[i].Token, UserID: reqs[i].UserID, ActivityID: id, CommodityID: "C1", Quantity: 1, Epoch: 1, At: now},
				Ordered:     true, OrderNo: "no-" + reqs[i].Token, Status: sale.StatusPendingPayment, Version: 1, PayBefore: now.Add(time.Hour),
			})
		}
	}
	return out
}

// tell settles and announces decisions until both have worked, as a consumer does before it commits their offsets.
func (p *pushTest) tell(ds []sale.Decision) {
	p.t.Helper()
	end := time.Now().Add(60 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Second)
		_, err := p.store.Settle(ctx, ds[0].ActivityID, ds)
		if err == nil {
			results := make([]sale.UserResult, len(ds))
			for i := range ds {
				results[i] = sale.UserResult{UserID: ds[i].UserID, Result: ds[i].Result()}
			}
			err = p.out.Results(ctx, results)
		}
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("tell: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *pushTest) killSubscriptions() {
	killed := int64(0)
	for range 50 {
		n, err := p.rdb.Do(p.t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Int64()
		if err != nil {
			p.t.Errorf("kill: %v", err)
		}
		killed += n
		time.Sleep(40 * time.Millisecond)
	}
	if killed < 10 {
		p.t.Errorf("%d connections were killed", killed)
	}
	p.t.Logf("%d connections killed", killed)
}

func (p *pushTest) restartRedis() {
	if err := p.redis.Kill(); err != nil {
		p.t.Error(err)
	}
	time.Sleep(300 * time.Millisecond)
	if err := p.redis.Restart(p.t.Context()); err != nil {
		p.t.Error(err)
	}
}

func (p *pushTest) killPusher() {
	p.relaunch("pusher1")
	began := time.Now()
	p.fleet.allSynced(60 * time.Second)
	p.t.Logf("%d sockets were told their state again %v after the restart", fleetUsers, time.Since(began).Round(time.Millisecond))
}

func (p *pushTest) freezeFor(d time.Duration) {
	p.signal("pusher1", syscall.SIGSTOP)
	time.Sleep(d)
	p.signal("pusher1", syscall.SIGCONT)
}

func (p *pushTest) blockFor(d time.Duration) {
	if err := os.WriteFile(p.hold, nil, 0o600); err != nil {
		p.t.Error(err)
	}
	time.Sleep(d)
	if err := os.Remove(p.hold); err != nil {
		p.t.Error(err)
	}
	eventually(p.t, 10*time.Second, "the loss is counted", func() (bool, string) {
		n := p.metric(`seckill_push_dropped_total{reason="subscriber"}`)
		return n > 0, fmt.Sprint(n)
	})
}

// metric reads one figure of the pusher.
func (p *pushTest) metric(name string) float64 {
	p.t.Helper()
	resp, err := http.Get("http://" + p.procs["pusher1"].addr + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// stopReading has half of the clients stop while the state of the sale they look at fills their buffers.
func (p *pushTest) stopReading() {
	p.fleet.paused.Store(true)
	live := sale.Live{ActivityID: p.fleet.sale, State: sale.StateOpen, Epoch: 1, At: time.Now()}
	for i := range 100 {
		live.Items = append(live.Items, sale.Remaining{CommodityID: fmt.Sprintf("COMMODITY-%03d", i)})
	}
	for i := range 20 {
		live.Items[0].Units = int64(i)
		if err := p.out.Live(p.t.Context(), live); err != nil {
			p.t.Error(err)
		}
		time.Sleep(250 * time.Millisecond)
	}
	p.fleet.paused.Store(false)
}

// takeDetour has a tenth of the clients come by another way.
func (p *pushTest) takeDetour() {
	p.detour = newDetour(p.owner, p.procs["pusher1"].addr)
	addr := p.detour.ln.Addr().String()
	p.fleet.detour.Store(&addr)
	p.killPusher()
	p.fleet.detour.Store(nil) // when they come back, it is by the direct way
}
