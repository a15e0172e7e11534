package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// Config is one run.
type Config struct {
	Seed  uint64
	Bugs  Bugs
	Trace bool // keep a readable trace; slows the run down
}

// Bugs are mistakes to plant, so that a test can prove that the simulation would find them. All off by default.
type Bugs struct {
	DecisionNotUnique    bool // the token log takes a second decision
	NotYetIsDone         bool // the return script answers done where it should answer not_yet
	SecondTokenUndecided bool // a user's second token is acknowledged without a decision
	StatusUnchecked      bool // scripts write a status without looking at its version
	RepeatNotPublished   bool // a repeat that finds its token occupied is accepted without a publish
	NoEpoch              bool // reservations of a lost epoch are decided like any other
	DebtForgotten        bool // a rebuild that finds more units on their way back than are free lets all of them come
	ReturnsIgnored       bool // rebuilt stock counts units that are still on their way back
	RepairUnconditional  bool // the audit writes although the sale has moved
	FlagForAll           bool // the local sold-out flag answers participants too
	RepeatNotTold        bool // what was decided before is acknowledged without being settled and told again
	OffsetPastHole       bool // the offset of a batch that failed is committed
	RelayReleases        bool // the relay gives the unit back instead of publishing
	Unwitnessed          bool // nobody compares Redis with what leaders have recorded of it
	LateMark             bool // a returned unit is recorded although a rebuild has begun since
	LineUnchecked        bool // a rebuild does not look again who waits after it has written the line
	OfferUnchecked       bool // a unit is given to whom Redis has in line, whatever the database says and Redis has lost
}

// Report is what a run found and what happened in it.
type Report struct {
	Seed       uint64
	Violations []string
	Faults     map[string]int // injected, by kind
	Reached    map[string]int // situations of the product that came up, to see that runs are not empty
	Steps      int
	Trace      []string
}

// World is one sale with its servers, processes and users.
type World struct {
	cfg   Config
	p     profile
	rng   *rand.Rand // the scheduler's alone
	began time.Time

	mu      sync.Mutex
	arrived []*call // since the scheduler looked last
	wake    chan struct{}

	waiting []*call
	events  []event
	calm    bool // no more faults
	calmAt  time.Time
	crashes int

	redis  *redisServer
	db     *database
	broker *broker
	people *people
	procs  []*proc          // alive
	stores map[*proc]*store // of consumers
	fronts []*gateway       // up; guarded by mu
	born   int
	log    *slog.Logger

	repMu sync.Mutex
	rep   *Report
}

// event is something the scheduler does at a time.
type event struct {
	at   time.Time
	name string
	do   func()
}

func newWorld(cfg Config) *World {
	w := &World{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x5ec_111)), began: time.Now(), wake: make(chan struct{}, 1),
		stores: map[*proc]*store{}, log: quietLog(), rep: &Report{Seed: cfg.Seed, Faults: map[string]int{}, Reached: map[string]int{}},
	}
	w.p = drawProfile(w.rng)
	w.p.lineTheme(cfg.Seed)
	w.redis = newRedisServer()
	w.db = newDatabase(time.Now)
	w.db.bugs, w.redis.bugs = &w.cfg.Bugs, &w.cfg.Bugs
	w.db.expires = w.checkLine
	w.broker = newBroker(w, w.p.partitions)
	w.people = newPeople(w)
	w.redis.offered, w.redis.lineRead = w.people.offered, w.checkLine
	return w
}

// Run plays one seed in a bubble of testing/synctest and reports. It must be called inside one.
func Run(cfg Config) *Report {
	w := newWorld(cfg)
	w.open()
	w.loop()
	w.check()
	w.close()
	return w.rep
}

func (w *World) logf(format string, args ...any) {
	if w.cfg.Trace {
		w.repMu.Lock()
		defer w.repMu.Unlock()
		w.rep.Trace = append(w.rep.Trace, fmt.Sprintf("%7.3fs %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...)))
	}
}

// violate notes a broken promise; the run goes on.
func (w *World) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.logf("VIOLATION %s", text)
	w.repMu.Lock()
	defer w.repMu.Unlock()
	if len(w.rep.Violations) < 20 && !slices.Contains(w.rep.Violations, text) {
		w.rep.Violations = append(w.rep.Violations, text)
	}
}

func (w *World) fault(kind string) { w.rep.Faults[kind]++ }

func (w *World) reached(kind string) {
	w.repMu.Lock()
	defer w.repMu.Unlock()
	w.rep.Reached[kind]++
}

// after plans an event.
func (w *World) after(d time.Duration, name string, do func()) {
	w.events = append(w.events, event{time.Now().Add(d), name, do})
}

// grain is the step of all times in a run. What the product waits by a random source of its own (the back-off of the
// consumer) ends within one, so that it cannot change the order of things.
const grain = 10 * time.Microsecond

// upTo is a random duration up to d.
func (w *World) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d/grain)+1)) * grain
}

