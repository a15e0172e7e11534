package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/testenv"
)

// Real kills: roles and servers die by SIGKILL at random moments of a sale, and come back. Whatever died: never
// oversold, the balance holds, each accepted request has exactly one outcome and its user learns it, nobody is told
// failed who has an order, every unit returns once. In every third round Redis comes back from an older copy of its
// file (S26, R10, R15).
func TestKills(t *testing.T) {
	rounds := 3
	if testenv.Long() {
		rounds = 20
	}
	table := &recoveries{}
	for first := 0; first < rounds && !t.Failed(); first += roundsAStack {
		t.Run(fmt.Sprintf("stack %d", 1+first/roundsAStack), func(t *testing.T) {
			killRounds(t, first, min(roundsAStack, rounds-first), table)
		})
	}
	for _, line := range table.lines() {
		t.Log(line)
	}
}

// roundsAStack is how many rounds run on the same servers and roles, which is quicker; more of them would make a loss
// of Redis last longer from round to round, since the sales of all of them are rebuilt.
const roundsAStack = 3

func killRounds(t *testing.T, first, rounds int, table *recoveries) {
	// No rewriting of the file, so that a copy of it is a part of it.
	s := newStack(t, options{ownDatabase: true, redisArgs: []string{"--auto-aof-rewrite-percentage", "0"}, env: []string{
		// So slow that the units last until every kind of victim has died.
		"SECKILL_LIMITS_SALE_PER_SECOND=65",
		"SECKILL_PUSHER_MAX_SOCKETS_PER_ADDRESS=60000", "SECKILL_RECONCILER_RELAY_AFTER=2s",
	}})
	s.startAll()
	s.start("reconciler", "reconciler2")
	for n := range rounds {
		plan := killPlan{seed: uint64(time.Now().UnixNano()), stale: n == 2}
		name := fmt.Sprintf("round %d", 1+first+n)
		if plan.stale {
			name += ", Redis comes back older"
		}
		ok := t.Run(name, func(t *testing.T) {
			sub := *s
			sub.t = t
			sub.killRound(plan, table)
		})
		if !ok {
			return
		}
	}
}

// killPlan is what differs between rounds.
type killPlan struct {
	seed  uint64
	stale bool // each Redis death comes back from a copy made a while before it
}

// victimKinds are the roles and servers that die in each round.
func victimKinds() []string {
	return []string{"gateway", "consumer", "pusher", "reconciler", "redis", "kafka", "mariadb"}
}

func (s *stack) killRound(plan killPlan, table *recoveries) {
	t := s.t
	const stock, users = 2000, 20_000
	t.Logf("seed %d", plan.seed)
	begin := time.Now()
	for _, p := range s.procs {
		s.ready(p)
	}
	id, canaryID := s.openSale(stock), s.openSale(100_000)
	watch := s.watchSale(id, stock)
	birds := s.newCanaries(canaryID)
	k := &killer{s: s, plan: plan, rnd: rand.New(rand.NewPCG(plan.seed, 1)), watch: watch, birds: birds}
	done := make(chan struct{})
	var killing time.Duration
	reports := s.crowd(4, crowdJob{
		Gateways: birds.gateways, Pushers: birds.pushers,
		Activity: id, Users: users, InFlight: 40, Within: 4 * time.Minute, Faults: true, CancelEvery: 10,
	}, func() {
		birds.fly()
		t.Cleanup(func() { <-done })
		go func() {
			defer close(done)
			start := time.Now()
			k.run()
			killing = time.Since(start)
		}()
	})
	<-done
	crowded := time.Since(begin)
	told := birds.land()
	for _, bad := range watch.end() {
		t.Error(bad)
	}
	table.add(append(k.alone, k.storm), birds)
	t.Logf("kills: %s; losses of Redis noticed within %v", k.summary(), k.noticed.Round(10*time.Millisecond))
	kills := slices.Concat(k.alone, k.together)
	for _, kind := range victimKinds() {
		if !slices.ContainsFunc(kills, func(v kill) bool { return v.kind == kind && v.selling }) {
			t.Errorf("no %s died while there was something to sell", kind)
		}
	}
	sum := gather(t, reports)
	s.checkSale(saleCheck{id: id, stock: stock, outcomes: sum.Outcomes, unsure: sum.Unsure})
	s.checkSale(saleCheck{id: canaryID, stock: 100_000, outcomes: told})
	s.everybodyRuns()
	t.Logf("the round took %v: kills %v, the crowd gone after %v", time.Since(begin).Round(time.Second), killing.Round(time.Second), crowded.Round(time.Second))
}

