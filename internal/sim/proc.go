package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"seckill/internal/sale"
)

// port says which server a call goes to, and with that how it may fail.
type port string

const (
	toRedis  port = "redis"
	toDB     port = "db"
	toKafka  port = "kafka"
	toPush   port = "push"
	inside   port = "step"   // a point between two effects of a process, no call
	blocking port = "fetch"  // waits for a message
	toUser   port = "client" // an answer on its way
)

// errDead is what a dead process's calls get, so that its goroutines end.
var errDead = fmt.Errorf("this process is dead: %w", context.Canceled)

// errReset is a cut connection to a server that does not tell what happened.
var errReset = errors.New("connection reset")

// caller carries out the calls of a port. A process's calls go through the scheduler; direct ones happen at once.
type caller interface {
	call(ctx context.Context, to port, name, detail string, do func() error) error
}

// direct is the caller outside of a simulation.
type direct struct{}

func (direct) call(_ context.Context, _ port, _, _ string, do func() error) error { return do() }

// call is one call of a port, waiting for the scheduler.
type call struct {
	p      *proc
	to     port
	name   string
	detail string
	tag    string // tells goroutines of one process apart
	do     func() error
	reply  chan error
	ready  func() bool // nil: at any time

	at   time.Time // not before
	done bool      // the effect has happened, the answer is on its way
	err  error
	gone atomic.Bool // the caller has given up
	mu   sync.Mutex  // held during the effect, so that a caller who gives up later may read what it left
	late bool        // its effect may still come
	ends bool        // its answer ends a rebuild
}

func (c *call) key() string {
	return c.p.name + "|" + c.tag + "|" + string(c.to) + "|" + c.name + "|" + c.detail
}

// leave is the caller's end of a call that it has given up.
func (c *call) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone.Store(true)
}

// proc is one process, or one user's browser.
type proc struct {
	w      *World
	name   string
	role   string
	weight int // in the scheduler's choice
	ctx    context.Context
	cancel context.CancelFunc
	dead   atomic.Bool
	died   chan struct{} // closed after that

	// Of a consumer.
	loops   sync.WaitGroup // one for each partition and generation
	leaving bool           // takes no more messages
	fetches int64          // messages in one batch at most; 0: the broker's choice
}

