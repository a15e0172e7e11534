package app

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"seckill/internal/embedded"
	"seckill/internal/ledger"
	"seckill/internal/push"
	"seckill/internal/queue"
	"seckill/internal/sale"
	"seckill/internal/stock"
	"seckill/internal/telemetry"
)

// startEmbedded starts the stand-ins, and chooses secrets where none are given.
func (a *App) startEmbedded() error {
	b, err := embedded.Start(a.cfg.Data)
	if err != nil {
		return err
	}
	a.embedded = b
	a.onStop("embedded back ends", b.Close)
	a.cfg.Redis.Addrs = []string{b.RedisAddr}
	a.cfg.Kafka.Brokers = b.KafkaBrokers
	a.cfg.Database.Driver, a.cfg.Database.DSN = ledger.DriverSQLite, b.SQLitePath
	a.cfg.Auth.DemoLogin = true
	return a.chooseSecrets()
}

// keptSecrets are the secrets that the embedded start has chosen, in its data folder: orders and messages that outlive a restart
// are of no use without the secret that their tokens are signed with.
type keptSecrets struct {
	JWTSecret          string `json:"jwtSecret"`
	RequestTokenSecret string `json:"requestTokenSecret"`
	AdminToken         string `json:"adminToken"`
}

// chooseSecrets fills in what is not configured, the same as the last time where there is a data folder.
func (a *App) chooseSecrets() error {
	kept := keptSecrets{newSecret(), newSecret(), newSecret()}
	if a.cfg.Data != "" {
		path := filepath.Join(a.cfg.Data, "secrets.json")
		data, err := os.ReadFile(path)
		switch {
		case err == nil:
			if err := json.Unmarshal(data, &kept); err != nil {
				return fmt.Errorf("read %s: %w", path, err)
			}
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("read kept secrets: %w", err)
		default:
			data, err := json.Marshal(kept)
			if err != nil {
				return fmt.Errorf("keep secrets: %w", err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return fmt.Errorf("keep secrets: %w", err)
			}
		}
	}
	auth := &a.cfg.Auth
	for _, s := range []struct {
		configured *string
		kept       string
	}{{&auth.JWTSecret, kept.JWTSecret}, {&auth.RequestTokenSecret, kept.RequestTokenSecret}, {&auth.AdminToken, kept.AdminToken}} {
		if *s.configured == "" {
			*s.configured = s.kept
		}
	}
	return nil
}

func newSecret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// connect opens the back ends and waits until they answer.
func (a *App) connect(ctx context.Context) error {
	a.rdb = newRedis(a.cfg.Redis)
	a.onStop("redis client", a.rdb.Close)
	if err := await(ctx, "redis", func(ctx context.Context) error { return a.rdb.Ping(ctx).Err() }); err != nil {
		return err
	}
	a.stock = stock.New(a.rdb, stock.Options{
		Retention: a.cfg.Retention, UserPerSecond: a.cfg.Limits.UserPerSecond, SalePerSecond: a.cfg.Limits.SalePerSecond,
		SystemPerSecond: a.cfg.Limits.SystemPerSecond, CallTimeout: a.cfg.Redis.CallTimeout,
		OnCall: newScriptTimer(a.registry), OnRewind: a.noticeRewind,
	})
	a.publisher = push.NewPublisher(a.rdb, a.cfg.Pusher.Shards)
	if err := a.openLedger(ctx); err != nil {
		return err
	}
	if len(a.cfg.Kafka.Brokers) == 0 {
		return nil // the pusher alone needs no queue
	}
	a.cfg.Kafka.Log = a.log
	a.topics = queue.NewTopics(a.cfg.Kafka)
	if a.cfg.Kafka.Replication < 3 && a.embedded == nil {
		a.log.Warn("kafka.replication is below 3: an acknowledged order may be lost with one broker")
	}
	if err := await(ctx, "kafka", a.topics.Ensure); err != nil {
		return err
	}
	a.producer = queue.NewProducer(a.cfg.Kafka)
	a.onStop("producer", a.producer.Close)
	return nil
}

// openLedger opens the database. The embedded one is migrated here; a shared one must have been, by `seckill migrate`.
func (a *App) openLedger(ctx context.Context) error {
	l, err := OpenLedger(ctx, a.cfg, a.roles)
	if err != nil {
		return err
	}
	a.ledger = l
	a.onStop("database", l.Close)
	if a.embedded != nil {
		return l.Migrate(ctx)
	}
	return l.CheckSchema(ctx)
}

// OpenLedger opens the database of a configuration and waits until it answers.
func OpenLedger(ctx context.Context, cfg Config, roles []string) (*ledger.Ledger, error) {
	role := "all"
	if len(roles) == 1 {
		role = roles[0]
	}
	var l *ledger.Ledger
	err := await(ctx, "database", func(ctx context.Context) (err error) {
		l, err = ledger.Open(ctx, ledger.Options{
			Driver: cfg.Database.Driver, DSN: cfg.Database.DSN, ReplicaDSN: cfg.Database.ReplicaDSN,
			MaxOpenConns: cfg.Database.MaxOpenConns, TxTimeout: cfg.Database.TxTimeout, Node: cfg.Node, Role: role,
			TraceID: sale.TraceOf,
		})
		return err
	})
	return l, err
}

func newRedis(c RedisConfig) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: c.Addrs, IsClusterMode: c.Cluster || len(c.Addrs) > 1, Username: c.Username, Password: c.Password, DB: c.DB,
		PoolSize: c.PoolSize, ContextTimeoutEnabled: true, DisableIdentity: true,
		// A call whose answer is lost is sent again by the client itself. That is harmless: every script leaves after two runs
		// what it leaves after one (FS-013, TestEveryScriptMayRunTwice in internal/stock). CallTimeout bounds it all.
		MaxRetries: 3, MaxRedirects: 3, DialTimeout: 2 * time.Second, ReadTimeout: c.CallTimeout, WriteTimeout: c.CallTimeout,
		PoolTimeout:              c.CallTimeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if c.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return redis.NewUniversalClient(o)
}

// await tries until a back end answers or the start's time is over.
func await(ctx context.Context, what string, try func(ctx context.Context) error) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		tctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := try(tctx)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", what, err)
		case <-time.After(wait):
		}
	}
}

// checks are what readyz asks of the back ends.
func (a *App) checks() map[string]telemetry.Check {
	c := map[string]telemetry.Check{
		"redis":    func(ctx context.Context) error { return a.rdb.Ping(ctx).Err() },
		"database": a.ledger.Ping,
	}
	if a.topics != nil {
		c["kafka"] = a.topics.Ping
	}
	return c
}
