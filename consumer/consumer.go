package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

// Ledger decides. Its answer has the length and order of the batch. An error that is sale.ErrTransient leaves the
// batch undecided, or its decision unknown: calling again finds out.
type Ledger interface {
	Commit(ctx context.Context, batch []sale.Pending) ([]sale.Decision, error)
	// Refuse decides one reservation as a refusal, unless it is decided already.
	Refuse(ctx context.Context, p sale.Pending) (sale.Decision, error)
}

// Stock moves reservations to where their decisions say.
type Stock interface {
	Settle(ctx context.Context, activityID string, ds []sale.Decision) ([]sale.Settlement, error)
}

// Announcer tells users.
type Announcer interface {
	Results(ctx context.Context, rs []sale.UserResult) error
}

// DeadLetters parks what can never succeed.
type DeadLetters interface {
	Park(ctx context.Context, d sale.Delivery, reason string) error
}

// OrderNumbers makes order numbers. An error means that this process may make none now.
type OrderNumbers interface {
	Next(userID int64) (string, error)
}

// Config bounds the consumer. Zero values mean the defaults stated here.
type Config struct {
	RetryMin    time.Duration // first wait after a failure; default 20 ms
	RetryMax    time.Duration // longest wait; default 2 s
	CallTimeout time.Duration // of one Redis call; default 5 s
	MaxAttempts int           // of one message that fails for no known reason, before it is parked; default 8
	MaxRelays   int           // a message that still fails after so many relays is refused; default 8

	RatePerSecond    int  // orders committed a second by the whole group; 0: no fixed rate
	FindRate         bool // without a fixed rate: measure what the database takes, and stay 20 % below it; on by default in the program
	MinRatePerSecond int  // finding never goes below this; default 50
	PaceBurst        int  // messages let through at once; default 500

	BacklogMin    int64         // from so many messages waiting here a backlog is explained; default 1000
	BacklogWindow time.Duration // over which arrivals and commits are counted; default 5 s
}

// WithDefaults fills what is not set.
func (c Config) WithDefaults() Config {
	if c.RetryMin <= 0 {
		c.RetryMin = 20 * time.Millisecond
	}
	if c.RetryMax <= 0 {
		c.RetryMax = 2 * time.Second
	}
	if c.CallTimeout <= 0 {
		c.CallTimeout = 5 * time.Second
	}
	if c.MaxAttempts <= 0 {
		c.MaxAttempts = 8
	}
	if c.MaxRelays <= 0 {
		c.MaxRelays = 8
	}
	if c.MinRatePerSecond <= 0 {
		c.MinRatePerSecond = 50
	}
	if c.PaceBurst <= 0 {
		c.PaceBurst = 500
	}
	if c.BacklogMin <= 0 {
		c.BacklogMin = 1000
	}
	if c.BacklogWindow <= 0 {
		c.BacklogWindow = 5 * time.Second
	}
	return c
}

// Consumer finishes batches.
type Consumer struct {
	cfg     Config
	ledger  Ledger
	stock   Stock
	tell    Announcer
	dead    DeadLetters
	numbers OrderNumbers
	metrics *metrics
	pace    *pacer
	backlog *backlog
	log     *slog.Logger
	stop    <-chan struct{} // closed when retries must end
	step    func(name string)
	genuine func(token string, userID int64) bool
}

// Deps are the parts a consumer is built from; all are required but Log.
type Deps struct {
	Ledger      Ledger
	Stock       Stock
	Announcer   Announcer
	DeadLetters DeadLetters
	Numbers     OrderNumbers
	Metrics     prometheus.Registerer
	Lag         func() map[int]int64 // by owned partition
	Share       func() float64       // part of the group's partitions owned here, for pacing; nil: all
	Log         *slog.Logger
	// Genuine reports whether a request token was issued to this user: what anyone writes into the topic under another's
	// token is no reservation. nil: all are.
	Genuine func(token string, userID int64) bool
	Stop    <-chan struct{}   // when closed, a batch that keeps failing is left to its next owner
	Step    func(name string) // told between the steps of a batch, so that tests can fail there; nil in production
}

// New builds a consumer; Handle is what the queue calls.
func New(cfg Config, d Deps) *Consumer {
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.Genuine == nil {
		d.Genuine = func(string, int64) bool { return true }
	}
	if d.Step == nil {
		d.Step = func(string) {}
	}
	if d.Share == nil {
		d.Share = func() float64 { return 1 }
	}
	cfg = cfg.WithDefaults()
	pace := newPacer(cfg, d.Share, time.Now)
	waiting := newBacklog(cfg, d.Lag, time.Now, d.Log)
	return &Consumer{
		cfg: cfg, pace: pace, backlog: waiting, ledger: d.Ledger, stock: d.Stock, tell: d.Announcer, dead: d.DeadLetters, numbers: d.Numbers,
		metrics: newMetrics(d.Metrics, d.Lag, pace.rateNow, waiting.report), log: d.Log, stop: d.Stop, step: d.Step, genuine: d.Genuine,
	}
}

// Handle finishes a batch of one partition. It returns nil only when every delivery is decided, settled and told, or
// parked; failures are retried whole, in place, until the consumer stops (S20, FS-046).
func (c *Consumer) Handle(ctx context.Context, batch []sale.Delivery) (err error) {
	pending := make([]sale.Pending, 0, len(batch))
	for _, d := range batch {
		if d.Malformed == nil && !c.genuine(d.Token, d.UserID) {
			d.Malformed = errors.New("the request token was not issued to this user")
		}
		if d.Malformed == nil {
			pending = append(pending, d.Pending)
			continue
		}
		if err := c.park(ctx, d, "malformed: "+d.Malformed.Error()); err != nil {
			return err
		}
	}
	if len(pending) == 0 {
		return nil
	}
	if err := c.hold(ctx, len(pending)); err != nil {
		return err
	}
	end := c.backlog.begin(len(pending)) // without the pace, which is no slowness
	defer func() { end(err == nil) }()
	c.step("fetched")
	decisions, err := c.decide(ctx, pending, batch)
	if err != nil {
		return err
	}
	c.step("decided")
	if err := c.settle(ctx, decisions); err != nil {
		return err
	}
	c.step("settled")
	if err := c.announce(ctx, decisions); err != nil {
		return err
	}
	c.step("announced")
	return nil
}