// spawn makes a process; its goroutines end when it dies.
func (w *World) spawn(role string) *proc {
	w.born++
	p := &proc{w: w, role: role, name: fmt.Sprintf("%s%d", role, w.born), died: make(chan struct{}), weight: w.weight()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	w.procs = append(w.procs, p)
	return p
}

func (w *World) weight() int {
	return []int{1, 4, 4, 4, 16}[w.rng.IntN(5)]
}

// die kills a process: from now on nothing it does has an effect, but for calls that are on the wire. Those who wait for
// its answers see its end one after the other, so that a seed knows their order.
func (p *proc) die() {
	w := p.w
	p.dead.Store(true)
	for _, c := range slices.Clone(w.waiting) {
		if c.p == p && !c.gone.Swap(true) {
			c.reply <- errDead
			synctest.Wait()
		}
	}
	close(p.died)
	p.cancel()
	p.w.mu.Lock()
	p.w.fronts = slices.DeleteFunc(p.w.fronts, func(g *gateway) bool { return g.p == p })
	p.w.mu.Unlock()
	p.w.procs = slices.DeleteFunc(p.w.procs, func(q *proc) bool { return q == p })
}

func (p *proc) call(ctx context.Context, to port, name, detail string, do func() error) error {
	return p.callWhen(ctx, to, name, detail, nil, do)
}

// callWhen is a call that the scheduler looks at only while ready says so.
func (p *proc) callWhen(ctx context.Context, to port, name, detail string, ready func() bool, do func() error) error {
	if p.dead.Load() {
		return errDead
	}
	if err := ctx.Err(); err != nil {
		return gaveUp(to, err)
	}
	c := &call{p: p, to: to, name: name, detail: detail, do: do, reply: make(chan error, 1), ready: ready, tag: tagOf(ctx)}
	w := p.w
	w.mu.Lock()
	w.arrived = append(w.arrived, c)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	w.mu.Unlock()
	select {
	case err := <-c.reply:
		return err
	case <-p.died:
		c.leave()
		return errDead
	case <-ctx.Done():
		c.leave()
		return gaveUp(to, ctx.Err())
	}
}

type tagKey struct{}

// tagOf tells the goroutines of one process apart that make calls side by side. A rebuild is known by its deadline,
// which is far away.
func tagOf(ctx context.Context) string {
	if tag, ok := ctx.Value(tagKey{}).(string); ok {
		return tag
	}
	if d, ok := ctx.Deadline(); ok && time.Until(d) > rebuildDeadline/2 {
		return tagRebuild
	}
	return ""
}

const (
	tagRebuild      = "rebuild"
	rebuildDeadline = 10 * time.Minute
)

func tagged(ctx context.Context, tag string) context.Context {
	return context.WithValue(ctx, tagKey{}, tag)
}

// gaveUp is the error of a call that was cut by its caller: of Redis and Kafka nobody knows whether it ran; the database
// is asked again.
func gaveUp(to port, cause error) error {
	if to == toDB {
		return fmt.Errorf("%w: %w", sale.ErrTransient, cause)
	}
	return fmt.Errorf("%w: %w", sale.ErrUncertain, cause)
}

// serve carries a call on: its effect, its answer, or what goes wrong with either.
func (w *World) serve(c *call) {
	gone := c.gone.Load()
	if c.done {
		w.answer(c, c.err)
		return
	}
	if c.to == inside {
		if !w.crashAt(c) {
			w.answer(c, nil)
		}
		return
	}
	failure := w.drawFailure(c)
	defer w.spaceRetries(c)
	if failure == failBefore {
		w.logf("%s: %s %s %s FAILS before its effect", c.p.name, c.to, c.name, c.detail)
		c.err = refused(c.to, w.chance(0.5))
		if c.tag == tagRebuild || c.p.role == "consumer" {
			c.done, c.ends = true, c.tag == tagRebuild
			return
		}
		w.answer(c, c.err)
		return
	}
	c.mu.Lock()
	c.err = c.do()
	c.mu.Unlock()
	c.done = true
	if c.to == toDB {
		w.soldTooMany()
	}
	if w.cfg.Trace {
		w.logf("%s: %s %s %s -> %s%s", c.p.name, c.to, c.name, c.detail, short(c.err), map[bool]string{true: " (caller gone)"}[gone])
	}
	switch {
	case gone:
		w.drop(c)
	case w.crashAt(c):
	case failure == failAfter:
		w.logf("%s: the answer of %s is lost", c.p.name, c.name)
		c.err = gaveUp(c.to, errReset)
		if c.ends = c.tag == tagRebuild; !c.ends && c.p.role != "consumer" {
			w.answer(c, c.err)
		}
	case c.err != nil && c.p.role == "consumer":
	case c.tag == tagRebuild && (c.err != nil || c.name == "set meta" || c.name == "snapshot"):
		c.ends = true
	case !w.calm && w.chance(w.p.slowReply):
		c.at = time.Now().Add(w.upTo(w.p.holdMax / 4))
		w.fault("answer delayed")
	default:
		w.answer(c, c.err)
	}
}

// spaceRetries keeps a consumer's failed call for a while. Its own back-off is set to nothing: it draws from a random
// source that no seed reaches.
func (w *World) spaceRetries(c *call) {
	if c.done && c.err != nil && c.p.role == "consumer" {
		c.at = time.Now().Add(20*time.Millisecond + w.upTo(200*time.Millisecond))
	}
}

func (w *World) answer(c *call, err error) {
	c.reply <- err
	w.drop(c)
}

func (w *World) drop(c *call) {
	w.waiting = slices.DeleteFunc(w.waiting, func(d *call) bool { return d == c })
}

// refused is a failure that had no effect. Redis may say so or not.
func refused(to port, known bool) error {
	if to == toDB || to == toRedis && known {
		return fmt.Errorf("%w: %w", sale.ErrTransient, errReset)
	}
	return fmt.Errorf("%w: %w", sale.ErrUncertain, errReset)
}

func short(err error) string {
	if err == nil {
		return "ok"
	}
	s := err.Error()
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return s
}

// holdsBack keeps the answer that ends a rebuild until the rounds of its leader are idle. The leader chooses between
// "rebuild finished" and "next tick" by a select, and when both are ready Go tosses a coin that no seed reaches.
func (w *World) holdsBack(c *call) bool {
	return c.ends && w.inRounds(c.p)
}

// inRounds reports whether the rounds of a reconciler wait for an answer, and not for their next tick.
func (w *World) inRounds(p *proc) bool {
	return slices.ContainsFunc(w.waiting, func(d *call) bool {
		return d.p == p && d.tag == "" && !d.gone.Load() && !strings.HasSuffix(d.name, " lease")
	})
}
