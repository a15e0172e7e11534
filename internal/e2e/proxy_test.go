package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/testenv"
)

// pairs are the connections that have a proxy: a role and a server it speaks to.
func pairs() []string {
	return []string{
		"gateway-redis", "gateway-kafka", "gateway-mariadb",
		"consumer-redis", "consumer-kafka", "consumer-mariadb",
		"reconciler-redis", "reconciler-kafka", "reconciler-mariadb",
		"pusher-redis", "pusher-mariadb",
	}
}

// faultKinds are what a proxy does: cut closes all connections and refuses new ones; the delays hold each piece of what
// the role sends (late) or the server answers (slow) for 1 to 3 s; swallow lets requests through and answers vanish, and
// ends these connections when it is over.
func faultKinds() []string { return []string{"cut", "late", "slow", "swallow"} }

// The network between each pair of a role and a server is cut, slow, late, or swallows answers, in random order and
// several at a time during a sale: the invariants of TestKills hold (S20, S21, FS-013, FS-054, FS-055, R3, R9).
func TestProxyFaults(t *testing.T) {
	rounds := 1
	if testenv.Long() {
		rounds = 10
	}
	s, proxies := newProxiedStack(t)
	table := &recoveries{}
	for round := range rounds {
		seed := uint64(time.Now().UnixNano()) + uint64(round)
		ok := t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			sub := *s
			sub.t = t
			sub.proxyRound(seed, proxies, table)
		})
		if !ok {
			break
		}
	}
	for _, line := range table.lines() {
		t.Log(line)
	}
}

// newProxiedStack starts two of each role, each role behind proxies of its own.
func newProxiedStack(t *testing.T) (*stack, map[string]*faultProxy) {
	t.Helper()
	listen, roles := map[string]string{}, []string{"gateway", "consumer", "reconciler"} // those that speak to Kafka
	var atKafka []string
	for _, pair := range pairs() {
		listen[pair] = freeAddr(t)
	}
	for _, role := range roles {
		atKafka = append(atKafka, listen[role+"-kafka"])
	}
	s := newStack(t, options{kafkaProxies: atKafka, env: []string{
		"SECKILL_LIMITS_SALE_PER_SECOND=14", "SECKILL_PUSHER_MAX_SOCKETS_PER_ADDRESS=30000", "SECKILL_RECONCILER_RELAY_AFTER=2s",
	}})
	server := newFaultServer()
	dsn, err := mysql.ParseDSN(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	upstream := map[string]string{"redis": s.redis.Addr, "mariadb": dsn.Addr}
	proxies := map[string]*faultProxy{}
	env := map[string][]string{}
	for _, pair := range pairs() {
		role, at, _ := strings.Cut(pair, "-")
		to := upstream[at]
		switch at {
		case "redis":
			env[role] = append(env[role], "SECKILL_REDIS_ADDRS="+listen[pair])
		case "kafka":
			env[role] = append(env[role], "SECKILL_KAFKA_BROKERS="+listen[pair])
			for i, r := range roles {
				if r == role {
					to = s.kafkaBehind[i]
				}
			}
		case "mariadb":
			through := dsn.Clone()
			through.Addr = listen[pair]
			env[role] = append(env[role], "SECKILL_DATABASE_DSN="+through.FormatDSN())
		}
		proxies[pair] = newFaultProxy(t, server, pair, listen[pair], to)
	}
	var ps []*proc
	for _, role := range []string{"consumer", "reconciler", "pusher", "gateway"} {
		for n := range 2 {
			ps = append(ps, s.launch(role, fmt.Sprintf("%s%d", role, n+1), freeAddr(t), env[role]...))
		}
	}
	for _, p := range ps {
		s.ready(p)
	}
	return s, proxies
}

func (s *stack) proxyRound(seed uint64, proxies map[string]*faultProxy, table *recoveries) {
	t := s.t
	const stock, users = 500, 5000
	t.Logf("seed %d", seed)
	begin := time.Now()
	for _, p := range s.procs {
		s.ready(p)
	}
	id, canaryID := s.openSale(stock), s.openSale(100_000)
	watch := s.watchSale(id, stock)
	birds := s.newCanaries(canaryID)
	m := &meddler{s: s, proxies: proxies, watch: watch}
	done := make(chan struct{})
	reports := s.crowd(2, crowdJob{
		Gateways: birds.gateways, Pushers: birds.pushers,
		Activity: id, Users: users, InFlight: 40, Within: 4 * time.Minute, Faults: true, CancelEvery: 4,
	}, func() {
		birds.fly()
		t.Cleanup(func() { <-done })
		go func() {
			defer close(done)
			m.run(rand.New(rand.NewPCG(seed, 2)))
		}()
	})
	<-done
	told := birds.land()
	for _, bad := range watch.end() {
		t.Error(bad)
	}
	table.add(m.faults, birds)
	selling := 0
	for _, f := range m.faults {
		if f.selling {
			selling++
		}
	}
	t.Logf("faults: %v at each of %d pairs, %d in all, %d of them while units were left", faultKinds(), len(proxies), len(m.faults), selling)
	if selling < len(m.faults)/2 {
		t.Errorf("only %d of %d faults fell into the sale", selling, len(m.faults))
	}
	sum := gather(t, reports)
	s.checkSale(saleCheck{id: id, stock: stock, outcomes: sum.Outcomes, unsure: sum.Unsure})
	s.checkSale(saleCheck{id: canaryID, stock: 100_000, outcomes: told})
	s.everybodyRuns()
	t.Logf("the round took %v", time.Since(begin).Round(time.Second))
}

// meddler makes the faults of a round.
type meddler struct {
	s       *stack
	proxies map[string]*faultProxy
	watch   *saleWatch
	mu      sync.Mutex
	faults  []kill
}

// faultsAtATime is how many pairs are hurt side by side.
const faultsAtATime = 4

// run makes each kind of fault at each pair, cut and swallow twice, in random order. Two faults of one pair follow each
// other.
func (m *meddler) run(rnd *rand.Rand) {
	type fault struct {
		pair, kind  string
		delay, hold time.Duration
	}
	ms := func(least, more int) time.Duration { return time.Duration(least+rnd.IntN(more)) * time.Millisecond }
	var list []fault
	for _, pair := range pairs() {
		for _, kind := range faultKinds() {
			switch kind {
			case "late", "slow":
				delay := ms(1000, 2000)
				list = append(list, fault{pair, kind, delay, delay + ms(0, 1000)})
			default: // long enough to run into every deadline, and a short one
				list = append(list, fault{pair, kind, 0, ms(1500, 2500)}, fault{pair, kind, 0, ms(50, 600)})
			}
		}
	}
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	busy := map[string]*sync.Mutex{}
	for _, pair := range pairs() {
		busy[pair] = &sync.Mutex{}
	}
	slots := make(chan struct{}, faultsAtATime)
	var wg sync.WaitGroup
	for _, f := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			busy[f.pair].Lock()
			defer busy[f.pair].Unlock()
			v := kill{kind: f.kind, at: time.Now(), selling: m.watch.selling()}
			m.hurt(m.proxies[f.pair], f.kind, f.delay, f.hold)
			v.back = time.Since(v.at)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.faults = append(m.faults, v)
		})
	}
	wg.Wait()
}