// align waits for the next grain.
func (w *World) align() {
	if off := time.Since(w.began) % grain; off > 0 {
		time.Sleep(grain - off)
		synctest.Wait()
	}
}

func (w *World) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// maxSteps bounds a run; an ordinary one takes some hundreds.
const maxSteps = 20_000

// loop is the scheduler: whenever everybody waits, one thing happens.
func (w *World) loop() {
	for {
		synctest.Wait()
		w.align()
		w.gather()
		if w.calm && w.quiet() {
			return
		}
		if !w.calm && !time.Now().Before(w.calmAt) {
			w.becomeCalm()
		}
		if w.runEvent() {
			continue
		}
		ready := w.ready()
		if len(ready) == 0 {
			w.sleep()
			continue
		}
		if !w.calm && w.chance(w.p.linger) {
			time.Sleep(w.upTo(60 * time.Millisecond))
			continue
		}
		if w.rep.Steps++; w.rep.Steps > maxSteps {
			w.violate("no end after %d steps", maxSteps)
			return
		}
		w.serve(w.choose(ready))
	}
}

// gather takes what has come since the last look, in an order that does not depend on which goroutine was faster.
func (w *World) gather() {
	w.mu.Lock()
	fresh := w.arrived
	w.arrived = nil
	select {
	case <-w.wake:
	default:
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(c *call) bool { return c.gone.Load() && (c.done || !c.late) })
	w.mu.Unlock()
	slices.SortFunc(fresh, func(a, b *call) int { return strings.Compare(a.key(), b.key()) })
	for _, c := range fresh {
		hold := w.p.hold
		if c.name == w.p.focus {
			hold = 0.5
		}
		if !w.calm && w.chance(hold) && c.ready == nil {
			c.at = time.Now().Add(w.upTo(w.p.holdMax))
			w.fault("call delayed")
		}
		// A caller that gives up does not know whether its call is still under way.
		c.late = w.chance(0.5)
	}
	w.waiting = append(w.waiting, fresh...)
}

func (w *World) runEvent() bool {
	now := time.Now()
	i := -1
	for j := range w.events {
		if !w.events[j].at.After(now) && (i < 0 || w.events[j].at.Before(w.events[i].at)) {
			i = j
		}
	}
	if i < 0 {
		return false
	}
	e := w.events[i]
	w.events = slices.Delete(w.events, i, i+1)
	if e.name != "" {
		w.logf("event: %s", e.name)
	}
	e.do()
	return true
}

func (w *World) ready() []*call {
	now := time.Now()
	var list []*call
	for _, c := range w.waiting {
		if (w.calm && !c.done || !c.at.After(now)) && (c.ready == nil || c.ready()) && !w.holdsBack(c) {
			list = append(list, c)
		}
	}
	return list
}

// choose picks by the weights of the processes, which differ from seed to seed.
func (w *World) choose(list []*call) *call {
	sum := 0
	for _, c := range list {
		sum += c.p.weight
	}
	n := w.rng.IntN(sum)
	for _, c := range list {
		if n -= c.p.weight; n < 0 {
			return c
		}
	}
	return list[len(list)-1]
}

// sleep lets time pass until something is due or somebody calls.
func (w *World) sleep() {
	now := time.Now()
	until := now.Add(time.Second)
	for i := range w.events {
		if w.events[i].at.Before(until) {
			until = w.events[i].at
		}
	}
	for _, c := range w.waiting {
		if c.at.After(now) && c.at.Before(until) {
			until = c.at
		}
	}
	if !w.calm && w.calmAt.Before(until) {
		until = w.calmAt
	}
	timer := time.NewTimer(until.Sub(now))
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	}
}

// close ends every process and waits for its goroutines.
func (w *World) close() {
	for _, p := range slices.Clone(w.procs) {
		p.die()
	}
	synctest.Wait()
}