// everybodyRuns: a role that ended by itself because a server was away would have to be started again by somebody.
func (s *stack) everybodyRuns() {
	for name, p := range s.procs {
		select {
		case <-p.done:
			s.t.Errorf("%s ended by itself: %v\n%s", name, p.err, tail(p.log.String(), 3000))
		default:
		}
	}
}

// kill is one death and how long it was felt.
type kill struct {
	kind    string
	at      time.Time
	back    time.Duration // until it answered again
	selling bool          // there were units left
}

// killer kills.
type killer struct {
	s     *stack
	plan  killPlan
	rnd   *rand.Rand
	watch *saleWatch
	birds *canaries

	alone, together []kill
	mu              sync.Mutex
	noticed         time.Duration  // the longest that a loss of Redis went unnoticed
	storm           kill           // the last one of those together, and how long until all were back
	back            sync.WaitGroup // of the roles that are starting again
}

const (
	killsTogether  = 3                // at random, besides those that are left of the list
	recoversWithin = 40 * time.Second // of a single death; then the next one comes all the same
)

// run kills one of every kind first, and waits each time until the sale goes on, so that it can be said what each death
// costs. Then it kills the others and some at random, without waiting for anybody to recover.
func (k *killer) run() {
	first, rest := k.order()
	for _, name := range first {
		if k.pause(100, 700); k.s.t.Context().Err() != nil {
			return
		}
		v := k.kill(name, k.await)
		k.alone = append(k.alone, v)
		k.untilToldAfter(v.at)
	}
	all := slices.Concat(first, rest)
	for range killsTogether {
		rest = append(rest, all[k.rnd.IntN(len(all))])
	}
	for _, name := range rest {
		if k.pause(100, 1200); k.s.t.Context().Err() != nil {
			return
		}
		v := k.kill(name, func(p *proc) { k.back.Go(func() { k.await(p) }) })
		k.together = append(k.together, v)
		k.storm.at, k.storm.selling = v.at, v.selling
	}
	k.back.Wait()
	k.storm.kind, k.storm.back = "several together", time.Since(k.storm.at)
	k.untilToldAfter(k.storm.at)
}

// untilToldAfter waits until somebody who clicked after that was told an order.
func (k *killer) untilToldAfter(at time.Time) {
	for end := time.Now().Add(recoversWithin); !k.birds.toldAfter(at) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}

func (k *killer) pause(least, more int) {
	time.Sleep(time.Duration(least+k.rnd.IntN(more)) * time.Millisecond)
}

// order is all victims, shuffled: one of each kind, and the others. When the round is about Redis, it dies three times.
func (k *killer) order() (first, rest []string) {
	servers := []string{"redis", "kafka", "mariadb"}
	all := append(slices.Sorted(maps.Keys(k.s.procs)), servers...)
	if k.plan.stale { // this round is about Redis
		all = append(all, "redis", "redis")
	}
	k.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	seen := map[string]bool{}
	for _, name := range all {
		if kind := kindOf(name); !seen[kind] {
			seen[kind] = true
			first = append(first, name)
		} else {
			rest = append(rest, name)
		}
	}
	return first, rest
}

func kindOf(name string) string { return strings.TrimRight(name, "0123456789") }

