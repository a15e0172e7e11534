package bench

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/push"
	"seckill/internal/sale"
)

// PushOptions say what the push bench does. All are required.
type PushOptions struct {
	Redis     string        // host:port of a Redis that nothing else uses meanwhile
	Program   string        // path of the seckill program: its pushers and the client processes
	Floor     string        // path of the floor program, or "": measure this instead of the pusher
	Sockets   int           // in all
	Processes int           // pushers, and as many clients, with an equal share of the sockets each
	Idle      time.Duration // from the last connect until memory is read; two rounds of pings are 50 s
	Rate      int           // results a second, in all, while latency is measured
	For       time.Duration // how long at that rate, and then how long at full speed; 0: not measured
	Restart   bool          // at the end, kill a pusher and start it again
	Log       io.Writer     // progress
}

// PushReport is what was measured. Latencies are from the moment a result was due to be published until a client had it.
type PushReport struct {
	Sockets, Processes int
	ConnectsPerSecond  float64 // authenticated, subscribed, and told their state
	RSSPerSocket       float64 // bytes, resident, above that of the empty process
	LivePerSocket      float64 // bytes, heap found alive by the last collection and stacks, above the same
	Rate               int
	P50, P99, Max      time.Duration
	CPUPerPush         time.Duration // of the pushers, at that rate
	MostPerSecond      float64       // results delivered while 20,000 at most are on their way
	CPUPerPushAtMost   time.Duration
	Published, Lost    int64 // results, and those that did not arrive
	SocketsLost        int64
	BackAfterRestart   time.Duration // from the kill of a pusher until all its sockets have been told their state by the next
}

const (
	benchSale   = "BENCH"
	onTheirWay  = 20_000
	mostAtOnce  = 256 // results in one pipeline
	settleAfter = 3 * time.Second
)

type pushBench struct {
	o       PushOptions
	secret  []byte
	rdb     *redis.Client
	out     *push.Publisher
	servers []*process
	workers []*worker
	dir     string
	users   []int64 // with a socket
	sent    int64
	report  PushReport
}

// Push measures sockets: memory, connects, latency at a fixed rate, and the most results a second.
func Push(ctx context.Context, o PushOptions) (PushReport, error) {
	b := &pushBench{o: o, secret: []byte(hex.EncodeToString([]byte("push bench")) + "-and-more-bytes"), report: PushReport{
		Sockets: o.Sockets, Processes: o.Processes, Rate: o.Rate,
	}}
	b.rdb = redis.NewClient(&redis.Options{Addr: o.Redis})
	defer func() { _ = b.rdb.Close() }()
	b.out = push.NewPublisher(b.rdb, push.DefaultShards)
	dir, err := os.MkdirTemp("", "seckill-bench")
	if err != nil {
		return b.report, fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b.dir = dir
	defer b.stop()
	for _, step := range []func(context.Context) error{
		b.startServers, b.connect, b.atRate, b.atMost, b.settle, b.restart,
	} {
		if err := step(ctx); err != nil {
			return b.report, err
		}
	}
	return b.report, nil
}

func (b *pushBench) stop() {
	for _, w := range b.workers {
		w.stop()
	}
	for _, s := range b.servers {
		s.stop()
	}
}

func (b *pushBench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.o.Log, format+"\n", args...)
}

func (b *pushBench) startServers(ctx context.Context) error {
	addrs, err := freePorts(b.o.Processes)
	if err != nil {
		return err
	}
	if err := makeSale(ctx, database(b.dir)); err != nil {
		return err
	}
	for i, addr := range addrs {
		p, err := b.startServer(ctx, i, addr)
		if err != nil {
			return err
		}
		b.servers = append(b.servers, p)
	}
	time.Sleep(time.Second)
	return nil
}

func (b *pushBench) startServer(ctx context.Context, i int, addr string) (*process, error) {
	path, args := b.o.Program, []string{
		"pusher", "--pusher-addr", addr, "--set", "redis.addrs=" + b.o.Redis, "--set", "database.driver=sqlite",
		"--set", "database.dsn=" + database(b.dir), "--set", "auth.jwtSecret=" + string(b.secret), "--set", "log.level=warn",
		"--set", "pusher.maxSocketsPerAddress=" + strconv.Itoa(socketsPerAddress),
	}
	if b.o.Floor != "" {
		path, args = b.o.Floor, []string{"-addr", addr, "-redis", b.o.Redis, "-secret", string(b.secret),
			"-process", strconv.Itoa(i), "-processes", strconv.Itoa(b.o.Processes)}
	}
	return start(ctx, path, addr, args...)
}

