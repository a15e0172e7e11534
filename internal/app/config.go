package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"seckill/consumer"
	"seckill/gateway"
	"seckill/internal/queue"
	"seckill/pusher"
	"seckill/reconciler"
)

// Config is the whole configuration. Each section's fields are keys of the YAML file, see package config.
type Config struct {
	Log        LogConfig
	Node       string        // unique name of this process; default host name and process id
	Data       string        // folder of the embedded back ends; empty: a temporary one
	Retention  time.Duration // of Redis keys after the last possible payment
	StopGrace  time.Duration // to finish what is in flight at the end
	StartWait  time.Duration // for back ends to answer at the start
	Gateway    GatewayConfig
	Pusher     PusherConfig
	Consumer   ConsumerConfig
	Reconciler ReconcilerConfig
	Redis      RedisConfig
	Kafka      queue.Options
	Database   DatabaseConfig
	Limits     LimitsConfig
	Auth       AuthConfig
	Demo       DemoConfig
}

// LogConfig says what is logged to standard error, and how.
type LogConfig struct {
	Level  string // debug, info, warn, error
	Format string // text, json
}

// GatewayConfig is the gateway's address and bounds.
type GatewayConfig struct {
	Addr string
	gateway.Config
}

// PusherConfig is the pusher's address, its shards, and bounds. Shards is the same in every process of any role.
type PusherConfig struct {
	Addr string
	pusher.Config
}

// ConsumerConfig is the consumer's health address and bounds.
type ConsumerConfig struct {
	Addr         string
	NodeLeaseTTL time.Duration // of the snowflake node number
	MaxClockSkew time.Duration // between this machine and the database
	consumer.Config
}

// ReconcilerConfig is the reconciler's health address and bounds.
type ReconcilerConfig struct {
	Addr string
	reconciler.Config
}

// RedisConfig says where Redis is.
type RedisConfig struct {
	Addrs    []string // host:port; several mean a cluster
	Cluster  bool     // one address, yet a cluster
	Username string
	Password string
	DB       int
	TLS      bool
	PoolSize int
	// CallTimeout bounds one call with all retries.
	CallTimeout time.Duration
}

// DatabaseConfig says where the database is.
type DatabaseConfig struct {
	Driver       string // mysql, sqlite
	DSN          string // go-sql-driver form, or the path of the SQLite file
	ReplicaDSN   string
	MaxOpenConns int
	TxTimeout    time.Duration
}

// LimitsConfig are the windows shared by all gateways (S4, S5).
type LimitsConfig struct {
	UserPerSecond   int
	SalePerSecond   int
	SystemPerSecond int
}

// AuthConfig says which tokens are good.
type AuthConfig struct {
	JWTSecret                string // HS256
	JWTPublicKeyFile         string // PEM; RS256 or ES256
	JWKSURL                  string
	Issuer                   string
	Audience                 string
	RequestTokenSecret       string // the same in every gateway, consumer and reconciler
	RequestTokenSecretBefore string // the secret before it: its tokens stay good, so that a change leaves nobody without an answer
	RequestTokenLife         time.Duration
	AdminToken               string // empty: no admin API
	PaymentSecret            string // of the payment service's callbacks; empty: none are taken
	DemoLogin                bool   // anyone may sign in as anyone, and pay: for trying out only
}

// DemoConfig is about the sale that the embedded start opens.
type DemoConfig struct {
	Off      bool          // no demo sale
	OpensIn  time.Duration // after the start
	LastsFor time.Duration
}

// Defaults returns the configuration that nothing has changed.
func Defaults() Config {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return Config{
		Log:       LogConfig{Level: "info", Format: "text"},
		Node:      fmt.Sprintf("%s-%d", host, os.Getpid()),
		Retention: 24 * time.Hour,
		StopGrace: 10 * time.Second,
		StartWait: 60 * time.Second,
		Gateway:   GatewayConfig{Addr: "127.0.0.1:8080", Config: gateway.Config{}.WithDefaults()},
		Pusher:    PusherConfig{Addr: "127.0.0.1:8081", Config: pusher.Config{}.WithDefaults()},
		Consumer:  ConsumerConfig{Addr: "127.0.0.1:8082", NodeLeaseTTL: 15 * time.Second, MaxClockSkew: 2 * time.Second, Config: consumer.Config{FindRate: true}.WithDefaults()},
		Reconciler: ReconcilerConfig{
			Addr: "127.0.0.1:8083", Config: reconciler.Config{}.WithDefaults(),
		},
		Redis:    RedisConfig{PoolSize: 32, CallTimeout: 2 * time.Second},
		Kafka:    queue.Options{}.WithDefaults(),
		Database: DatabaseConfig{Driver: "mysql", MaxOpenConns: 16, TxTimeout: 5 * time.Second},
		Limits:   LimitsConfig{UserPerSecond: 3, SalePerSecond: 50_000, SystemPerSecond: 100_000},
		Auth:     AuthConfig{RequestTokenLife: 10 * time.Minute},
		Demo:     DemoConfig{OpensIn: 8 * time.Second, LastsFor: time.Hour},
	}
}

// Roles that a process may play.
const (
	RoleGateway    = "gateway"
	RoleConsumer   = "consumer"
	RolePusher     = "pusher"
	RoleReconciler = "reconciler"
)

// AllRoles is what `seckill all` plays, in the order they start.
func AllRoles() []string { return []string{RoleConsumer, RoleReconciler, RolePusher, RoleGateway} }

// embedded reports whether no back end is named, so that stand-ins are started inside the process.
func (c *Config) embedded() bool {
	return len(c.Redis.Addrs) == 0 && len(c.Kafka.Brokers) == 0 && c.Database.DSN == ""
}

// validate checks what cannot be checked key by key.
func (c *Config) validate(roles []string) error {
	if err := c.Pusher.Check(); err != nil {
		return err
	}
	if c.embedded() {
		if len(roles) != len(AllRoles()) {
			return errors.New("redis.addrs, kafka.brokers and database.dsn must be set: one role alone cannot use embedded back ends")
		}
		return nil
	}
	var missing []string
	for key, unset := range map[string]bool{
		"redis.addrs":             len(c.Redis.Addrs) == 0,
		"database.dsn":            c.Database.DSN == "",
		"kafka.brokers":           len(c.Kafka.Brokers) == 0 && !slices.Equal(roles, []string{RolePusher}),
		"auth.requestTokenSecret": c.Auth.RequestTokenSecret == "" && !slices.Equal(roles, []string{RolePusher}),
	} {
		if unset {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		return fmt.Errorf("not set: %v (set all of redis.addrs, kafka.brokers and database.dsn, or none for the embedded default)", missing)
	}
	if c.Pusher.Shards < 1 || c.Pusher.Shards > 4096 {
		return errors.New("pusher.shards: must be between 1 and 4096")
	}
	return nil
}
