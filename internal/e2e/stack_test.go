package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/internal/apiclient"
	"seckill/internal/auth"
	"seckill/internal/testenv"
)

const (
	jwtSecret  = "a secret of the tests, 32 bytes.."
	adminToken = "an admin token of the tests"

	requestTokenSecret = "a request token secret of the tests"
)

var (
	binary  string       //nolint:gochecknoglobals // built once by TestMain
	counter atomic.Int64 //nolint:gochecknoglobals // makes names unique
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if crowdWorker() {
		return 0
	}
	if os.Getenv(testenv.EnvE2E) != "1" {
		fmt.Println("end-to-end tests run with " + testenv.EnvE2E + "=1 (make test sets it)")
		return 0
	}
	dir, err := os.MkdirTemp("", "seckill-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "seckill")
	build := exec.Command("go", "build", "-tags", "failpoints", "-o", binary, "seckill")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// stack is one installation: servers, a database of its own, and role processes.
type stack struct {
	t     *testing.T  // the test that runs now
	owner *testing.T  // the test whose end ends the processes
	mu    *sync.Mutex // guards procs while faults are made beside a test
	redis *testenv.Server
	kafka *testenv.Cluster
	maria *testenv.Server // nil: the shared one
	rdb   redis.UniversalClient
	db    *sql.DB
	dsn   string
	env   []string
	procs map[string]*proc
	// kafkaBehind is where the broker really listens for each of options.kafkaProxies.
	kafkaBehind []string
	seen        func(req *http.Request, status int, header http.Header, body []byte)
}

// options of a stack. The zero value is the usual one.
type options struct {
	brokers      int      // default 1
	cluster      bool     // Redis Cluster instead of one Redis
	ownDatabase  bool     // a MariaDB of its own, to be hurt
	redisArgs    []string // further options of redis-server
	kafkaProxies []string // addresses of proxies that will lead to kafkaBehind
	env          []string
}

// newStack starts Redis and Kafka of its own and makes a database on the shared MariaDB.
func newStack(t *testing.T, o options) *stack {
	t.Helper()
	s := &stack{t: t, owner: t, mu: &sync.Mutex{}, procs: map[string]*proc{}, seen: checkContract(t)}
	var dsn string
	if o.ownDatabase {
		s.maria = testenv.OwnMariaDB(t)
		dsn = s.maria.DSN
	} else {
		dsn = testenv.MySQL(t)
	}
	var wg sync.WaitGroup
	var redisAddrs []string
	wg.Go(func() {
		if len(o.kafkaProxies) > 0 {
			s.kafka, s.kafkaBehind = testenv.OwnKafkaBehind(t, o.kafkaProxies)
			return
		}
		s.kafka = testenv.OwnKafka(t, max(1, o.brokers))
	})
	wg.Go(func() {
		if o.cluster {
			redisAddrs = testenv.OwnRedisCluster(t).Addrs()
			s.rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: redisAddrs})
			return
		}
		s.redis = testenv.OwnRedis(t, testenv.RedisOptions{AOF: true, Args: o.redisArgs})
		redisAddrs = []string{s.redis.Addr}
		s.rdb = redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	})
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { _ = s.rdb.Close() })
	s.makeDatabase(dsn)
	s.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TZ=America/Sao_Paulo",
		"SECKILL_REDIS_ADDRS=" + strings.Join(redisAddrs, ","),
		"SECKILL_KAFKA_BROKERS=" + strings.Join(s.kafka.Addrs(), ","),
		"SECKILL_KAFKA_SESSION_TIMEOUT=6s",
		"SECKILL_DATABASE_DSN=" + s.dsn,
		"SECKILL_AUTH_JWT_SECRET=" + jwtSecret,
		"SECKILL_AUTH_REQUEST_TOKEN_SECRET=" + requestTokenSecret,
		"SECKILL_AUTH_ADMIN_TOKEN=" + adminToken,
		"SECKILL_AUTH_DEMO_LOGIN=true",
		"SECKILL_LIMITS_USER_PER_SECOND=500",
		"SECKILL_GATEWAY_READS_PER_SECOND=500",
	}, o.env...)
	s.command("migrate")
	return s
}

