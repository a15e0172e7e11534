package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"seckill/internal/sale"
)

// gateway mirrors the admission of package gateway: batcher.go, answerAdmission of orders.go, soldout.go, results.go,
// tell of myorders.go and joinWaitlist of waitlist.go, step by step, without HTTP. What is not here: request tokens and
// their expiry, quotas and windows, the catalog.
type gateway struct {
	w    *World
	p    *proc
	st   *store
	led  *ledger
	q    *producer
	tell *announcer
	flag soldOut
}

// soldOut mirrors the local sold-out flag.
type soldOut struct {
	mu       sync.Mutex
	empty    bool
	listed   []int64
	recent   map[int64]bool
	admitted map[int64]string // by this gateway, never forgotten: for the check of R14
	loading  bool
	staleAt  time.Time
}

func newGateway(w *World, p *proc) *gateway {
	g := &gateway{
		w: w, p: p, st: w.stores[p], led: newLedger(w.db, p, p.role, p.name), q: &producer{b: w.broker, p: p}, tell: &announcer{w, p},
		flag: soldOut{recent: map[int64]bool{}, admitted: map[int64]string{}},
	}
	go g.refresh()
	return g
}

// answer is what a client gets.
type answer struct {
	code   sale.Code   // of a problem; "" when there is a result
	result sale.Result // state of the token
	first  string      // already_participated: the token that counts
	http   int
}

func problem(code sale.Code) answer { return answer{code: code, http: 409} }

// lost is what a client sees when the gateway dies or cuts the connection.
var lost = answer{code: "connection lost"}

// order is POST orders.
func (g *gateway) order(ctx context.Context, user int64, token string, quantity int) answer {
	if g.answersSoldOut(ctx, user, token) {
		return problem(sale.CodeSoldOut)
	}
	sctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	replies, err := g.st.Reserve(sctx, saleID, time.Now(), []sale.ReserveRequest{{Token: token, UserID: user, CommodityID: commodity, Quantity: quantity}})
	switch {
	case errors.Is(err, errDead):
		return lost
	case errors.Is(err, sale.ErrUncertain):
		return answer{code: sale.CodePending, http: 503}
	case err != nil:
		return answer{code: sale.CodeOverloaded, http: 503}
	}
	r := replies[0]
	published := false
	if r.Outcome == sale.ReserveAccepted || r.Outcome == sale.ReserveRepeat && r.Reservation.Token != "" {
		if r.Outcome == sale.ReserveRepeat && g.w.cfg.Bugs.RepeatNotPublished {
			published = true
		} else {
			errs := g.q.Publish(ctx, []sale.Reservation{r.Reservation})
			published = errs == nil || errs[0] == nil
			if errs != nil && errors.Is(errs[0], errDead) {
				return lost
			}
		}
	}
	return g.answerAdmission(ctx, user, token, &r, published)
}

func (g *gateway) answerAdmission(ctx context.Context, user int64, token string, r *sale.ReserveReply, published bool) answer {
	switch r.Outcome {
	case sale.ReserveAccepted:
		g.joined(user, token)
		if !published {
			return answer{code: sale.CodePending, http: 503}
		}
		return answer{result: r.Result, http: 202}
	case sale.ReserveRepeat:
		if r.Result.Status != sale.StatusProcessing {
			return answer{result: r.Result, http: 200}
		}
		if r.Reservation.Token != "" && !published {
			return answer{code: sale.CodePending, http: 503}
		}
		return answer{result: r.Result, http: 202}
	case sale.ReserveParticipated:
		if r.FirstToken == token {
			res, err := g.find(ctx, token, user)
			if errors.Is(err, sale.ErrNotFound) {
				return answer{code: sale.CodeInvalidToken, http: 400}
			}
			if err != nil {
				return answer{code: sale.CodeOverloaded, http: 503}
			}
			return answer{result: res, http: 200}
		}
		return answer{code: sale.CodeAlreadyParticipated, first: r.FirstToken, http: 409}
	case sale.ReserveSoldOut:
		g.load()
		return problem(sale.CodeSoldOut)
	case sale.ReserveNotReady:
		return answer{code: sale.CodeNotReady, http: 503}
	case sale.ReserveNotStarted:
		return problem(sale.CodeNotStarted)
	case sale.ReserveEnded:
		return problem(sale.CodeEnded)
	case sale.ReservePaused:
		return problem(sale.CodePaused)
	}
	return problem(sale.Code(r.Outcome))
}

// answersSoldOut is soldOut.answers, with the check of R14.
func (g *gateway) answersSoldOut(ctx context.Context, user int64, token string) bool {
	f := &g.flag
	f.mu.Lock()
	now := time.Now()
	stale := now.After(f.staleAt)
	yes := f.empty && !now.After(f.staleAt.Add(5*time.Second))
	takesPart := f.recent[user] || slices.Contains(f.listed, user)
	mine := f.admitted[user] == token
	f.mu.Unlock()
	if !yes {
		return false
	}
	if stale {
		g.load()
	}
	if takesPart && !g.w.cfg.Bugs.FlagForAll {
		return false
	}
	if mine {
		_ = g.p.call(ctx, inside, "sold-out flag answers", token, nil)
		g.w.flagAnswered(user, token)
	}
	g.w.reached("answered by the sold-out flag")
	return true
}

