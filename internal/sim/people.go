package sim

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// people are the users with what they have been told. What one user's browser learns on any way is held against what
// was told before, and at the end against the database.
type people struct {
	w  *World
	mu sync.Mutex

	users    []int64
	told     map[string]map[int64]sale.Result // by token and version
	ahead    map[string]bool                  // tokens that a poll has shown from the database while Redis failed
	owner    map[string]int64                 // who has sent or got a token
	accepted map[string]bool                  // answered 202
	inbox    map[int64]map[string]sale.Result // pushed
	paid     map[string]sale.PaymentOutcome   // by payment id, as answered
	inLine   map[int64]*standing              // who has asked to wait, or not to
}

func newPeople(w *World) *people {
	return &people{
		w: w, told: map[string]map[int64]sale.Result{}, ahead: map[string]bool{}, owner: map[string]int64{}, accepted: map[string]bool{},
		inbox: map[int64]map[string]sale.Result{}, paid: map[string]sale.PaymentOutcome{}, inLine: map[int64]*standing{},
	}
}

// userIDs share order tables and partitions in pairs.
var userIDs = [...]int64{1, 2, 17, 18}

func (p *people) come() {
	for _, id := range userIDs[:p.w.p.users] {
		p.users = append(p.users, id)
		tabs := 1
		if p.w.chance(p.w.p.secondTab) {
			tabs = 2
		}
		for n := range tabs {
			u := &tab{w: p.w, user: id, p: p.w.spawn("user"), r: rand.New(rand.NewPCG(p.w.cfg.Seed, uint64(id*10)+uint64(n))), seen: map[string]int64{}}
			u.token = "T" + strconv.FormatInt(id, 10) + "t" + strconv.Itoa(n)
			u.ctx = tagged(context.Background(), u.p.name)
			go u.live()
		}
	}
}

// push is a message on its way to a user's sockets: it may come late, out of order, or never (R4, S29).
func (p *people) push(r sale.UserResult) {
	w := p.w
	switch {
	case w.chance(w.p.dropPush) && !w.calm:
		w.fault("push lost")
	case w.chance(w.p.latePush) && !w.calm:
		w.fault("push late")
		w.after(w.upTo(3*time.Second), "", func() { p.hear(r) })
	default:
		p.hear(r)
	}
}

func (p *people) hear(r sale.UserResult) {
	p.observe(r.UserID, r.Result)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbox[r.UserID] == nil {
		p.inbox[r.UserID] = map[string]sale.Result{}
	}
	if have := p.inbox[r.UserID][r.RequestToken]; have.Version <= r.Version {
		p.inbox[r.UserID][r.RequestToken] = r.Result
	}
}

// observe notes what a user was told of a token.
func (p *people) observe(user int64, r sale.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.w
	if owner, ok := p.owner[r.RequestToken]; ok && owner != user {
		w.violate("user %d was told of token %s of user %d", user, r.RequestToken, owner)
	}
	p.owner[r.RequestToken] = user
	if r.Version == 0 {
		return
	}
	if p.told[r.RequestToken] == nil {
		p.told[r.RequestToken] = map[int64]sale.Result{}
	}
	if have, ok := p.told[r.RequestToken][r.Version]; ok && (have.Status != r.Status || have.OrderNo != r.OrderNo) {
		w.violate("token %s version %d was told as %s %s and as %s %s", r.RequestToken, r.Version, have.Status, have.OrderNo, r.Status, r.OrderNo)
	}
	p.told[r.RequestToken][r.Version] = r
}

// passed notes that a poll went to the database because Redis failed: it may be ahead of Redis then, and the next poll
// shows an older version. Clients keep the highest.
func (p *people) passed(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead[token] = true
}

// tab is one browser tab: it asks for one token's order and follows it.
type tab struct {
	w     *World
	p     *proc
	ctx   context.Context //nolint:containedctx // names the tab in every call it makes
	r     *rand.Rand
	user  int64
	token string
	seen  map[string]int64 // highest version that a poll of this tab has shown
}

// compare holds a poll against the one before: as long as Redis loses nothing, versions only grow.
func (t *tab) compare(r *sale.Result) {
	w := t.w
	w.people.mu.Lock()
	ahead := w.people.ahead[r.RequestToken]
	w.people.mu.Unlock()
	if have := t.seen[r.RequestToken]; r.Version < have && !ahead && !w.lossy() && w.db.acts[saleID].Epoch <= 1 {
		w.violate("token %s: a poll showed version %d after version %d", r.RequestToken, r.Version, have)
	}
	t.seen[r.RequestToken] = r.Version
}

func (t *tab) chance(p float64) bool { return t.r.Float64() < p }

// pause waits a random time; false when the run is over.
func (t *tab) pause(least, most time.Duration) bool {
	select {
	case <-t.p.died:
		return false
	case <-time.After((least + time.Duration(t.r.Int64N(int64(most-least)))).Truncate(grain)):
		return true
	}
}

// gateway is the one that a load balancer picks, or nil while none is up.
func (t *tab) gateway() *gateway {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if len(t.w.fronts) == 0 {
		return nil
	}
	return t.w.fronts[t.r.IntN(len(t.w.fronts))]
}

