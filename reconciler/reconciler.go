package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

// Stock is what the reconciler asks of Redis.
type Stock interface {
	Live(ctx context.Context, activityIDs []string) (map[string]sale.Live, error)
	SetMeta(ctx context.Context, a *sale.Activity) error
	SetUserList(ctx context.Context, activityID, list string, userID int64, on bool) error
	BeginRebuild(ctx context.Context, a sale.Activity, epoch int64) error
	FinishRebuild(ctx context.Context, snap *sale.Snapshot, epoch int64) error
	Occupied(ctx context.Context, activityID string, before time.Time, limit int) ([]sale.Reservation, error)
	Return(ctx context.Context, activityID string, rs []sale.Return) (found []sale.Settlement, epoch int64, err error)
	SetStatus(ctx context.Context, rs []sale.UserResult) ([]sale.Settlement, error)
	Rewound(activityID string) bool
	RaiseSeq(ctx context.Context, activityID string) (epoch, seq int64, err error)
	CheckServers(ctx context.Context, activityIDs []string) (map[string]string, error)
	Purge(ctx context.Context, activityID string) error
	Promote(ctx context.Context, r sale.Return, now time.Time, line []int64, tokenFor func(userID int64) string) (sale.Promotion, error)
	FillWaitlist(ctx context.Context, activityID, commodityID string, epoch int64, ws []sale.Waiter) error
	DropWaiters(ctx context.Context, activityID, commodityID string, ws []sale.Waiter) error
	Waiting(ctx context.Context, activityID, commodityID string, limit int) ([]sale.Waiter, error)
	DropWaitlist(ctx context.Context, activityID, commodityID string) error
}

// Ledger is what the reconciler asks of the database.
type Ledger interface {
	Activities(ctx context.Context) ([]*sale.Activity, error)
	RaiseEpoch(ctx context.Context, id string, fence int64) (int64, error)
	Witness(ctx context.Context, fence int64, seen map[string]sale.Sighting) (behind []string, err error)
	SaveBoundary(ctx context.Context, id string, epoch int64, offsets map[int]int64) error
	RebuildSnapshot(ctx context.Context, id string) (*sale.Snapshot, error)
	SetActivityState(ctx context.Context, id string, from []sale.State, to sale.State) error
	CloseUnpaid(ctx context.Context, now time.Time, limit int) ([]sale.Order, error)
	Open(ctx context.Context, activityID string) (unpaid, untold, returning int64, err error)
	PendingReturns(ctx context.Context, limit int) ([]sale.Return, error)
	MarkReturned(ctx context.Context, token string, userID, epoch int64) error
	Untold(ctx context.Context, limit int) ([]sale.Order, error)
	MarkTold(ctx context.Context, token string, userID, version int64) error
	Waiters(ctx context.Context, activityID string) ([]sale.Waiter, error)
	NotWaiting(ctx context.Context, activityID, commodityID string, ws []sale.Waiter) (gone []sale.Waiter, err error)
	MarkPromoted(ctx context.Context, w sale.Waiter, token string) error
	ExpireWaitlist(ctx context.Context, activityID string) ([]sale.Waiter, error)
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (int64, error)
	RenewLease(ctx context.Context, name, holder string, fence int64, ttl time.Duration) error
	ReleaseLease(ctx context.Context, name, holder string, fence int64) error
}

// Queue is what the reconciler asks of Kafka.
type Queue interface {
	Publish(ctx context.Context, rs []sale.Reservation) []error
}

// Offsets reads how far the consumers are.
type Offsets interface {
	EndOffsets(ctx context.Context) (map[int]int64, error)
	Committed(ctx context.Context) (map[int]int64, error)
}

// Announcer tells users and viewers.
type Announcer interface {
	Results(ctx context.Context, rs []sale.UserResult) error
	Places(ctx context.Context, ps []sale.Place) error
	Live(ctx context.Context, l sale.Live) error
}

