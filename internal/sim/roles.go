package sim

import (
	"context"
	"hash/fnv"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/shopspring/decimal"

	"seckill/consumer"
	"seckill/internal/sale"
	"seckill/reconciler"
)

// The one sale of a run.
const (
	saleID    = "A1"
	commodity = "C1"
)

// noMetrics registers nothing: thousands of processes are born in a test.
type noMetrics struct{}

func (noMetrics) Register(prometheus.Collector) error  { return nil }
func (noMetrics) MustRegister(...prometheus.Collector) {}
func (noMetrics) Unregister(prometheus.Collector) bool { return true }

// open makes the sale, starts the processes and lets the users come.
func (w *World) open() {
	now := w.db.ms()
	ends := now.Add(time.Second + w.p.saleLasts)
	w.db.acts[saleID] = &activityRow{
		Activity: sale.Activity{
			ID: saleID, Title: "sale", StartsAt: now.Add(500 * time.Millisecond), EndsAt: ends, PayWithin: w.p.payWithin,
			CloseGrace: time.Second, WaitlistUntil: ends.Add(8 * time.Second), State: sale.StateScheduled,
			Items: []sale.Item{{CommodityID: commodity, Title: "thing", Price: decimal.New(9900, -2), Total: w.p.units, MaxPerUser: w.p.maxPerUser}},
		},
		boundary: map[int64]map[int]int64{},
	}
	w.calmAt = now.Add(time.Second + w.p.faultsLast)
	for range w.p.reconcilers {
		w.start("reconciler")
	}
	for range w.p.consumers {
		w.start("consumer")
	}
	for range w.p.gateways {
		w.start("gateway")
	}
	for i := range w.broker.parts {
		w.broker.rebalance(i)
	}
	w.people.come()
	w.plan()
}

// start starts a process of a role.
func (w *World) start(role string) {
	p := w.spawn(role)
	w.logf("start %s", p.name)
	notice := make(chan string, 1)
	w.stores[p] = newStore(w.redis, p)
	w.stores[p].onRewind = func(id string) {
		select {
		case notice <- id:
		default:
		}
	}
	go w.watchRedis(p, w.stores[p], notice)
	switch role {
	case "reconciler":
		w.runReconciler(p)
	case "gateway":
		g := newGateway(w, p)
		w.mu.Lock()
		w.fronts = append(w.fronts, g)
		w.mu.Unlock()
	}
}

// watchRedis mirrors rewind.go of package app: every process watches for a Redis that goes back, and records it in the
// database, so that a leader without a memory of its own rebuilds (R15).
func (w *World) watchRedis(p *proc, st *store, notice <-chan string) {
	ctx := tagged(p.ctx, "watch")
	led := newLedger(w.db, p, p.role, p.name)
	suspect := func(id string) { _ = led.Suspect(ctx, id, st.floor(id).epoch) }
	tick := time.NewTicker(1003 * time.Millisecond) // never at the same moment as the rounds
	defer tick.Stop()
	for {
		var noticed string
		var ticked bool
		select {
		case <-p.died:
			return
		case noticed = <-notice:
		case <-tick.C:
			ticked = true
		}
		// Of two that come at one moment the runtime picks either: take both, in one order.
		select {
		case noticed = <-notice:
		case <-tick.C:
			ticked = true
		default:
		}
		if noticed != "" {
			suspect(noticed)
		}
		if !ticked {
			continue
		}
		_, _ = st.CheckServers(ctx, []string{saleID})
		if st.Rewound(saleID) {
			suspect(saleID)
		}
	}
}

func quietLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 4}))
}

func (w *World) runReconciler(p *proc) {
	auditor := reconciler.NewAuditor(w.stores[p], newLedger(w.db, p, p.role, p.name))
	auditEvery := 24 * time.Hour
	if w.p.selfAudit {
		auditEvery = 3 * time.Second
	}
	audit := func(ctx context.Context, id string, repair bool) (rep *sale.AuditReport, err error) {
		ctx = tagged(ctx, "audit")
		rep = &sale.AuditReport{} // the audit at the start of each term would mend what others broke, too
		if w.p.selfAudit {
			rep, err = auditor.Audit(ctx, id, repair)
		}
		// As for a rebuild, its end must not meet a tick: see holdsBack.
		_ = p.callWhen(ctx, blocking, "end of audit", "", func() bool { return !w.inRounds(p) }, func() error { return nil })
		return rep, err
	}
	// The lease and the rounds have no common moment: at one, either could go first.
	r := reconciler.New(reconciler.Config{
		LeaseTTL: 3004 * time.Millisecond, Interval: time.Second, LiveInterval: time.Second, LiveRepeat: time.Minute,
		RelayAfter: time.Second, RelayMax: 4 * time.Second, RelayMargin: 500 * time.Millisecond, PlacesInterval: 2 * time.Second, CallTimeout: 2011 * time.Millisecond,
		RebuildTimeout: rebuildDeadline, AuditInterval: auditEvery,
	}, reconciler.Deps{
		Stock: w.stores[p], Ledger: newLedger(w.db, p, p.role, p.name), Queue: &producer{b: w.broker, p: p, relay: true},
		Offsets: &offsets{w.broker, p}, Announcer: &announcer{w, p}, PromotedToken: promotedToken, Audit: audit, Holder: p.name,
		Metrics: noMetrics{}, Log: w.log,
	})
	go func() { _ = r.Run(p.ctx) }()
}

// promotedToken is always the same for a returned token and a user (R12).
func promotedToken(returned string, user int64, _ string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(returned))
	return "P" + strconv.FormatUint(uint64(h.Sum32()), 36) + "u" + strconv.FormatInt(user, 10)
}