// hurt makes one fault and mends it.
func (m *meddler) hurt(p *faultProxy, kind string, delay, hold time.Duration) {
	switch kind {
	case "cut":
		p.cut()
		defer p.mend()
	case "late":
		p.set("upstream", modeDelay, delay)
		defer p.set("upstream", modePass, 0)
	case "slow":
		p.set("downstream", modeDelay, delay)
		defer p.set("downstream", modePass, 0)
	case "swallow":
		p.set("downstream", modeSwallow, 0)
		defer p.set("downstream", modePass, 0)
	}
	time.Sleep(hold)
}

// The proxy itself: without this, a proxy that does nothing would let every round pass.
func TestFaultProxy(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	got := make(chan string, 100)
	go func() { // a server that says back what it hears
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buf := make([]byte, 100)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					got <- string(buf[:n])
					_, _ = conn.Write(buf[:n])
				}
			}()
		}
	}()
	p := newFaultProxy(t, newFaultServer(), "echo", freeAddr(t), ln.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dial := func() net.Conn {
		t.Helper()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.proxy.Listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		return conn
	}
	say := func(conn net.Conn) (time.Duration, error) {
		start := time.Now()
		if _, err := conn.Write([]byte("hello")); err != nil {
			return 0, err
		}
		_, err := io.ReadFull(conn, make([]byte, 5))
		return time.Since(start), err
	}
	conn := dial()
	if took, err := say(conn); err != nil || took > 500*time.Millisecond {
		t.Errorf("passing: %v %v", took, err)
	}
	for _, direction := range []string{"upstream", "downstream"} {
		p.set(direction, modeDelay, 700*time.Millisecond)
		if took, err := say(conn); err != nil || took < 600*time.Millisecond {
			t.Errorf("delayed %s: %v %v", direction, took, err)
		}
		p.set(direction, modePass, 0)
	}
	for len(got) > 0 {
		<-got
	}
	p.set("downstream", modeSwallow, 0)
	answer := make(chan error, 1)
	go func() {
		_, err := say(conn)
		answer <- err
	}()
	if text := <-got; text != "hello" { // the request arrives
		t.Errorf("the server got %q", text)
	}
	select {
	case err := <-answer:
		t.Errorf("an answer came through: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	p.set("downstream", modePass, 0)
	if err := <-answer; err == nil {
		t.Error("a connection with a hole went on")
	}
	conn = dial()
	if _, err := say(conn); err != nil {
		t.Errorf("after it: %v", err)
	}
	p.cut()
	if _, err := say(conn); err == nil {
		t.Error("a cut connection went on")
	}
	if c, err := net.Dial("tcp", p.proxy.Listen); err == nil {
		_ = c.Close()
		t.Error("connected while cut")
	}
	p.mend()
	if _, err := say(dial()); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}
