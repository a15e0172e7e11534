package consumer

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// line is one partition with a consumer, in simulated time: messages arrive at a rate, batches of up to 500 are handled, a
// batch takes a fixed part and a part for each message, both times a factor.
type line struct {
	arrive  float64 // a second
	slow    float64 // factor
	waiting float64
	b       *backlog
	log     bytes.Buffer
}

func newLine() *line {
	l := &line{slow: 1}
	l.b = newBacklog(Config{}.WithDefaults(), func() map[int]int64 { return map[int]int64{0: int64(l.waiting)} }, time.Now,
		slog.New(slog.NewTextHandler(&l.log, nil)))
	return l
}

// run lets time pass.
func (l *line) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		n := min(500, int(l.waiting))
		if n == 0 {
			l.pass(10 * time.Millisecond)
			continue
		}
		l.waiting -= float64(n)
		done := l.b.begin(n)
		l.pass(time.Duration(l.slow * float64(20*time.Millisecond+time.Duration(n)*200*time.Microsecond)))
		done(true)
	}
}

func (l *line) pass(d time.Duration) {
	time.Sleep(d)
	l.waiting += l.arrive * d.Seconds()
}

func (l *line) want(t *testing.T, cause string, logged string) backlogReport {
	t.Helper()
	r := l.b.report()
	if r.cause != cause {
		t.Errorf("cause %q, want %q: %+v", r.cause, cause, r)
	}
	if !strings.Contains(l.log.String(), logged) {
		t.Errorf("the log says nothing of %q:\n%s", logged, l.log.String())
	}
	return r
}

// S41: a crowd: the batches are as fast as ever, but more arrives than they take. While it comes there is no end in sight;
// when it is over the time to drain is what is left by what is committed; then the backlog is gone.
func TestBacklogOfABurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.arrive = 1000
		l.run(time.Minute)
		l.want(t, causeNone, "")
		l.arrive = 10_000 // full batches of 500 take 120 ms: 4,167 a second
		l.run(20 * time.Second)
		if r := l.want(t, causeBurst, "cause=burst"); r.drain != math.MaxInt64 || math.Abs(r.arrivals-10_000) > 500 || math.Abs(r.commits-4167) > 300 {
			t.Errorf("while it comes: %+v", r)
		}
		l.arrive = 0
		l.run(10 * time.Second)
		r := l.want(t, causeBurst, "cause=burst")
		if want := time.Duration(float64(r.messages) / 4167 * float64(time.Second)); r.messages < 50_000 || (r.drain-want).Abs() > 2*time.Second {
			t.Errorf("afterwards: %d messages in %v, want %v", r.messages, r.drain, want)
		}
		start := time.Now()
		for l.waiting >= 1 {
			l.run(time.Second)
		}
		if took := time.Since(start); (took - r.drain).Abs() > 5*time.Second {
			t.Errorf("drained in %v, told %v", took, r.drain)
		}
		l.run(10 * time.Second)
		l.want(t, causeNone, "the backlog is gone")
	})
}

// S41: the database becomes slow under the same traffic: batches of a size take many times their usual length.
func TestBacklogOfSlowCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.arrive = 1000
		l.run(time.Minute)
		l.slow = 30 // a full batch takes 3.6 s: 139 a second
		l.run(30 * time.Second)
		if r := l.want(t, causeSlow, "cause=slow_commits"); r.slower < 5 || r.drain != math.MaxInt64 || r.messages < 10_000 {
			t.Errorf("%+v", r)
		}
		l.slow = 1
		l.run(10 * time.Second)
		if r := l.want(t, causeSlow, "cause=slow_commits"); r.drain > 20*time.Second {
			t.Errorf("while it drains: %+v", r)
		}
		l.run(30 * time.Second)
		l.want(t, causeNone, "the backlog is gone")
	})
}

// S41: one batch that takes for ever is told before it ends, and the metrics carry it all.
func TestBacklogMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.arrive = 1000
		l.run(time.Minute)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(backlogCollector{l.b.report})
		n := min(500, max(1, int(l.waiting)))
		l.b.begin(n)
		l.pass(10 * time.Second)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, label := range m.GetLabel() {
					name += " " + label.GetValue()
				}
				got[name] = m.GetGauge().GetValue()
			}
		}
		if got["seckill_backlog_cause slow_commits"] != 1 || got["seckill_backlog_cause burst"] != 0 ||
			!math.IsInf(got["seckill_backlog_drain_seconds"], 1) || got["seckill_handled_per_second"] != 0 || got["seckill_arrivals_per_second"] < 900 {
			t.Errorf("metrics %v", got)
		}
	})
}

// A rebalance moves the waiting messages to other members, and is neither a burst nor a drain.
func TestRebalanceIsNoArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lag := map[int]int64{0: 10}
		b := newBacklog(Config{}.WithDefaults(), func() map[int]int64 { return lag }, time.Now, slog.New(slog.DiscardHandler))
		time.Sleep(6 * time.Second)
		b.report()
		lag = map[int]int64{0: 10, 1: 50_000}
		time.Sleep(6 * time.Second)
		if r := b.report(); r.arrivals != 0 || r.messages != 50_010 {
			t.Errorf("%+v", r)
		}
	})
}
