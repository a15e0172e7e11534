package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"seckill/internal/sale"
)

// lineTheme lets users leave the waitlist: some in the seeds that end in 3, and in those that end in 4 as a theme: everybody
// waits and many leave, while Redis is lost, goes back and is rebuilt. It draws from a source of its own, and all other
// seeds stay the histories they are.
func (p *profile) lineTheme(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0x11e_111))
	switch seed % 10 {
	case 3:
		p.leaves = 0.5
	case 4:
		p.leaves, p.waits, p.users, p.units, p.maxPerUser = 0.8, 1, 4, 1, 1
		p.cancels, p.pays, p.secondTab, p.payWithin = 0.9, 0, 0, seconds(oneOf(r, 1, 2))
		p.saleLasts, p.faultsLast = seconds(7), seconds(oneOf(r, 7, 9))
		p.focus, p.hold, p.holdMax = oneOf(r, "fill waitlist", "pending returns", "leave waitlist"), 0, oneOf(r, time.Second, 2*time.Second)
		p.failBefore, p.failAfter, p.crash = 0, 0, oneOf(r, 0, 0, 0.02)
		p.flushes, p.rewinds = oneOf(r, 0, 3), 6
	}
}

// standing is what a user may rely on about the waitlist.
type standing struct {
	begun, open int    // requests to join or leave: in all, and without an answer yet
	promise     string // of the last one answered: "in" or "out"; "" while anything may be
	// A gateway has died over a request to join, or to leave: it may take effect at any later time.
	looseJoin, looseLeave bool
	offered               bool // a unit has come from the line
}

func (p *people) standing(user int64) *standing {
	if p.inLine[user] == nil {
		p.inLine[user] = &standing{}
	}
	return p.inLine[user]
}

// request makes one request about the waitlist and notes what its answer promises.
func (p *people) request(user int64, joins bool, do func() error) error {
	p.mu.Lock()
	s := p.standing(user)
	s.begun++
	s.open++
	mine := s.begun
	s.promise = ""
	p.mu.Unlock()
	err := do()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.open--
	if errors.Is(err, errDead) {
		s.looseJoin, s.looseLeave = s.looseJoin || joins, s.looseLeave || !joins
	}
	switch {
	case err != nil || s.open > 0 || s.begun != mine:
	case joins && !s.looseLeave:
		s.promise = "in"
	case !joins && !s.looseJoin:
		s.promise = "out"
	}
	return err
}

// offered notes that a unit has come to a user from the waitlist: never to one who has left it.
func (p *people) offered(user int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.standing(user)
	s.offered = true
	if s.promise == "out" {
		p.w.violate("user %d had left the waitlist and was given a unit from it", user)
	}
}

// checkLine holds the line in Redis against what users were promised: whenever a rebuild opens, the line is read, and before
// it ends; not while Redis is lost, or has gone back and nobody has noticed yet.
func (w *World) checkLine() {
	k := w.redis.of(saleID)
	if epoch, _ := k.position(); !k.usable() || w.redis.rebuilt != w.redis.run || epoch != w.db.acts[saleID].Epoch {
		return
	}
	w.people.mu.Lock()
	defer w.people.mu.Unlock()
	for _, user := range w.people.users {
		s := w.people.standing(user)
		_, waits := k.lines[commodity][user]
		_, takesPart := k.marks[user]
		if s.promise != "" {
			w.reached("line looked at, a user who is " + s.promise)
		}
		switch {
		case waits && s.promise == "out":
			w.violate("user %d has left the waitlist and stands in it", user)
		case !waits && s.promise == "in" && !takesPart && !s.offered:
			w.violate("user %d has joined the waitlist and does not stand in it", user)
		}
	}
}

// leave is leaveWaitlist.
func (g *gateway) leave(ctx context.Context, user int64) error {
	if _, err := g.led.LeaveWaitlist(ctx, saleID, user); err != nil {
		return err
	}
	if err := g.st.LeaveWaitlist(ctx, saleID, commodity, user); err != nil && !errors.Is(err, sale.ErrNotReady) {
		return err
	}
	return nil
}

// mayLeave lets some who wait leave the line, and join it again, beside everything else they do.
func (t *tab) mayLeave() {
	if t.w.p.leaves == 0 {
		return
	}
	which := uint64(t.token[len(t.token)-1])
	u := &tab{w: t.w, user: t.user, p: t.p, r: rand.New(rand.NewPCG(t.w.cfg.Seed, uint64(t.user)*1000+which)), token: t.token}
	u.ctx = tagged(context.Background(), t.p.name+"line")
	go u.comeAndGo()
}

func (t *tab) comeAndGo() {
	joins := false
	for range 6 {
		if !joins && !t.chance(t.w.p.leaves) || !t.pause(50*time.Millisecond, 2500*time.Millisecond) {
			return
		}
		g := t.gateway()
		if g == nil {
			continue
		}
		err := t.w.people.request(t.user, joins, func() error {
			if joins {
				return g.join(t.ctx, t.user)
			}
			return g.leave(t.ctx, t.user)
		})
		t.w.logf("user %d: %s the waitlist: %s", t.user, map[bool]string{true: "joins", false: "leaves"}[joins], short(err))
		if err == nil && !joins {
			t.w.reached("left the waitlist")
		}
		if err == nil {
			joins = !joins
		}
	}
}
