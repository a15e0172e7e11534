package consumer

import (
	"log/slog"
	"math"
	"math/bits"
	"sync"
	"time"
)

// Causes of a backlog (S41).
const (
	causeNone  = ""
	causeSlow  = "slow_commits" // batches of the same size take longer than they use to
	causeBurst = "burst"        // more arrives than is committed, at the usual speed
)

// slowdown is from how many times its usual length a batch counts as slow.
const slowdown = 2

// backlog explains why messages wait in the partitions of this process, and for how long they still will. It compares
// batches with batches of about the same size, since a large one takes longer than a small one at any speed of the database.
type backlog struct {
	cfg Config
	lag func() map[int]int64 // messages not fetched, by partition owned here
	now func() time.Time
	log *slog.Logger

	mu      sync.Mutex
	usual   [32]time.Duration // length of a batch by the binary digits of its size, learned outside backlogs; 0: unknown
	inHand  map[int]inHand
	nextID  int
	since   time.Time // of this window
	lagThen map[int]int64
	handled int64
	weight  float64 // handled messages whose usual time is known
	excess  float64 // sum of actual/usual over those
	last    backlogReport
}

// inHand is a batch that is being handled.
type inHand struct {
	n     int
	start time.Time
}

// backlogReport is what the last window came to.
type backlogReport struct {
	messages int64   // waiting
	arrivals float64 // a second
	commits  float64 // a second
	slower   float64 // actual by usual time of the batches; 1 when nothing is known
	cause    string
	drain    time.Duration // until nothing waits, if this goes on; math.MaxInt64 when it grows
}

func newBacklog(cfg Config, lag func() map[int]int64, now func() time.Time, log *slog.Logger) *backlog {
	if lag == nil {
		lag = func() map[int]int64 { return nil }
	}
	return &backlog{cfg: cfg, lag: lag, now: now, log: log, inHand: map[int]inHand{}, since: now(), last: backlogReport{slower: 1}}
}

// begin notes a batch of n messages; the returned function notes its end, and whether it was finished.
func (b *backlog) begin(n int) (end func(finished bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nextID++
	id := b.nextID
	b.inHand[id] = inHand{n: n, start: b.now()}
	return func(finished bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		h := b.inHand[id]
		delete(b.inHand, id)
		if finished {
			b.note(h.n, b.now().Sub(h.start))
		}
		b.roll()
	}
}

// note counts a finished batch, and learns how long such a one takes while nothing is slow.
func (b *backlog) note(n int, took time.Duration) {
	b.handled += int64(n)
	ratio := b.compare(n, took)
	if ratio >= slowdown {
		return
	}
	if usual := &b.usual[bits.Len(uint(n))]; *usual == 0 {
		*usual = took
	} else {
		*usual += (took - *usual) / 32
	}
}

// compare weighs how many times its usual length a batch takes; 0 while nothing is known.
func (b *backlog) compare(n int, took time.Duration) (ratio float64) {
	expected := b.expected(n)
	if expected == 0 {
		return 0
	}
	ratio = float64(took) / float64(expected)
	b.weight += float64(n)
	b.excess += float64(n) * ratio
	return ratio
}

// expected is how long a batch of n takes at most at the usual speed: what one of its size took, else what it can take by
// the nearest smaller size, as many times as long as it is larger, else by the nearest larger one.
func (b *backlog) expected(n int) time.Duration {
	size := bits.Len(uint(n))
	for s := size; s >= 0; s-- {
		if b.usual[s] > 0 {
			return b.usual[s] << (size - s)
		}
	}
	for s := size + 1; s < len(b.usual); s++ {
		if b.usual[s] > 0 {
			return b.usual[s]
		}
	}
	return 0
}

// roll ends the window when it is over.
func (b *backlog) roll() {
	now := b.now()
	took := now.Sub(b.since)
	if took < b.cfg.BacklogWindow {
		return
	}
	for _, h := range b.inHand { // one that takes for ever counts before it ends
		if held := now.Sub(h.start); held > slowdown*b.expected(h.n) {
			b.compare(h.n, held)
		}
	}
	lag := b.lag()
	r := backlogReport{messages: sum(lag), commits: float64(b.handled) / took.Seconds(), slower: 1}
	r.arrivals = r.commits
	if samePartitions(lag, b.lagThen) { // else a rebalance moved the numbers
		r.arrivals = max(0, r.commits+float64(r.messages-sum(b.lagThen))/took.Seconds())
	}
	if b.weight > 0 {
		r.slower = b.excess / b.weight
	}
	b.explain(&r)
	b.tell(r)
	b.last = r
	b.since, b.lagThen, b.handled, b.weight, b.excess = now, lag, 0, 0, 0
}

// explain names the cause and the time to drain.
func (b *backlog) explain(r *backlogReport) {
	if r.messages < b.cfg.BacklogMin {
		return
	}
	switch {
	case r.slower >= slowdown:
		r.cause = causeSlow
	case r.arrivals > r.commits || b.last.cause == causeNone:
		r.cause = causeBurst
	default:
		r.cause = b.last.cause // it drains: what made it has not changed
	}
	r.drain = math.MaxInt64
	if spare := r.commits - r.arrivals; spare > 0 {
		if seconds := float64(r.messages) / spare; seconds < math.MaxInt64/float64(time.Second) {
			r.drain = time.Duration(seconds * float64(time.Second))
		}
	}
}

// tell logs a backlog that begins, changes its cause, or ends.
func (b *backlog) tell(r backlogReport) {
	switch r.cause {
	case b.last.cause:
	case causeNone:
		b.log.Info("consumer: the backlog is gone", "messages", r.messages)
	default:
		drain := "not while this goes on"
		if r.drain != math.MaxInt64 {
			drain = r.drain.Round(time.Second).String()
		}
		b.log.Warn("consumer: a backlog", "cause", r.cause, "messages", r.messages, "arrivalsPerSecond", math.Round(r.arrivals),
			"commitsPerSecond", math.Round(r.commits), "timesTheUsualLength", math.Round(10*r.slower)/10, "drainedIn", drain)
	}
}

// report is how it stands now.
func (b *backlog) report() backlogReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roll()
	return b.last
}

func sum(lag map[int]int64) (n int64) {
	for _, v := range lag {
		n += v
	}
	return n
}

func samePartitions(a, b map[int]int64) bool {
	if len(a) != len(b) {
		return false
	}
	for p := range a {
		if _, ok := b[p]; !ok {
			return false
		}
	}
	return true
}
