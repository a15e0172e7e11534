package bench

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/push"
	"seckill/internal/sale"
	"seckill/internal/stock"
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
	Live      time.Duration // how long the stock changes all the time and every socket looks at it; 0, or a floor: not measured
	Restart   bool          // at the end, kill a pusher and start it again
	Log       io.Writer     // progress
}

// Stretch is a time of results at a fixed rate. Latencies are from the moment a result was due to be published until a
// client had it.
type Stretch struct {
	Rate                int // results a second
	P50, P99, P999, Max time.Duration
	PusherP99           time.Duration // of that, between arrival at the pusher and writing, at most: a bound of its histogram
	CPUPerPush          time.Duration // of the pushers: all their processor time, divided by the results
}

// PushReport is what was measured.
type PushReport struct {
	Sockets, Processes int
	ConnectsPerSecond  float64 // authenticated, subscribed, and told their state
	RSSPerSocket       float64 // bytes, resident, above that of the empty process
	LivePerSocket      float64 // bytes, heap found alive by the last collection and stacks, above the same
	AtRate             Stretch
	MostPerSecond      float64 // results delivered while 20,000 at most are on their way
	CPUPerPushAtMost   time.Duration
	Published, Lost    int64 // results, and those that did not arrive
	SocketsLost        int64
	Live               *Live         `json:",omitempty"`
	BackAfterRestart   time.Duration // from the kill of a pusher until all its sockets have been told their state by the next
}

const (
	onTheirWay  = 20_000
	mostAtOnce  = 256 // results in one pipeline
	publishers  = 4   // at the fixed rate, side by side, as several consumers are
	settleAfter = 3 * time.Second
)

type pushBench struct {
	o       PushOptions
	secret  []byte
	rdb     *redis.Client
	out     *push.Publisher
	servers []*process
	workers []*worker
	stock   *stock.Store
	empty   usage // of the pushers before the first socket
	dir     string
	users   []int64 // with a socket
	sent    atomic.Int64
	report  PushReport
}

// Push measures sockets: memory, connects, latency at a fixed rate, and the most results a second.
func Push(ctx context.Context, o PushOptions) (PushReport, error) {
	b := &pushBench{o: o, secret: []byte(hex.EncodeToString([]byte("push bench")) + "-and-more-bytes"), report: PushReport{
		Sockets: o.Sockets, Processes: o.Processes,
	}}
	b.rdb = redis.NewClient(&redis.Options{Addr: o.Redis})
	defer func() { _ = b.rdb.Close() }()
	if err := b.rdb.Ping(ctx).Err(); err != nil {
		return b.report, fmt.Errorf("bench: redis %s: %w", o.Redis, err)
	}
	b.out, b.stock = push.NewPublisher(b.rdb, push.DefaultShards), stock.New(b.rdb, stock.Options{})
	dir, err := os.MkdirTemp("", "seckill-bench")
	if err != nil {
		return b.report, fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b.dir = dir
	defer b.stop()
	for _, step := range []func(context.Context) error{
		b.startServers, b.connect, b.atRate, b.live, b.atMost, b.settle, b.restart,
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
	if err := b.stock.Purge(context.Background(), benchSale); err != nil {
		b.say("the keys of the sale stay in Redis: %v", err)
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
	if err := b.makeSale(ctx); err != nil {
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
	var err error
	if b.empty, err = b.usage(ctx); err != nil {
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
		b.report.RSSPerSocket = float64(u.RSS-b.empty.RSS) / n
		b.report.LivePerSocket = float64(u.Live-b.empty.Live) / n
		b.say("%v after the last connect: %.2f KiB a socket resident, %.2f live; empty %.1f MiB", at, b.report.RSSPerSocket/1024,
			b.report.LivePerSocket/1024, float64(b.empty.RSS)/(1<<20))
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
		for b.sent.Load()-got < onTheirWay {
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
		if b.sent.Load()-got >= onTheirWay {
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
	b.report.Published = b.sent.Load()
	b.report.Lost = b.report.Published - got
	b.say("%d published, %d lost, %d sockets lost", b.report.Published, b.report.Lost, b.report.SocketsLost)
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