// Config bounds the reconciler. Zero values mean the defaults stated here.
type Config struct {
	LeaseTTL       time.Duration // a leader that is silent this long is replaced; default 8 s
	Interval       time.Duration // between looks at states, reservations, returns; default 1 s
	LiveInterval   time.Duration // between live messages of a sale; default 250 ms, which is 4 a second
	LiveRepeat     time.Duration // an unchanged live state is sent again after this; default 5 s
	RelayAfter     time.Duration // a reservation occupied this long is enqueued again; doubled each time; default 5 s
	RelayMax       time.Duration // longest wait between two relays of one token; default 5 min
	RelayMargin    time.Duration // a publish takes at most this long to be in the queue; default 3 s
	RelayBatch     int           // reservations looked at in one round and sale; default 5000
	AuditInterval  time.Duration // between audits of all sales; default 30 s
	AuditTimeout   time.Duration // of the audit of one sale; default 60 s
	PlacesInterval time.Duration // between tellings of changed places in waitlists; default 2 s
	PlacesTold     int           // how many in front of each line are told their place; default 10,000
	LineLook       int           // waiters in front who are looked at for one returned unit; default 20
	TaskBatch      int           // returns or statuses in one round, waiters asked about in one query; default 500
	CallTimeout    time.Duration // of one step; default 5 s
	RebuildTimeout time.Duration // of a whole rebuild, waiting for the backlog included; default 10 min
}

// WithDefaults fills what is not set.
func (c Config) WithDefaults() Config {
	def(&c.LeaseTTL, 8*time.Second)
	def(&c.Interval, time.Second)
	def(&c.LiveInterval, 250*time.Millisecond)
	def(&c.LiveRepeat, 5*time.Second)
	def(&c.RelayAfter, 5*time.Second)
	def(&c.RelayMax, 5*time.Minute)
	def(&c.RelayMargin, 3*time.Second)
	def(&c.RelayBatch, 5000)
	def(&c.AuditInterval, 30*time.Second)
	def(&c.AuditTimeout, 60*time.Second)
	def(&c.PlacesInterval, 2*time.Second)
	def(&c.PlacesTold, 10_000)
	def(&c.LineLook, 20)
	def(&c.TaskBatch, 500)
	def(&c.CallTimeout, 5*time.Second)
	def(&c.RebuildTimeout, 10*time.Minute)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Deps are the parts a reconciler is built from; all are required but Now and Log.
type Deps struct {
	Stock     Stock
	Ledger    Ledger
	Queue     Queue
	Offsets   Offsets
	Announcer Announcer
	// Audit compares one sale in Redis with the database, and with repair mends Redis: an Auditor's.
	Audit func(ctx context.Context, activityID string, repair bool) (*sale.AuditReport, error)
	// PromotedToken makes the request token of a promotion: always the same for a returned token and a user (R12).
	PromotedToken func(returned string, userID int64, activityID string) string
	Holder        string // unique name of this process, for the lease
	Metrics       prometheus.Registerer
	Retention     time.Duration // of Redis keys after the last possible payment; default sale.DefaultRetention
	Now           func() time.Time
	Log           *slog.Logger
}

// Reconciler is one candidate for the lead.
type Reconciler struct {
	cfg         Config
	d           Deps
	leads       atomic.Bool
	relays      relayTable
	relay       prometheus.Counter
	rebuilt     prometheus.Counter
	differences prometheus.Gauge
}

// leaseName is the lease of the leader.
const leaseName = "reconciler"

// New builds a reconciler; Run starts it.
func New(cfg Config, d Deps) *Reconciler {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	def(&d.Retention, sale.DefaultRetention)
	r := &Reconciler{
		cfg: cfg.WithDefaults(), d: d, relays: relayTable{of: map[string]relayed{}},
		relay: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_relayed_total", Help: "Reservations enqueued again because they stayed occupied.",
		}),
	}
	r.rebuilt = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seckill_rebuilds_total", Help: "Rebuilds of a sale in Redis begun, warm-ups included: an alarm when no sale was warmed up.",
	})
	r.differences = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "seckill_audit_differences", Help: "Differences between Redis and the database that the last audit found.",
	})
	d.Metrics.MustRegister(r.relay, r.rebuilt, r.differences, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "seckill_leader", Help: "1 while this process leads the reconcilers.",
	}, func() float64 {
		if r.leads.Load() {
			return 1
		}
		return 0
	}))
	return r
}