// kill ends one victim, starts it again, and waits until it answers; for a role await does that.
func (k *killer) kill(name string, await func(p *proc)) kill {
	s := k.s
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	v := kill{kind: kindOf(name)}
	restart := func(srv *testenv.Server, between func() error) {
		v.at, v.selling = time.Now(), k.watch.selling()
		if err = srv.Kill(); err == nil && between != nil {
			err = between()
		}
		if err == nil {
			err = srv.Restart(ctx)
		}
		v.back = time.Since(v.at)
	}
	switch name {
	case "redis":
		defer k.notices(s.epochInRedis(k.watch.id)) // what it holds at most when it is back
		if !k.plan.stale {
			restart(s.redis, nil)
			break
		}
		var old *aofCopy
		if old, err = copyAOF(s.redis, s.t.TempDir()); err != nil {
			break
		}
		time.Sleep(time.Duration(300+k.rnd.IntN(2500)) * time.Millisecond) // what happens now will be forgotten
		restart(s.redis, old.putBack)
		s.t.Logf("Redis came back without its last %d bytes", old.forgotten)
	case "kafka":
		restart(s.kafka.Nodes[0], nil)
	case "mariadb":
		restart(s.maria, nil)
	default:
		v.at, v.selling = time.Now(), k.watch.selling()
		s.relaunch(name)
		await(s.procs[name])
		v.back = time.Since(v.at)
	}
	if err != nil {
		s.t.Errorf("kill %s: %v", name, err)
	}
	return v
}

// noticesWithin bounds how long after its return a loss of Redis may go unnoticed; the database may be down meanwhile.
const noticesWithin = 20 * time.Second

// notices waits, beside the killing, until a Redis that is back counts as one that lost data: until the database has a
// higher epoch than Redis had, so that the sale is rebuilt (R10, R15). Without this an audit would put things right in the end, and nobody would see that nobody noticed.
func (k *killer) notices(epoch int64) {
	back := time.Now()
	k.back.Go(func() {
		for k.watch.epoch.Load() <= epoch {
			if time.Since(back) > noticesWithin {
				k.s.t.Errorf("%v after Redis came back nobody had noticed what it lost, the epoch is still that of before, %d", noticesWithin, epoch)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		k.s.t.Logf("Redis had epoch %d when it died; %v after it was back the database has %d", epoch, time.Since(back).Round(time.Millisecond), k.watch.epoch.Load())
		k.mu.Lock()
		defer k.mu.Unlock()
		k.noticed = max(k.noticed, time.Since(back))
	})
}

// epochInRedis is what Redis has now; it may still be loading after the death before.
func (s *stack) epochInRedis(id string) int64 {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		epoch, err := s.rdb.HGet(context.Background(), "seckill:{"+id+"}:meta", "epoch").Int64()
		if err == nil || time.Now().After(end) {
			if err != nil {
				s.t.Errorf("read the epoch: %v", err)
			}
			return epoch
		}
	}
}

// await waits until the role is ready, or was killed once more.
func (k *killer) await(p *proc) {
	client := http.Client{Timeout: 2 * time.Second}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.done:
			return
		default:
		}
		res, err := client.Get("http://" + p.addr + "/readyz")
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return
		}
	}
	k.s.t.Errorf("%s is not ready a minute after its kill\n%s", p.name, tail(p.log.String(), 3000))
}

func (k *killer) summary() string {
	all, selling := map[string]int{}, 0
	kills := slices.Concat(k.alone, k.together)
	for _, v := range kills {
		all[v.kind]++
		if v.selling {
			selling++
		}
	}
	var text []string
	for _, kind := range victimKinds() {
		text = append(text, fmt.Sprintf("%s %d", kind, all[kind]))
	}
	return fmt.Sprintf("%s; %d in all, %d of them while units were left", strings.Join(text, ", "), len(kills), selling)
}
