package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// profile is what one seed may do. Each kind of fault is off in many seeds: a history with two kinds of trouble shows
// more than one that drowns in all of them.
type profile struct {
	partitions, gateways, consumers, reconcilers int
	users                                        int
	units                                        int64
	maxPerUser                                   int
	saleLasts, payWithin, faultsLast             time.Duration

	failBefore, failAfter float64       // of each call
	hold                  float64       // calls delayed
	holdMax               time.Duration // by at most this
	slowReply             float64       // answers delayed
	focus                 string        // calls of this name are delayed every other time
	linger                float64       // time passes although somebody could go on
	crash                 float64       // of each interesting step
	crashes               int           // at most
	lostPublish           float64       // a publish that fails: not delivered, delivered, or delivered late
	dupPublish            float64
	dropPush, latePush    float64
	rebalances            int
	flushes, rewinds      int
	audits                int
	sameNumber            float64 // an order number that is taken
	selfAudit             bool    // the reconciler's own audit runs often; it would mend what others broke
	pauses                int     // operator pauses and resumes the sale

	repeat, secondTab, waits, cancels, pays, leaves float64 // of users; leaves: of those who wait, each time they think of it
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func drawProfile(r *rand.Rand) profile {
	p := profile{
		partitions: oneOf(r, 1, 1, 2), gateways: oneOf(r, 1, 2), consumers: oneOf(r, 1, 2, 2), reconcilers: oneOf(r, 1, 2),
		users: oneOf(r, 2, 3, 3, 4), units: oneOf[int64](r, 1, 1, 2, 2, 3), maxPerUser: oneOf(r, 1, 1, 2),
		saleLasts: seconds(oneOf(r, 4, 7, 10)), payWithin: seconds(oneOf(r, 2, 4, 8)),
		linger: oneOf(r, 0, 0.02, 0.1), holdMax: oneOf(r, 200*time.Millisecond, time.Second, 4*time.Second),
		repeat: oneOf(r, 0, 0.3, 0.8), secondTab: oneOf(r, 0, 0, 0.5), waits: oneOf(r, 0, 0.5, 1),
		cancels: oneOf(r, 0, 0.3, 0.8), pays: oneOf(r, 0, 0.3, 0.8),
	}
	p.faultsLast = p.saleLasts * time.Duration(oneOf(r, 5, 8, 13)) / 10
	if r.IntN(20) == 0 {
		return p // no trouble at all: everything must be right without any mending
	}
	p.failBefore = oneOf(r, 0, 0, 0.02, 0.1)
	p.failAfter = oneOf(r, 0, 0, 0.02, 0.1)
	p.hold = oneOf(r, 0, 0.03, 0.1)
	p.focus = oneOf(r, "", "", "", "decide", "decide", "settle", "publish", "return", "promote", "repair", "set status", "set mark", "reserve",
		"commit offset", "mark returned", "restore", "open", "snapshot", "audit", "announce", "change order", "wipe", "save boundary", "live", "witness")
	p.slowReply = oneOf(r, 0, 0, 0.05)
	p.crash, p.crashes = oneOf(r, 0, 0.02, 0.06), oneOf(r, 1, 3, 5)
	p.lostPublish = oneOf(r, 0, 0, 0.2, 0.6)
	p.dupPublish = oneOf(r, 0, 0, 0.1)
	p.dropPush, p.latePush = oneOf(r, 0, 0.2, 0.6), oneOf(r, 0, 0.2)
	p.rebalances = oneOf(r, 0, 0, 2, 5)
	p.flushes = oneOf(r, 0, 0, 0, 1, 2)
	p.rewinds = oneOf(r, 0, 0, 0, 1, 2)
	p.audits = oneOf(r, 0, 0, 3)
	p.sameNumber = oneOf(r, 0, 0, 0.1)
	p.pauses = oneOf(r, 0, 0, 1)
	p.selfAudit = oneOf(r, false, false, false, true)
	switch r.IntN(24) {
	case 0, 1:
		p.zombies(r)
	case 2:
		p.auditors(r)
	case 3:
		p.slowSettling(r)
	case 4:
		p.lateMarks(r)
	}
	return p
}

// slowSettling is a theme: orders are over before Redis has heard of them.
func (p *profile) slowSettling(r *rand.Rand) {
	p.focus, p.holdMax, p.payWithin, p.hold = "settle", 4*time.Second, time.Second, 0
	p.failBefore, p.failAfter, p.selfAudit, p.flushes, p.rewinds = 0, 0, false, r.IntN(2), 0
}

// lateMarks is a theme: units come back while Redis is lost and rebuilt, and what is recorded of them comes late.
func (p *profile) lateMarks(r *rand.Rand) {
	p.focus, p.holdMax, p.hold, p.failBefore, p.failAfter = "mark returned", 4*time.Second, 0, 0, 0
	p.users, p.cancels, p.pays, p.waits, p.payWithin = 4, 0.9, 0, 0, seconds(oneOf(r, 1, 2))
	p.saleLasts, p.faultsLast, p.flushes, p.rewinds, p.audits, p.selfAudit = seconds(4), seconds(oneOf(r, 4, 6)), 3, 0, 0, false
}

// auditors is a theme: many audits beside a lively sale, each slow at one of its steps.
func (p *profile) auditors(r *rand.Rand) {
	p.users, p.audits, p.selfAudit, p.holdMax = 4, 12, false, oneOf(r, 300*time.Millisecond, time.Second)
	p.focus = oneOf(r, "repair", "snapshot", "audit", "read tokens", "pending returns", "marks", "set mark")
	p.cancels, p.pays, p.payWithin, p.flushes = oneOf(r, 0.4, 0.9), oneOf(r, 0, 0.4), 2*time.Second, 0
	p.failBefore, p.failAfter = 0, 0
}

// zombies is a theme: consumers are slow between look-up and write and lose their partition meanwhile, while a Redis that
// has gone back lets in more than the database has, and orders end and make room. Then one token can be decided both ways.
func (p *profile) zombies(r *rand.Rand) {
	p.partitions, p.consumers, p.gateways, p.reconcilers = 1, 2, 1, 1
	p.users, p.units, p.maxPerUser = 4, 1, 1
	p.failBefore, p.failAfter, p.crash, p.lostPublish, p.hold, p.slowReply = 0, 0, 0, 0, 0, 0
	p.focus, p.holdMax, p.rebalances = "decide", oneOf(r, 500*time.Millisecond, 2*time.Second), 8
	p.rewinds, p.flushes, p.audits, p.pauses = 3, 0, 0, 0
	p.cancels, p.pays, p.repeat, p.payWithin = oneOf(r, 0.4, 0.9), 0, 0, 2*time.Second
}

// lossy reports whether Redis lost something in this run.
func (w *World) lossy() bool { return w.rep.Faults["redis flush"]+w.rep.Faults["redis rewind"] > 0 }

type failure int

const (
	noFailure failure = iota
	failBefore
	failAfter
)

func (w *World) drawFailure(c *call) failure {
	switch {
	case w.calm || c.to == blocking || c.to == toUser || c.to == inside:
		return noFailure
	case w.chance(w.p.failBefore):
		w.fault(string(c.to) + " call fails")
		return failBefore
	case w.chance(w.p.failAfter):
		w.fault(string(c.to) + " answer lost")
		return failAfter
	}
	return noFailure
}

// crashAt kills the process of a call right after its effect, sometimes. Points between two effects that matter are
// more dangerous than the rest.
func (w *World) crashAt(c *call) bool {
	if w.calm || c.p.role == "user" || w.crashes >= w.p.crashes || !slices.Contains(w.procs, c.p) {
		return false
	}
	odds := w.p.crash
	switch c.name {
	case "reserve", "decide", "publish", "settle", "announce", "decided", "settled", "announced", "commit offset", "return",
		"promote", "mark returned", "restore", "open", "begin rebuild", "wipe", "save boundary", "raise epoch", "change order", "set status", "witness":
		odds *= 3
	}
	if !w.chance(odds) {
		return false
	}
	w.crashes++
	w.fault("crash of " + c.p.role)
	w.logf("CRASH of %s after %s", c.p.name, c.name)
	w.kill(c.p)
	return true
}

// kill ends a process and plans its successor. Calls of it that are on the wire may still arrive.
func (w *World) kill(p *proc) {
	role := p.role
	p.die()
	w.broker.left(p)
	pause := w.upTo(3 * time.Second)
	if w.calm {
		pause = 0
	}
	w.after(pause, "", func() { w.start(role) })
}

// plan draws when the servers will fail.
func (w *World) plan() {
	at := func(n int, name string, do func()) {
		for range n {
			w.after(w.upTo(w.p.faultsLast), "", func() {
				if !w.calm {
					w.fault(name)
					do()
				}
			})
		}
	}
	at(w.p.flushes, "redis flush", func() {
		w.logf("REDIS FLUSH")
		w.redis.flush()
	})
	for range w.p.rewinds {
		w.after(w.upTo(w.p.faultsLast), "", func() {
			if w.calm {
				return
			}
			w.logf("redis saves a copy")
			saved := w.redis.copy()
			w.after(w.upTo(3*time.Second), "", func() {
				if w.calm {
					return
				}
				w.fault("redis rewind")
				w.logf("REDIS REWIND")
				w.redis.restart(saved)
			})
		})
	}
	at(w.p.rebalances, "rebalance", func() { w.broker.rebalance(w.rng.IntN(w.p.partitions)) })
	at(w.p.audits, "audit beside the sale", w.audit)
	at(w.p.pauses, "operator pause", w.pause)
}

// becomeCalm ends the trouble: from now on everything works, and the product has to come to its end.
func (w *World) becomeCalm() {
	w.calm = true
	w.logf("--- no more faults")
	for _, c := range w.waiting {
		if c.gone.Load() && !c.done { // what is still on the wire arrives now or never
			c.at = time.Time{}
		}
	}
}