// hold waits for the pace, or until the consumer stops.
func (c *Consumer) hold(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.pace.wait(ctx, n) }()
	select {
	case err := <-done:
		return err
	case <-c.stop:
		return errors.New("pace: stopping")
	}
}

// decide commits the batch. One that fails for no known reason is split, so that one bad message costs only itself.
func (c *Consumer) decide(ctx context.Context, pending []sale.Pending, batch []sale.Delivery) ([]sale.Decision, error) {
	var decisions []sale.Decision
	attempts := 0
	err := c.retry(ctx, "commit", func() error {
		for i := range pending {
			number, err := c.numbers.Next(pending[i].UserID)
			if err != nil {
				return err
			}
			pending[i].OrderNo = number
		}
		start := time.Now()
		c.pace.begin()
		ds, err := c.ledger.Commit(ctx, pending)
		c.pace.end(len(ds))
		if err == nil {
			decisions = ds
			c.metrics.committed(ds, time.Since(start))
			return nil
		}
		if errors.Is(err, sale.ErrTransient) {
			return err
		}
		if attempts++; attempts >= c.cfg.MaxAttempts {
			return backoff.Permanent(err)
		}
		return err
	})
	switch {
	case err == nil:
		return decisions, nil
	case attempts < c.cfg.MaxAttempts:
		return nil, err
	case len(pending) == 1 && pending[0].Relays >= c.cfg.MaxRelays:
		return c.giveUp(ctx, pending[0], err)
	case len(pending) == 1:
		return nil, c.park(ctx, deliveryOf(batch, pending[0]), "commit: "+err.Error())
	}
	for i := range pending {
		ds, err := c.decide(ctx, pending[i:i+1], batch)
		if err != nil {
			return nil, err
		}
		decisions = append(decisions, ds...)
	}
	return decisions, nil
}

// giveUp refuses a message that has failed after every relay: its user gets an answer and its unit goes back (S11, R18).
func (c *Consumer) giveUp(ctx context.Context, p sale.Pending, cause error) ([]sale.Decision, error) {
	var d sale.Decision
	err := c.retry(ctx, "refuse", func() (err error) {
		d, err = c.ledger.Refuse(ctx, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.log.Error("consumer: gave up a reservation after its last relay", "token", p.Token, "relays", p.Relays, "err", cause)
	return []sale.Decision{d}, nil
}

func deliveryOf(batch []sale.Delivery, p sale.Pending) sale.Delivery {
	for _, d := range batch {
		if d.Offset == p.Offset && d.Partition == p.Partition {
			return d
		}
	}
	panic("BUG: a pending message is not in its batch")
}

// settle moves the reservations in Redis, sale by sale.
func (c *Consumer) settle(ctx context.Context, decisions []sale.Decision) error {
	for activityID, ds := range byActivity(decisions) {
		err := c.retry(ctx, "settle", func() error {
			cctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
			defer cancel()
			found, err := c.stock.Settle(cctx, activityID, ds)
			if err != nil {
				return err
			}
			for i, s := range found {
				if s == sale.SettleUnknown {
					c.log.Warn("consumer: redis did not know a reservation", "activity", activityID, "token", ds[i].Token)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func byActivity(decisions []sale.Decision) map[string][]sale.Decision {
	out := map[string][]sale.Decision{}
	for _, d := range decisions {
		out[d.ActivityID] = append(out[d.ActivityID], d)
	}
	return out
}

// announce tells every user of the batch, decided now or before (R2).
func (c *Consumer) announce(ctx context.Context, decisions []sale.Decision) error {
	rs := make([]sale.UserResult, len(decisions))
	for i := range decisions {
		rs[i] = sale.UserResult{UserID: decisions[i].UserID, Result: decisions[i].Result()}
	}
	return c.retry(ctx, "announce", func() error {
		cctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
		defer cancel()
		return c.tell.Results(cctx, rs)
	})
}

// park puts a delivery aside and counts it.
func (c *Consumer) park(ctx context.Context, d sale.Delivery, reason string) error {
	err := c.retry(ctx, "park", func() error { return c.dead.Park(ctx, d, reason) })
	if err != nil {
		return err
	}
	kind := "commit"
	if d.Malformed != nil {
		kind = "malformed"
	}
	c.metrics.dead.WithLabelValues(kind).Inc()
	c.log.Error("consumer: parked a message", "partition", d.Partition, "offset", d.Offset, "token", d.Token, "reason", reason)
	return nil
}

// retry runs do until it succeeds, fails for good, or the consumer stops.
func (c *Consumer) retry(ctx context.Context, what string, do func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = c.cfg.RetryMin, c.cfg.RetryMax
	for {
		err := do()
		if err == nil {
			return nil
		}
		var permanent *backoff.PermanentError
		if errors.As(err, &permanent) {
			return permanent.Unwrap()
		}
		c.log.Warn("consumer: will try again", "step", what, "err", err)
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s: %w", what, err)
		case <-c.stop:
			timer.Stop()
			return fmt.Errorf("%s, stopping: %w", what, err)
		}
	}
}
