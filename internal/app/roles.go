package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/consumer"
	"seckill/docs"
	"seckill/gateway"
	"seckill/internal/auth"
	"seckill/internal/ledger"
	"seckill/internal/queue"
	"seckill/internal/sale"
	"seckill/internal/telemetry"
	"seckill/reconciler"
)

// newScriptTimer observes every Redis script call.
func newScriptTimer(reg prometheus.Registerer) func(string, time.Duration, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "seckill_redis_script_seconds", Help: "Time of Redis script calls, by script.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 15),
	}, []string{"script"})
	reg.MustRegister(seconds)
	return func(script string, took time.Duration, _ error) {
		seconds.WithLabelValues(script).Observe(took.Seconds())
	}
}

// verifier returns the verifier of user tokens.
func (a *App) verifier(ctx context.Context, remembered int) (*auth.Verifier, error) {
	o := auth.JWTOptions{
		Secret: []byte(a.cfg.Auth.JWTSecret), JWKSURL: a.cfg.Auth.JWKSURL, Issuer: a.cfg.Auth.Issuer, Audience: a.cfg.Auth.Audience,
		CacheSize: remembered,
	}
	if a.cfg.Auth.JWTPublicKeyFile != "" {
		pem, err := os.ReadFile(a.cfg.Auth.JWTPublicKeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: auth.jwtPublicKeyFile: %w", ErrUsage, err)
		}
		o.PublicKeyPEM = pem
	}
	v, err := auth.NewVerifier(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return v, nil
}

// keysContext lives as long as the process: a verifier refreshes its keys until it ends.
func (a *App) keysContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	a.onStop("key refresh", func() error { cancel(); return nil })
	return ctx
}

// userOf adapts the verifier to the gateway.
type userOf struct{ *auth.Verifier }

// UserOf returns the user of a good JWT.
func (u userOf) UserOf(jwt string) (int64, error) {
	id, err := u.Verify(jwt)
	return id.UserID, err
}

// sessions adapts the verifier to the pusher, which ends a socket when its token expires.
type sessions struct{ *auth.Verifier }

// UserOf returns the user of a good JWT and when it expires.
func (s sessions) UserOf(jwt string) (int64, time.Time, error) {
	id, err := s.Verify(jwt)
	return id.UserID, id.ExpiresAt, err
}

// ownOrigins are the origins of a page served at this address.
func ownOrigins(addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil
	}
	origins := []string{"http://" + addr, "https://" + addr}
	if ip := net.ParseIP(host); ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		origins = append(origins, "http://localhost:"+port, "http://127.0.0.1:"+port)
	}
	return origins
}

// requestTokens adapts request tokens to the gateway.
type requestTokens struct{ *auth.RequestTokens }

// Verify returns the sale of a genuine token, and whether its life is over.
func (r requestTokens) Verify(token string, userID int64) (string, bool, error) {
	activityID, err := r.RequestTokens.Verify(token, userID)
	if errors.Is(err, auth.ErrExpiredToken) {
		return activityID, true, nil
	}
	return activityID, false, err
}

// ActivityOf returns the sale a token claims to be for, unchecked.
func (r requestTokens) ActivityOf(token string) (string, error) { return auth.ActivityOf(token) }

// deadLetters parks a message where operators find it, and in the dead letter topic.
type deadLetters struct {
	ledger   *ledger.Ledger
	producer *queue.Producer
	topic    string
}

// Park does both; a repeat is kept once in the database.
func (d deadLetters) Park(ctx context.Context, m sale.Delivery, reason string) error {
	kind, _, _ := strings.Cut(reason, ":")
	letter := sale.DeadLetter{Topic: d.topic, Partition: m.Partition, Offset: m.Offset, Value: m.Raw, Reason: kind, Detail: reason}
	if m.UserID > 0 {
		letter.Key = strconv.AppendInt(nil, m.UserID, 10)
	}
	if err := d.ledger.SaveDeadLetter(ctx, letter); err != nil {
		return err
	}
	return d.producer.Park(ctx, m, reason)
}