// Leads reports whether this process leads now.
func (r *Reconciler) Leads() bool { return r.leads.Load() }

// Run stands for the lead, and does the leader's work while it holds the lease, until ctx ends. It gives the lease
// back at the end, so that another takes over at once.
func (r *Reconciler) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		asked := r.d.Now()
		cctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
		fence, err := r.d.Ledger.AcquireLease(cctx, leaseName, r.d.Holder, r.cfg.LeaseTTL)
		cancel()
		switch {
		case err == nil:
			r.lead(ctx, fence, asked.Add(r.cfg.LeaseTTL))
		case !errors.Is(err, sale.ErrConflict) && ctx.Err() == nil:
			r.d.Log.Warn("reconciler: lease", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.cfg.Interval):
		}
	}
	return nil
}

// lead works until the lease is lost or ctx ends. The work's context ends with the lease, on this process's clock.
func (r *Reconciler) lead(ctx context.Context, fence int64, until time.Time) {
	r.d.Log.Info("reconciler: leading", "holder", r.d.Holder, "fence", fence)
	r.leads.Store(true)
	work, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.work(work, fence)
	}()
	tick := time.NewTicker(r.cfg.LeaseTTL / 4)
	defer tick.Stop()
	for r.d.Now().Before(until) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			asked := r.d.Now()
			cctx, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL/4)
			err := r.d.Ledger.RenewLease(cctx, leaseName, r.d.Holder, fence, r.cfg.LeaseTTL)
			cancel()
			switch {
			case err == nil:
				until = asked.Add(r.cfg.LeaseTTL)
			case errors.Is(err, sale.ErrConflict):
				until = time.Time{}
			default:
				r.d.Log.Warn("reconciler: lease not renewed", "err", err)
			}
		}
	}
	stop()
	<-done
	r.leads.Store(false)
	r.d.Log.Info("reconciler: no longer leading", "holder", r.d.Holder)
	if ctx.Err() != nil {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.LeaseTTL/4)
		defer cancel()
		if err := r.d.Ledger.ReleaseLease(cctx, leaseName, r.d.Holder, fence); err != nil {
			r.d.Log.Warn("reconciler: lease not released; it runs out by itself", "err", err)
		}
	}
}

// work runs the leader's rounds: the live state four times a second, the rest once a second. A rebuild runs beside
// them, since it waits for the backlog.
func (r *Reconciler) work(ctx context.Context, fence int64) {
	w := &round{r: r, term: ctx, fence: fence, live: map[string]shown{}, rebuilding: map[string]bool{}, rebuilt: make(chan string, 16),
		line: map[string]map[int64]int64{}, ended: map[string]bool{}, expired: map[string][]sale.Place{}, ends: map[string]map[int]int64{},
		audited: make(chan struct{}, 1), differed: map[string]bool{}, purged: map[string]bool{},
	}
	defer w.rebuilds.Wait()
	fast := time.NewTicker(r.cfg.LiveInterval)
	defer fast.Stop()
	var last time.Time
	for {
		if now := r.d.Now(); now.Sub(last) >= r.cfg.Interval {
			last = now
			w.tasks(ctx)
		}
		w.showLive(ctx)
		select {
		case <-ctx.Done():
			return
		case id := <-w.rebuilt:
			delete(w.rebuilding, id)
		case <-w.audited:
			w.auditing = false
		case <-fast.C:
		}
	}
}

// step runs one bounded step and logs its failure; the next round tries again.
func (r *Reconciler) step(ctx context.Context, what string, do func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	if err := do(ctx); err != nil && !errors.Is(err, context.Canceled) {
		r.d.Log.Warn("reconciler: "+what, "err", err)
	}
}