// newConsumer makes the consumer behind one member of the group, and returns what handles its batches. The real one
// serves several partitions; nothing but its pace is shared between them.
func (w *World) newConsumer(m *member) func(context.Context, []sale.Delivery) error {
	p := m.p
	tag := "p" + strconv.Itoa(m.part) + "g" + strconv.Itoa(m.generation)
	var led consumer.Ledger = newLedger(w.db, p, p.role, p.name)
	var st consumer.Stock = w.stores[p]
	var tell consumer.Announcer = &announcer{w, p}
	if w.cfg.Bugs.RepeatNotTold {
		f := &forgetful{led, st, tell, map[string]bool{}}
		led, st, tell = f, f, forgetfulAnnouncer{f}
	}
	c := consumer.New(consumer.Config{RetryMin: time.Microsecond, RetryMax: time.Microsecond, CallTimeout: 2 * time.Second, PaceBurst: 10}, consumer.Deps{
		Ledger: led, Stock: st, Announcer: tell, DeadLetters: deadLetters{w},
		Numbers: &numbers{w: w, base: int64(m.part+1)*1_000_000 + int64(m.generation)*1000}, Metrics: noMetrics{}, Log: w.log, Stop: p.died,
		Step: func(name string) { _ = p.call(tagged(context.Background(), tag), inside, name, tag, nil) },
	})
	return c.Handle
}

// numbers makes order numbers, now and then one that is taken (FS-096).
type numbers struct {
	w    *World
	base int64
	n    int64
}

// Next is as of package consumer.
func (n *numbers) Next(user int64) (string, error) {
	n.n++
	h := fnv.New32a()
	_, _ = h.Write([]byte(strconv.FormatInt(n.base+n.n, 10) + strconv.FormatUint(n.w.cfg.Seed, 10)))
	if float64(h.Sum32()%1000) < 1000*n.w.p.sameNumber {
		return sale.OrderNo(777, user), nil
	}
	return sale.OrderNo(n.base+n.n, user), nil
}

// deadLetters must stay empty: the simulation sends nothing that cannot be decided.
type deadLetters struct{ w *World }

// Park is as of package queue.
func (d deadLetters) Park(_ context.Context, m sale.Delivery, reason string) error {
	d.w.violate("message of token %s was parked: %s", m.Token, reason)
	return nil
}

// forgetful is a planted mistake: what was decided before is not settled and told again.
type forgetful struct {
	consumer.Ledger
	consumer.Stock
	tell   consumer.Announcer
	before map[string]bool
}

// Commit notes which decisions are repeats.
func (f *forgetful) Commit(ctx context.Context, batch []sale.Pending) ([]sale.Decision, error) {
	ds, err := f.Ledger.Commit(ctx, batch)
	for i := range ds {
		f.before[ds[i].Token] = ds[i].Repeated
	}
	return ds, err
}

// Settle leaves repeats out.
func (f *forgetful) Settle(ctx context.Context, id string, ds []sale.Decision) ([]sale.Settlement, error) {
	var some []sale.Decision
	for i := range ds {
		if !ds[i].Repeated {
			some = append(some, ds[i])
		}
	}
	if len(some) == 0 {
		return make([]sale.Settlement, len(ds)), nil
	}
	_, err := f.Stock.Settle(ctx, id, some)
	return make([]sale.Settlement, len(ds)), err
}

type forgetfulAnnouncer struct{ f *forgetful }

// Results leaves repeats out.
func (a forgetfulAnnouncer) Results(ctx context.Context, rs []sale.UserResult) error {
	var some []sale.UserResult
	for _, r := range rs {
		if !a.f.before[r.RequestToken] {
			some = append(some, r)
		}
	}
	return a.f.tell.Results(ctx, some)
}

// announcer is one process's client of the channels that lead to users.
type announcer struct {
	w *World
	p *proc
}

// Results is as of package push: whoever listens may hear it, sooner or later.
func (a *announcer) Results(ctx context.Context, rs []sale.UserResult) error {
	if len(rs) == 0 {
		return nil
	}
	return a.p.call(ctx, toPush, "announce", rs[0].RequestToken, func() error {
		for _, r := range rs {
			a.w.people.push(r)
		}
		return nil
	})
}

// Places is as of package push; nobody in the simulation looks at places.
func (a *announcer) Places(context.Context, []sale.Place) error { return nil }

// Live is as of package push.
func (a *announcer) Live(context.Context, sale.Live) error { return nil }

// audit runs the product's auditor beside the sale, in a process of its own.
func (w *World) audit() {
	p := w.spawn("auditor")
	a := reconciler.NewAuditor(newStore(w.redis, p), newLedger(w.db, p, p.role, p.name))
	go func() { _, _ = a.Audit(p.ctx, saleID, true) }()
}

// pause is an operator who stops the sale for a while: the database first, then Redis.
func (w *World) pause() {
	p := w.spawn("operator")
	st, led := newStore(w.redis, p), newLedger(w.db, p, p.role, p.name)
	set := func(from, to sale.State) {
		if led.SetActivityState(p.ctx, saleID, []sale.State{from}, to) != nil {
			return
		}
		if list, err := led.Activities(p.ctx); err == nil {
			_ = st.SetMeta(p.ctx, list[0])
		}
	}
	go func() {
		set(sale.StateScheduled, sale.StatePaused)
		for range 20 { // an operator tries again
			select {
			case <-p.died:
				return
			case <-time.After(time.Second):
			}
			set(sale.StatePaused, sale.StateScheduled)
		}
	}()
}