// makeDatabase makes a database of this test and drops it at the end.
func (s *stack) makeDatabase(dsn string) {
	s.t.Helper()
	name := fmt.Sprintf("e2e_%d_%d", os.Getpid(), counter.Add(1))
	root, err := sql.Open("mysql", dsn)
	if err == nil {
		_, err = root.Exec("CREATE DATABASE " + name)
	}
	if err != nil {
		s.t.Fatalf("create database: %v", err)
	}
	slash := strings.Index(dsn, "/")
	s.dsn = dsn[:slash+1] + name + dsn[slash+1:]
	if s.db, err = sql.Open("mysql", s.dsn); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_, err := root.Exec("DROP DATABASE " + name)
		if err := errors.Join(err, s.db.Close(), root.Close()); err != nil {
			s.t.Errorf("drop database: %v", err)
		}
	})
}

// command runs a subcommand to its end.
func (s *stack) command(args ...string) string {
	s.t.Helper()
	out, err := s.tryCommand(args...)
	if err != nil {
		s.t.Fatalf("seckill %v: %v\n%s", args, err, out)
	}
	return out
}

func (s *stack) tryCommand(args ...string) (string, error) {
	cmd := exec.Command(binary, args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// proc is one role process.
type proc struct {
	role, name, addr string
	cmd              *exec.Cmd
	log              *logBuffer
	done             chan struct{}
	err              error
}

// logBuffer keeps the head of what a process wrote.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() < 1<<20 {
		l.b.Write(p)
	}
	return len(p), nil
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a role under a name such as gateway1, on a free port, and waits until it is ready.
func (s *stack) start(role, name string, env ...string) *proc {
	s.t.Helper()
	p := s.launch(role, name, freeAddr(s.t), env...)
	s.ready(p)
	return p
}

// launch runs a role without waiting.
func (s *stack) launch(role, name, addr string, env ...string) *proc {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &proc{role: role, name: name, addr: addr, log: &logBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(binary, role, "--"+role+"-addr", addr, "--set", "node="+name)
	p.cmd.Env = append(append([]string{}, s.env...), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = testenv.ChildAttr()
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	s.procs[name] = p
	s.owner.Cleanup(func() {
		p.kill()
		if s.owner.Failed() || os.Getenv("SECKILL_TEST_LOGS") != "" {
			s.owner.Logf("---- log of %s ----\n%s", name, tail(p.log.String(), 6000))
		}
	})
	return p
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// ready waits for readyz.
func (s *stack) ready(p *proc) {
	s.t.Helper()
	end := time.Now().Add(40 * time.Second)
	last := ""
	for time.Now().Before(end) {
		select {
		case <-p.done:
			s.t.Fatalf("%s ended at the start: %v\n%s", p.name, p.err, p.log.String())
		default:
		}
		res, err := http.Get("http://" + p.addr + "/readyz")
		if err == nil {
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
			last = string(body)
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatalf("%s is not ready: %s\n%s", p.name, last, tail(p.log.String(), 4000))
}

// relaunch kills a role process and starts it again at the same address.
func (s *stack) relaunch(name string) {
	s.t.Helper()
	old := s.procs[name]
	old.kill()
	s.launch(old.role, name, old.addr)
}

// kill ends a process as a crash does.
func (p *proc) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks a process to stop and returns how long it took and its exit error.
func (p *proc) stop() (time.Duration, error) {
	start := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
	return time.Since(start), p.err
}

// freeAddr finds a port that is free now, below those that outgoing connections are given.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 200 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(8000))
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = ln.Close()
		return addr
	}
	t.Fatal("no free port")
	return ""
}

// startAll starts the usual installation: two of each but one reconciler.
func (s *stack) startAll() {
	s.t.Helper()
	s.startSome(2, 2, 2)
}

// startSome starts gateways, consumers and pushers, and one reconciler.
func (s *stack) startSome(gateways, consumers, pushers int) {
	s.t.Helper()
	var ps []*proc
	add := func(role string, n int, env ...string) {
		for i := range n {
			ps = append(ps, s.launch(role, fmt.Sprintf("%s%d", role, i+1), freeAddr(s.t), env...))
		}
	}
	add("consumer", consumers)
	add("reconciler", 1)
	add("pusher", pushers)
	add("gateway", gateways)
	for _, p := range ps {
		s.ready(p)
	}
}

// api is a client of a gateway; every answer is checked against the contract.
func (s *stack) api(gateway string) *apiclient.Client {
	c := apiclient.New("http://"+s.procs[gateway].addr, 300)
	c.Observe = s.seen
	return c
}

// user signs a token.
func user(t *testing.T, id int64) string {
	t.Helper()
	token, err := auth.SignHS256([]byte(jwtSecret), id, "", "", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// openSale creates a sale through the first gateway; it is open now.
func (s *stack) openSale(stock int64) string {
	s.t.Helper()
	id := fmt.Sprintf("E%d-%d", os.Getpid(), counter.Add(1))
	c := s.api("gateway1")
	_, err := c.Admin(s.t.Context(), adminToken, "", "", apiclient.Sale{
		ActivityID: id, Title: "End to end", StartsAt: time.Now().Add(-time.Second).Format(time.RFC3339Nano),
		EndsAt: time.Now().Add(time.Hour).UnixMilli(),
		Items:  []apiclient.SaleItem{{CommodityID: "C1", Title: "Item", Price: "19.99", Total: stock, MaxPerUser: 2}},
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

// everyGatewayKnows waits until all gateways show the sale open.
func (s *stack) everyGatewayKnows(id string) {
	s.t.Helper()
	for name := range s.procs {
		if !strings.HasPrefix(name, "gateway") {
			continue
		}
		eventually(s.t, 10*time.Second, name+" shows the sale open", func() (bool, string) {
			a, err := s.api(name).Activity(s.t.Context(), id)
			return err == nil && a.State == "open", fmt.Sprint(a.State, err)
		})
	}
}

// eventually polls until ok; the last note explains a failure.
func eventually(t *testing.T, within time.Duration, what string, ok func() (bool, string)) {
	t.Helper()
	end := time.Now().Add(within)
	note := ""
	for time.Now().Before(end) {
		var done bool
		if done, note = ok(); done {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not within %v: %s (%s)", within, what, note)
}

// units reads the stock key.
func (s *stack) units(id string) int64 {
	s.t.Helper()
	n, err := s.rdb.Get(context.Background(), "seckill:{"+id+"}:stock:C1").Int64()
	if err != nil {
		s.t.Fatalf("read stock: %v", err)
	}
	return n
}

// occupied counts the undecided reservations.
func (s *stack) occupied(id string) int64 {
	s.t.Helper()
	n, err := s.rdb.ZCard(context.Background(), "seckill:{"+id+"}:occupied").Result()
	if err != nil {
		s.t.Fatalf("read occupied: %v", err)
	}
	return n
}

// orders counts the order rows of a sale, in all tables.
func (s *stack) orders(id string) (rows int64) {
	s.t.Helper()
	for i := range 16 {
		var n int64
		if err := s.db.QueryRow(fmt.Sprintf("SELECT COUNT(*) FROM seckill_order_%02d WHERE activity_id = ?", i), id).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		rows += n
	}
	return rows
}

// sold reads sold_count.
func (s *stack) sold(id string) (n int64) {
	s.t.Helper()
	if err := s.db.QueryRow("SELECT sold_count FROM stock_table WHERE activity_id = ? AND commodity_id = 'C1'", id).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// balanced waits until nothing is undecided, then checks Redis stock + sold = total and orders = sold.
func (s *stack) balanced(id string, total, wantOrders int64) {
	s.t.Helper()
	eventually(s.t, 60*time.Second, "nothing undecided", func() (bool, string) {
		n := s.occupied(id)
		return n == 0, fmt.Sprint(n, " occupied")
	})
	units, sold, rows := s.units(id), s.sold(id), s.orders(id)
	if units+sold != total || rows != sold || (wantOrders >= 0 && rows != wantOrders) || units < 0 {
		s.t.Errorf("balance of %s: redis %d, sold %d, order rows %d; want total %d, orders %d", id, units, sold, rows, total, wantOrders)
	}
}
