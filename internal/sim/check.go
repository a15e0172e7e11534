package sim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"seckill/internal/sale"
	"seckill/reconciler"
)

// patience is how long the product may take to come to its end once nothing fails any more.
const patience = 90 * time.Second

// quiet reports whether everything has come to its end: every message finished, the sale settled, nobody doing anything.
func (w *World) quiet() bool {
	a := w.db.acts[saleID]
	why := ""
	for _, p := range w.broker.parts {
		if p.committed < int64(len(p.log)) {
			why = "messages are not finished"
		}
	}
	for _, c := range w.waiting {
		if c.to != blocking && c.p.role != "reconciler" {
			why = c.p.name + " waits for " + c.name
		}
	}
	switch {
	case why != "":
	case len(w.events) > 0:
		why = "events to come"
	case a.State != sale.StateSettled:
		why = "the sale is " + string(a.State) + ", not settled"
	default:
		return true
	}
	if time.Since(w.calmAt) > patience {
		w.violate("no end: %s", why)
		return true
	}
	return false
}

// soldTooMany is looked at after every step of the database.
func (w *World) soldTooMany() {
	it := w.db.acts[saleID].Item(commodity)
	if n := w.db.live(saleID, commodity); n > it.Total || n != it.Sold {
		w.violate("%d units are in orders, sold_count is %d, of %d", n, it.Sold, it.Total)
	}
}

// flagAnswered is a gateway's sold-out flag answering a user whom this same gateway has admitted (R14).
func (w *World) flagAnswered(user int64, token string) {
	if !w.lossy() && w.redis.of(saleID).marks[user] == token {
		w.violate("the sold-out flag answered user %d, who takes part with token %s", user, token)
	}
}

// check holds what is left against the promises.
func (w *World) check() {
	w.checkUnits()
	w.checkTokens()
	w.checkStories()
	w.checkUsers()
	w.checkPayments()
	a := reconciler.NewAuditor(newStore(w.redis, direct{}), newLedger(w.db, direct{}, "check", ""))
	rep, err := a.Audit(context.Background(), saleID, false)
	if err != nil {
		w.violate("audit: %v", err)
		return
	}
	for _, d := range rep.Differences {
		w.violate("audit: %s %s: %s", d.Kind, d.ID, d.Detail)
	}
}

// checkUnits: the balance holds, and no unit is on its way any more.
func (w *World) checkUnits() {
	w.soldTooMany()
	it, k := w.db.acts[saleID].Item(commodity), w.redis.of(saleID)
	if left, ok := k.stock[commodity]; !ok || left+it.Sold != it.Total {
		w.violate("balance: redis has %d (%t), sold %d, total %d", left, ok, it.Sold, it.Total)
	}
	for _, o := range w.db.orders {
		if o.returned == 0 {
			w.violate("the unit of token %s was never returned", o.RequestToken)
		}
		if o.Status == sale.StatusPendingPayment {
			w.violate("order of token %s is still unpaid", o.RequestToken)
		}
	}
	if n := w.db.acts[saleID].Epoch; n > 1 {
		w.rep.Reached["rebuilt after the warm-up"]++
	}
}