func (g *gateway) joined(user int64, token string) {
	g.flag.mu.Lock()
	defer g.flag.mu.Unlock()
	g.flag.recent[user], g.flag.admitted[user] = true, token
}

// load reads stock and participants beside the requests.
func (g *gateway) load() {
	f := &g.flag
	f.mu.Lock()
	busy := f.loading
	f.loading = true
	f.mu.Unlock()
	if busy {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(tagged(g.p.ctx, "flag"), 5*time.Second)
		defer cancel()
		live, err := g.st.Live(ctx, []string{saleID})
		var users []int64
		if err == nil {
			users, err = g.st.ParticipantsOf(ctx, saleID)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.loading = false
		if err != nil {
			return
		}
		l := live[saleID]
		units, ok := l.Units(commodity)
		f.empty, f.listed = ok && units <= 0 && l.State != sale.StateNotReady, users
		for _, u := range users {
			delete(f.recent, u)
		}
		f.staleAt = time.Now().Add(time.Second)
	}()
}

// refresh lowers the flag when a look at the stock contradicts it.
func (g *gateway) refresh() {
	for {
		select {
		case <-g.p.died:
			return
		case <-time.After(time.Second):
		}
		g.flag.mu.Lock()
		up := g.flag.empty
		g.flag.mu.Unlock()
		if !up {
			continue // it has nothing to lower
		}
		live, err := g.st.Live(tagged(g.p.ctx, "refresh"), []string{saleID})
		if err != nil {
			continue
		}
		l := live[saleID]
		if units, ok := l.Units(commodity); l.State == sale.StateNotReady || ok && units > 0 {
			g.flag.mu.Lock()
			g.flag.empty = false
			g.flag.mu.Unlock()
		}
	}
}

// find is findResult.
func (g *gateway) find(ctx context.Context, token string, user int64) (sale.Result, error) {
	res, ok, err := g.st.Result(ctx, saleID, token)
	if err != nil {
		g.w.people.passed(token)
	}
	if err == nil && ok {
		if res.UserID != user {
			return sale.Result{}, fmt.Errorf("result: %w", sale.ErrNotFound)
		}
		return res.Result, nil
	}
	d, dbErr := g.led.DecisionByToken(ctx, saleID, user, token, 1)
	if dbErr == nil {
		return d.Result(), nil
	}
	if errors.Is(dbErr, sale.ErrNotFound) && err != nil {
		return sale.Result{}, sale.ErrTransient
	}
	return sale.Result{}, dbErr
}

// me is resultOfUser.
func (g *gateway) me(ctx context.Context, user int64) (sale.Result, error) {
	token, ok, err := g.st.Mark(ctx, saleID, user)
	if err == nil && ok {
		res, err := g.find(ctx, token, user)
		if !errors.Is(err, sale.ErrNotFound) {
			return res, err
		}
	}
	d, dbErr := g.led.DecisionOfUser(ctx, saleID, user)
	if dbErr == nil {
		g.w.people.passed(d.Token)
		return d.Result(), nil
	}
	if errors.Is(dbErr, sale.ErrNotFound) && err != nil {
		return sale.Result{}, sale.ErrTransient
	}
	return sale.Result{}, dbErr
}

// cancel and pay change an order and tell.
func (g *gateway) cancel(ctx context.Context, user int64, orderNo string) error {
	o, changed, err := g.led.Cancel(ctx, orderNo, user)
	if err == nil && changed {
		g.spread(ctx, o)
	}
	return err
}

func (g *gateway) pay(ctx context.Context, p sale.Payment) (sale.PaymentOutcome, error) {
	outcome, o, changed, err := g.led.RecordPayment(ctx, p)
	if err == nil && changed {
		g.spread(ctx, o)
	}
	return outcome, err
}

// spread is Gateway.tell.
func (g *gateway) spread(ctx context.Context, o *sale.Order) {
	rs := []sale.UserResult{{UserID: o.UserID, Result: o.Result()}}
	settled, err := g.st.SetStatus(ctx, rs)
	if err == nil {
		err = g.tell.Results(ctx, rs)
	}
	if err == nil && settled[0] != sale.SettleNotYet {
		_ = g.led.MarkTold(ctx, o.RequestToken, o.UserID, o.Version)
	}
}

// join is joinWaitlist.
func (g *gateway) join(ctx context.Context, user int64) error {
	_, takesPart, err := g.st.Mark(ctx, saleID, user)
	if err != nil {
		return err
	}
	if takesPart {
		return sale.Errorf(sale.CodeAlreadyParticipated, "")
	}
	joined, err := g.led.JoinWaitlist(ctx, saleID, commodity, user)
	if err != nil && !errors.Is(err, sale.ErrExists) {
		return err
	}
	return g.st.JoinWaitlist(ctx, saleID, commodity, []sale.Waiter{{UserID: user, JoinedAt: joined}})
}