func database(dir string) string { return filepath.Join(dir, "bench.db") }

// makeSale makes a database with one sale that is on.
func makeSale(ctx context.Context, dsn string) error {
	l, err := ledger.Open(ctx, ledger.Options{Driver: "sqlite", DSN: dsn, Role: "bench", Node: "bench"})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	if err := l.Migrate(ctx); err != nil {
		return err
	}
	now := time.Now()
	return l.CreateActivity(ctx, &sale.Activity{
		ID: benchSale, Title: "Bench", StartsAt: now.Add(-time.Minute), EndsAt: now.Add(time.Hour), PayWithin: time.Minute,
		WaitlistUntil: now.Add(time.Hour), Items: []sale.Item{{CommodityID: "C1", Title: "Unit", Total: 1, MaxPerUser: 1, Price: decimal.NewFromInt(1)}},
	})
}

func (b *pushBench) usage(ctx context.Context) (sum usage, err error) {
	for _, s := range b.servers {
		u, err := s.usage(ctx)
		if err != nil {
			return sum, err
		}
		sum = sum.plus(u)
	}
	return sum, nil
}

// connect opens all sockets at full speed, waits, and reads the memory.
func (b *pushBench) connect(ctx context.Context) error {
	empty, err := b.usage(ctx)
	if err != nil {
		return err
	}
	share := b.o.Sockets / b.o.Processes
	for i, s := range b.servers {
		w, err := startWorker(b.o.Program, pushJob{
			Addr: s.addr, Activity: benchSale, Secret: b.secret, Process: i, Processes: b.o.Processes, Sockets: share, Dialers: 64, Network: 1 + i,
		})
		if err != nil {
			return err
		}
		b.workers = append(b.workers, w)
		b.users = append(b.users, usersOf(i, b.o.Processes, share)...)
	}
	var slowest time.Duration
	for _, w := range b.workers {
		r, err := w.read()
		if err != nil {
			return err
		}
		slowest = max(slowest, r.Took)
	}
	n := float64(share * b.o.Processes)
	b.report.ConnectsPerSecond = n / slowest.Seconds()
	b.say("%.0f sockets in %.1f s", n, slowest.Seconds())
	for _, at := range []time.Duration{28 * time.Second, b.o.Idle} {
		if at > b.o.Idle {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(at - min(at, b.idled(at))):
		}
		u, err := b.usage(ctx)
		if err != nil {
			return err
		}
		b.report.RSSPerSocket = float64(u.RSS-empty.RSS) / n
		b.report.LivePerSocket = float64(u.Live-empty.Live) / n
		b.say("%v after the last connect: %.2f KiB a socket resident, %.2f live; empty %.1f MiB", at, b.report.RSSPerSocket/1024,
			b.report.LivePerSocket/1024, float64(empty.RSS)/(1<<20))
	}
	return nil
}

// idled is how much of a wait has passed at the reading before it.
func (b *pushBench) idled(at time.Duration) time.Duration {
	if at > 28*time.Second {
		return 28 * time.Second
	}
	return 0
}

// result is one to publish: its order number is the time when it was due.
func (b *pushBench) result(due time.Time) sale.UserResult {
	b.sent++
	return sale.UserResult{UserID: b.users[rand.IntN(len(b.users))], Result: sale.Result{
		RequestToken: "bench-" + strconv.FormatInt(b.sent, 10), ActivityID: benchSale, CommodityID: "C1", Quantity: 1,
		Status: sale.StatusPendingPayment, OrderNo: strconv.FormatInt(due.UnixNano(), 10), PayBefore: due.Add(time.Minute), Version: 1,
	}}
}