func (a *App) startGateway(_ context.Context) error {
	users, err := a.verifier(a.keysContext(), 0)
	if err != nil {
		return err
	}
	tokens, err := a.requestTokenMaker()
	if err != nil {
		return err
	}
	d := gateway.Deps{
		Stock: a.stock, Queue: a.producer, Ledger: a.ledger, Announcer: a.publisher, Users: userOf{users},
		Tokens: requestTokens{tokens}, Checks: plainChecks(a.checks()), Metrics: a.registry, OpenAPI: docs.OpenAPI, Log: a.log,
		Step: failpoint(RoleGateway), Audit: reconciler.NewAuditor(a.stock, a.ledger).Audit,
	}
	if a.cfg.Auth.DemoLogin {
		if a.cfg.Auth.JWTSecret == "" {
			return fmt.Errorf("%w: auth.demoLogin needs auth.jwtSecret", ErrUsage)
		}
		d.DemoLogin = func(user int64, expires time.Time) (string, error) {
			return auth.SignHS256([]byte(a.cfg.Auth.JWTSecret), user, a.cfg.Auth.Issuer, a.cfg.Auth.Audience, expires)
		}
	}
	if a.cfg.Auth.AdminToken != "" {
		d.Admin = func(token string) bool { return auth.Equal(token, a.cfg.Auth.AdminToken) }
	}
	if a.cfg.Auth.PaymentSecret != "" {
		hooks, err := auth.NewWebhooks([]byte(a.cfg.Auth.PaymentSecret))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		d.Payments = hooks.Verify
	}
	cfg := a.cfg.Gateway.Config
	if cfg.PushURL == "" {
		if addr := a.Addr(RolePusher); addr != "" {
			cfg.PushURL = "ws://" + addr
		}
	}
	g, err := gateway.New(cfg, d)
	if err != nil {
		return err
	}
	ln := a.listeners[RoleGateway]
	a.background("gateway", func(ctx context.Context) error { return g.Run(ctx, ln, a.cfg.StopGrace) })
	return nil
}

// plainChecks drops the name of the function type, which roles do not know.
func plainChecks(in map[string]telemetry.Check) map[string]func(context.Context) error {
	out := make(map[string]func(context.Context) error, len(in))
	for name, check := range in {
		out[name] = check
	}
	return out
}

// checkClock refuses to start with a clock that differs from the database's: order numbers are made of this clock, and
// one that was set back across a restart would make numbers that were made before (S15, FS-096).
func (a *App) checkClock(ctx context.Context) error {
	before := time.Now()
	database, err := a.ledger.Clock(ctx)
	if err != nil {
		return err
	}
	skew := before.Add(time.Since(before) / 2).Sub(database)
	if skew.Abs() > a.cfg.Consumer.MaxClockSkew {
		return fmt.Errorf("the clock of this machine differs from the database's by %v, more than consumer.maxClockSkew %v", skew.Round(time.Millisecond), a.cfg.Consumer.MaxClockSkew)
	}
	return nil
}

func (a *App) startConsumer(ctx context.Context) error {
	if err := a.checkClock(ctx); err != nil {
		return err
	}
	tokens, err := a.requestTokenMaker()
	if err != nil {
		return err
	}
	genuine := func(token string, userID int64) bool {
		_, err := tokens.Verify(token, userID)
		return err == nil || errors.Is(err, auth.ErrExpiredToken)
	}
	numbers := consumer.NewNumbers(a.ledger, a.cfg.Node, a.cfg.Consumer.NodeLeaseTTL, time.Now, a.log)
	if err := numbers.Acquire(ctx); err != nil {
		return err
	}
	a.background("node lease", func(ctx context.Context) error { numbers.Keep(ctx); return nil })
	group := queue.NewGroup(a.cfg.Kafka)
	stop := make(chan struct{})
	c := consumer.New(a.cfg.Consumer.Config, consumer.Deps{
		Ledger: a.ledger, Stock: a.stock, Announcer: a.publisher, DeadLetters: deadLetters{a.ledger, a.producer, a.cfg.Kafka.OrdersTopic}, Numbers: numbers,
		Metrics: a.registry, Lag: group.Lag, Share: func() float64 { return float64(len(group.Lag())) / float64(a.cfg.Kafka.PartitionCount()) },
		Log: a.log, Stop: stop,
		Step: failpoint(RoleConsumer), Genuine: genuine,
	})
	a.background("consumer", func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { close(stop) })
		group.Run(ctx, c.Handle)
		return nil
	})
	a.health(RoleConsumer)
	return nil
}

// requestTokenMaker makes and checks request tokens, with the secret that all gateways and reconcilers share.
func (a *App) requestTokenMaker() (*auth.RequestTokens, error) {
	tokens, err := auth.NewRequestTokens([]byte(a.cfg.Auth.RequestTokenSecret), a.cfg.Auth.RequestTokenLife, time.Now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if before := a.cfg.Auth.RequestTokenSecretBefore; before != "" {
		tokens.AlsoAccept([]byte(before))
	}
	return tokens, nil
}

func (a *App) startReconciler() error {
	tokens, err := a.requestTokenMaker()
	if err != nil {
		return err
	}
	r := reconciler.New(a.cfg.Reconciler.Config, reconciler.Deps{
		Stock: a.stock, Ledger: a.ledger, Queue: a.producer, Offsets: a.topics, Announcer: a.publisher,
		PromotedToken: tokens.Promoted, Audit: reconciler.NewAuditor(a.stock, a.ledger).Audit, Retention: a.cfg.Retention, Holder: a.cfg.Node, Metrics: a.registry, Log: a.log,
	})
	a.background("reconciler", r.Run)
	a.health(RoleReconciler)
	return nil
}

// health serves health and metrics on a role's own port.
func (a *App) health(role string) {
	ln := a.listeners[role]
	a.background(role+" health", func(ctx context.Context) error { return telemetry.Health(ctx, ln, a.checks(), a.registry) })
}