// checkTokens: each token is decided once, and Redis holds the state that the database says.
func (w *World) checkTokens() {
	k := w.redis.of(saleID)
	decisions := map[string]int{}
	for i := range w.db.refusals {
		r := &w.db.refusals[i]
		decisions[r.Token]++
		w.rep.Reached["refused "+string(r.Status)+" "+string(r.Reason)]++
	}
	for _, o := range w.db.orders {
		decisions[o.RequestToken]++
		w.rep.Reached["order "+string(o.Status)]++
		if o.RequestToken[0] == 'P' {
			w.rep.Reached["promoted"]++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.db.log)) {
		if err := w.db.checkLog(id); err != nil {
			w.violate("log: %v", err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(decisions)) {
		if decisions[id] != 1 {
			w.violate("token %s was decided %d times", id, decisions[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.tokens)) {
		t := k.tokens[id]
		want := sale.TokenReleased
		if o := w.db.byToken[id]; o != nil && o.returned != 1 {
			want = sale.TokenCommitted
		}
		switch {
		case decisions[id] == 0:
			w.violate("token %s is %s in redis and was never decided", id, t.state)
		case t.state != want:
			w.violate("token %s is %s in redis, should be %s", id, t.state, want)
		}
	}
	if len(k.occupied) > 0 {
		w.violate("the outbox still has %v", slices.Sorted(maps.Keys(k.occupied)))
	}
}

// checkStories: what users were told is what the database decided, and every accepted request has its outcome.
func (w *World) checkStories() {
	for _, id := range slices.Sorted(maps.Keys(w.people.told)) {
		for v, r := range w.people.told[id] {
			i := slices.IndexFunc(w.db.log[id], func(s logRow) bool { return s.Version == v && s.Status == r.Status })
			if i < 0 {
				w.violate("token %s: the user was told version %d, %s %s, which is not in the log", id, v, r.Status, r.Reason)
			}
		}
	}
	clean := !w.lossy() && w.db.acts[saleID].Epoch == 1
	for _, id := range slices.Sorted(maps.Keys(w.people.accepted)) {
		step := w.db.decided(id)
		switch {
		case step == nil:
			w.violate("token %s was accepted and has no outcome", id)
		case clean && w.db.byToken[id] == nil:
			w.violate("token %s was accepted, redis was never lost, and it was refused: %s %s", id, step.Status, step.Reason)
		}
	}
}

// checkUsers: whoever asks now is told the truth, by token and by user.
func (w *World) checkUsers() {
	p := w.spawn("check")
	g := &gateway{w: w, p: p, st: newStore(w.redis, direct{}), led: newLedger(w.db, direct{}, "check", "")}
	ctx := context.Background()
	for _, id := range slices.Sorted(maps.Keys(w.people.owner)) {
		user := w.people.owner[id]
		want, dbErr := w.db.decisionByToken(saleID, user, id)
		got, err := g.find(ctx, id, user)
		switch {
		case errors.Is(dbErr, sale.ErrNotFound) && errors.Is(err, sale.ErrNotFound): // "submit the same token again"
		case dbErr != nil || err != nil:
			w.violate("token %s: asked now, user %d gets %v, the database %v", id, user, short(err), short(dbErr))
		case got.Status != want.Status || got.Version != want.Version || got.OrderNo != want.OrderNo:
			w.violate("token %s: asked now, user %d gets %s version %d, the database says %s version %d", id, user, got.Status, got.Version, want.Status, want.Version)
		}
	}
	for _, user := range w.people.users {
		got, err := g.me(ctx, user)
		o := w.db.byUser[userKey{saleID, user}]
		switch {
		case o == nil && !errors.Is(err, sale.ErrNotFound):
			w.violate("user %d has no order and is shown %s %s (%v)", user, got.RequestToken, got.Status, err)
		case o != nil && (err != nil || got.OrderNo != o.OrderNo || got.Status != o.Status):
			w.violate("user %d has order %s, %s, and is shown %s %s (%v)", user, o.OrderNo, o.Status, got.RequestToken, got.Status, err)
		}
	}
}

// checkPayments: money that was answered "paid" has paid an order, all other money is to go back.
func (w *World) checkPayments() {
	for _, id := range slices.Sorted(maps.Keys(w.db.payments)) {
		r := w.db.payments[id]
		o := w.db.byNo[r.OrderNo]
		if (r.outcome == sale.PaymentPaid) != (o.Status == sale.StatusPaid) {
			w.violate("payment %s is %s, its order is %s", id, r.outcome, o.Status)
		}
		if told, ok := w.people.paid[id]; ok && told != r.outcome {
			w.violate("payment %s is %s and was answered %s", id, r.outcome, told)
		}
	}
}