// atRate publishes at a fixed rate, whether or not the servers keep up, and takes the latencies.
func (b *pushBench) atRate(ctx context.Context) error {
	if b.o.For <= 0 {
		return nil
	}
	if _, err := b.collect(); err != nil { // forgets what was before
		return err
	}
	before, err := b.usage(ctx)
	if err != nil {
		return err
	}
	from, first := time.Now(), b.sent
	for time.Since(from) < b.o.For && ctx.Err() == nil {
		var batch []sale.UserResult
		for len(batch) < mostAtOnce {
			due := from.Add(time.Duration(b.sent-first) * time.Second / time.Duration(b.o.Rate))
			if due.After(time.Now()) {
				break
			}
			batch = append(batch, b.result(due))
		}
		if len(batch) == 0 {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		if err := b.out.Results(ctx, batch); err != nil {
			return err
		}
	}
	after, err := b.usage(ctx)
	if err != nil {
		return err
	}
	time.Sleep(settleAfter)
	h, err := b.collect()
	if err != nil {
		return err
	}
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond }
	b.report.P50, b.report.P99, b.report.Max = at(50), at(99), time.Duration(h.Max())*time.Microsecond
	b.report.CPUPerPush = (after.CPU - before.CPU) / time.Duration(b.sent-first)
	b.say("%d a second for %v: p50 %v, p99 %v, p99.9 %v, max %v, %v of processor a push", b.o.Rate, b.o.For, b.report.P50, b.report.P99,
		at(99.9), b.report.Max, b.report.CPUPerPush)
	return nil
}

// atMost publishes as fast as results arrive.
func (b *pushBench) atMost(ctx context.Context) error {
	if b.o.For <= 0 {
		return nil
	}
	before, err := b.usage(ctx)
	if err != nil {
		return err
	}
	first, err := b.received()
	if err != nil {
		return err
	}
	from, got := time.Now(), first
	for time.Since(from) < b.o.For && ctx.Err() == nil {
		for b.sent-got < onTheirWay {
			batch := make([]sale.UserResult, mostAtOnce)
			for i := range batch {
				batch[i] = b.result(time.Now())
			}
			if err := b.out.Results(ctx, batch); err != nil {
				return err
			}
		}
		if got, err = b.received(); err != nil {
			return err
		}
		if b.sent-got >= onTheirWay {
			time.Sleep(2 * time.Millisecond)
		}
	}
	took := time.Since(from)
	after, err := b.usage(ctx)
	if err != nil {
		return err
	}
	b.report.MostPerSecond = float64(got-first) / took.Seconds()
	b.report.CPUPerPushAtMost = (after.CPU - before.CPU) / time.Duration(max(1, got-first))
	b.say("at most %.0f a second, %v of processor a push", b.report.MostPerSecond, b.report.CPUPerPushAtMost)
	return nil
}

// settle counts what has not arrived.
func (b *pushBench) settle(context.Context) error {
	time.Sleep(settleAfter)
	got, err := b.received()
	if err != nil {
		return err
	}
	b.report.Published, b.report.Lost = b.sent, b.sent-got
	b.say("%d published, %d lost, %d sockets lost", b.sent, b.report.Lost, b.report.SocketsLost)
	return nil
}

// restart kills a pusher, starts it again, and waits for its sockets.
func (b *pushBench) restart(ctx context.Context) error {
	if !b.o.Restart {
		return nil
	}
	old, began := b.servers[0], time.Now()
	_ = old.cmd.Process.Kill()
	_ = old.cmd.Wait()
	next, err := b.startServer(ctx, 0, old.addr)
	if err != nil {
		return err
	}
	b.servers[0] = next
	ready := time.Since(began)
	want := int64(b.o.Sockets / b.o.Processes)
	for synced := int64(0); synced < want; {
		time.Sleep(20 * time.Millisecond)
		r, err := b.workers[0].ask("count")
		if err != nil {
			return err
		}
		if synced = r.Synced; time.Since(began) > 2*time.Minute {
			return fmt.Errorf("bench: %d of %d sockets came back", synced, want)
		}
	}
	b.report.BackAfterRestart = time.Since(began)
	b.say("a pusher killed: ready again after %v, all its %d sockets told their state after %v", ready.Round(time.Millisecond), want,
		b.report.BackAfterRestart.Round(time.Millisecond))
	return nil
}

func (b *pushBench) received() (n int64, err error) {
	b.report.SocketsLost = 0
	for _, w := range b.workers {
		r, err := w.ask("count")
		if err != nil {
			return 0, err
		}
		n += r.Received
		b.report.SocketsLost += r.Lost
	}
	return n, nil
}

// collect merges the workers' latencies since the last time.
func (b *pushBench) collect() (*hdrhistogram.Histogram, error) {
	all := newHistogram()
	for _, w := range b.workers {
		r, err := w.ask("report")
		if err != nil {
			return nil, err
		}
		all.Merge(hdrhistogram.Import(r.Latency))
	}
	return all, nil
}