// rebuild makes the sale's data in Redis anew from the database (R10): a warm-up is the same for a sale without orders.
func (r *Reconciler) rebuild(ctx context.Context, a *sale.Activity, fence int64, why string) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RebuildTimeout)
	defer cancel()
	r.rebuilt.Inc()
	start := r.d.Now()
	epoch, err := r.d.Ledger.RaiseEpoch(ctx, a.ID, fence)
	if err != nil {
		return fmt.Errorf("raise epoch: %w", err)
	}
	if err := r.firstSighting(ctx, a.ID, epoch, fence); err != nil {
		return err
	}
	if err := r.d.Stock.BeginRebuild(ctx, *a, epoch); err != nil {
		return err
	}
	ends, err := r.d.Offsets.EndOffsets(ctx)
	if err != nil {
		return err
	}
	if err := r.d.Ledger.SaveBoundary(ctx, a.ID, epoch, ends); err != nil {
		return fmt.Errorf("save boundary: %w", err)
	}
	if err := r.awaitGroup(ctx, ends); err != nil {
		return err
	}
	if err := r.fillWaitlist(ctx, a.ID, epoch); err != nil {
		return fmt.Errorf("waitlist: %w", err)
	}
	snap, err := r.d.Ledger.RebuildSnapshot(ctx, a.ID)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if now := snap.Activity.Epoch; now != epoch { // Redis lost something once more, and nothing may open what is to be rebuilt again
		return fmt.Errorf("the epoch is %d by now, no longer %d: %w", now, epoch, sale.ErrConflict)
	}
	if err := r.d.Stock.FinishRebuild(ctx, snap, epoch); err != nil {
		return err
	}
	r.catchUp(ctx, a.ID, epoch)
	r.d.Log.Info("reconciler: rebuilt", "activity", a.ID, "epoch", epoch, "why", why, "decisions", len(snap.Entries), "took", r.d.Now().Sub(start))
	return nil
}

// firstSighting records on which server a rebuild begins, before it writes anything there: from then on a server that
// restarts is noticed by whoever leads, even if nobody who saw the rebuild lives (R15).
func (r *Reconciler) firstSighting(ctx context.Context, activityID string, epoch, fence int64) error {
	servers, err := r.d.Stock.CheckServers(ctx, []string{activityID})
	if err != nil {
		return err
	}
	seen := map[string]sale.Sighting{activityID: {Epoch: epoch, Server: servers[activityID]}}
	behind, err := r.d.Ledger.Witness(ctx, fence, seen)
	if err == nil && len(behind) > 0 { // another leader is ahead
		err = sale.ErrConflict
	}
	return err
}

// catchUp writes what an operator changed after the snapshot: the window, a pause, the user lists. If it fails, the next
// look at the states does it, but for the lists, which the operator's own call repeats.
func (r *Reconciler) catchUp(ctx context.Context, activityID string, epoch int64) {
	now, err := r.d.Ledger.RebuildSnapshot(ctx, activityID)
	if err == nil && now.Activity.Epoch == epoch {
		err = r.d.Stock.SetMeta(ctx, &now.Activity)
		for list, users := range map[string][]int64{"blocked": now.Blocked, "eligible": now.Eligible} {
			for _, u := range users {
				err = errors.Join(err, r.d.Stock.SetUserList(ctx, activityID, list, u, true))
			}
		}
	}
	if err != nil {
		r.d.Log.Warn("reconciler: changes made during a rebuild", "activity", activityID, "err", err)
	}
}

// awaitGroup waits until the consumers have finished every message before these offsets.
func (r *Reconciler) awaitGroup(ctx context.Context, ends map[int]int64) error {
	for {
		committed, err := r.d.Offsets.Committed(ctx)
		if err != nil {
			return err
		}
		behind := lag(ends, committed)
		if behind == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("consumers are %d messages behind: %w", behind, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lag is how many messages before ends are not finished.
func lag(ends, committed map[int]int64) (behind int64) {
	for p, end := range ends {
		behind += max(0, end-committed[p])
	}
	return behind
}