// live is the life of a tab: order, then wait for the outcome, then pay, cancel or forget.
func (t *tab) live() {
	quantity := 1 + t.r.IntN(t.w.p.maxPerUser)
	if !t.pause(400*time.Millisecond, 500*time.Millisecond+t.w.p.saleLasts*2/3) {
		return
	}
	asked, waits := false, false
	for range 8 {
		if g := t.gateway(); g != nil {
			a := g.order(t.ctx, t.user, t.token, quantity)
			t.note(a)
			if a.http != 409 {
				asked = true
			}
			switch {
			case a.code == "" && !t.chance(t.w.p.repeat):
				t.follow(t.token)
				return
			case a.code == sale.CodeAlreadyParticipated:
				t.follow(a.first)
				return
			case a.code == sale.CodeEnded || a.code == sale.CodeInvalidToken:
				t.follow("")
				return
			case a.code == sale.CodeSoldOut && !asked && t.chance(t.w.p.waits):
				waits = t.w.people.request(t.user, true, func() error { return g.join(t.ctx, t.user) }) == nil
			}
			if waits {
				t.mayLeave()
				t.follow("")
				return
			}
		}
		if !t.pause(50*time.Millisecond, 1500*time.Millisecond) {
			return
		}
	}
	t.follow("")
}

// note keeps the answer to an order request.
func (t *tab) note(a answer) {
	w := t.w
	w.logf("user %d: order %s answered %d %s %s %s", t.user, t.token, a.http, a.code, a.result.Status, a.first)
	w.people.mu.Lock()
	w.people.owner[t.token] = t.user
	if a.http == 202 {
		w.people.accepted[t.token] = true
		w.reached("accepted")
	}
	w.people.mu.Unlock()
	if a.code == "" {
		w.people.observe(t.user, a.result)
	}
}

// follow asks for the outcome of a token, or of whatever the user has, until it is known, and then decides what to do.
func (t *tab) follow(token string) {
	acted := false
	for range 14 {
		if !t.pause(300*time.Millisecond, 2500*time.Millisecond) {
			return
		}
		res, ok := t.ask(token)
		if !ok {
			continue
		}
		if res.Status == sale.StatusPendingPayment && !acted {
			acted = true
			t.act(res)
			continue
		}
		if res.Version > 0 && res.Status != sale.StatusPendingPayment {
			return
		}
	}
}

// ask polls, or takes what was pushed.
func (t *tab) ask(token string) (sale.Result, bool) {
	t.w.people.mu.Lock()
	box := t.w.people.inbox[t.user]
	for _, id := range slices.Sorted(maps.Keys(box)) {
		r := box[id]
		if (r.RequestToken == token || token == "" && r.OrderNo != "") && r.Version > 0 && t.chance(0.5) {
			t.w.people.mu.Unlock()
			return r, true
		}
	}
	t.w.people.mu.Unlock()
	g := t.gateway()
	if g == nil {
		return sale.Result{}, false
	}
	var res sale.Result
	var err error
	if token == "" {
		res, err = g.me(t.ctx, t.user)
	} else {
		res, err = g.find(t.ctx, token, t.user)
	}
	if err != nil {
		return sale.Result{}, false
	}
	t.w.people.observe(t.user, res)
	t.compare(&res)
	return res, true
}

// act pays, cancels, does both at once, or lets the order expire.
func (t *tab) act(r sale.Result) {
	pays, cancels := t.chance(t.w.p.pays), t.chance(t.w.p.cancels)
	if pays {
		shop := &tab{w: t.w, user: t.user, p: t.p, r: rand.New(rand.NewPCG(t.w.cfg.Seed, uint64(t.user)+900)), token: t.token}
		shop.ctx = tagged(context.Background(), t.p.name+"shop")
		go shop.callback(r)
	}
	if cancels {
		if g := t.gateway(); g != nil {
			err := g.cancel(t.ctx, t.user, r.OrderNo)
			t.w.logf("user %d: cancel %s: %s", t.user, r.OrderNo, short(err))
		}
	}
}

// callback is the payment service, which calls until it is answered, and now and then once more.
func (t *tab) callback(r sale.Result) {
	amount := decimal.New(9900, -2).Mul(decimal.NewFromInt(int64(r.Quantity)))
	for range 6 {
		if !t.pause(time.Millisecond, 1200*time.Millisecond) {
			return
		}
		g := t.gateway()
		if g == nil {
			continue
		}
		id := "pay-" + r.OrderNo
		outcome, err := g.pay(t.ctx, sale.Payment{ID: id, OrderNo: r.OrderNo, Amount: amount, PaidAt: time.Now()})
		t.w.logf("payment of %s: %s %s", r.OrderNo, outcome, short(err))
		if err != nil {
			continue
		}
		t.w.people.mu.Lock()
		if have, ok := t.w.people.paid[id]; ok && have != outcome {
			t.w.violate("payment %s was answered %s and %s", id, have, outcome)
		}
		t.w.people.paid[id] = outcome
		t.w.people.mu.Unlock()
		t.w.reached("payment " + string(outcome))
		if !t.chance(0.3) {
			return
		}
	}
}
