package pusher

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

// Config bounds the pusher. Zero values mean the defaults stated here.
type Config struct {
	Shards         int      // of the hub; the same number for all roles of a deployment; default 16
	Origins        []string // pages that may connect, as scheme://host[:port]; default: the host the pusher is reached by
	TrustedProxies []string // addresses or CIDRs whose X-Forwarded-For is believed; default none

	HandshakeTimeout time.Duration // for the headers to come in and the upgrade to go out; default 5 s
	IdleTimeout      time.Duration // of a keep-alive connection without a socket; default 10 s
	MaxHeaderBytes   int           // of a request; default 16 KiB

	PingEvery        time.Duration // default 25 s
	PeerTimeout      time.Duration // a peer that was silent for so long is gone; more than twice PingEvery; default 55 s
	WriteTimeout     time.Duration // for one frame to go out; default 10 s
	CloseWait        time.Duration // for the peer's answer to a close frame; default 1 s
	FrameTimeout     time.Duration // for an inbound message to come in whole; default 5 s
	MaxFrameBytes    int           // of an inbound message, compressed and not; default 1 KiB
	Compression      bool          // agreed on with clients that ask for it: fewer bytes for processor time; default off
	InboundPerSecond int           // inbound frames of one socket, pings and pongs included; default 5
	InboundBurst     int           // of those at once; default 20

	MaxSockets           int // in this process; default, and at most, what the descriptor limit leaves room for
	MaxSocketsPerUser    int // default 10
	MaxSocketsPerAddress int // of one IPv4 address or IPv6 /64; default 1,000
	MaxRefusals          int // sockets upgraded only to be closed with a code, at once; default 256
	QueueMessages        int // waiting for one socket; default 64
	QueueBytes           int // waiting for one socket; default 64 KiB
	SendBufferBytes      int // kernel's send buffer of a socket, so that a slow one is noticed; default 64 KiB

	SubscriberQueue      int           // messages of Redis waiting for the hub; more are dropped, and what they told is read; default 8,192
	SubscribeWait        time.Duration // a new socket waits so long for its shard's subscription; default 3 s
	UnsubscribeAfter     time.Duration // a shard or sale without a client stays subscribed so long; default 5 s
	StoreTimeout         time.Duration // of one read from Redis or the database; default 2 s
	Loops                int           // goroutines that read and write all sockets, at most Shards; default GOMAXPROCS less one, so that what reads Redis is not held up
	CheckEvery           time.Duration // each user's results are read again, in case one was not told; default 30 s
	Readers              int           // reads of state at once; default 4
	ReadBatch            int           // users in one read; default 256
	LedgerReadsPerSecond int           // database reads for users whom Redis does not know; default 200
	RefusalsEvery        time.Duration // between two looks for refusals whose push was missed; default 2 s
	RefusalsFor          time.Duration // a refusal is told on connect for so long after it; default 10 min
	MaxRefusalsRead      int           // refusals in one such look; default 10,000
	CatalogRefresh       time.Duration // of state and stock from Redis; default 1 s
	CatalogReload        time.Duration // of the list of activities from the database; default 2 s
	ResultsFor           time.Duration // results of a sale are told so long after its last pay deadline; default 24 h
	MaxSales             int           // whose results are read for a user, the latest ones; default 200

	DrainWindow time.Duration // on stop, sockets are closed over this time; default 2 s
}

// WithDefaults fills what is not set.
func (c Config) WithDefaults() Config {
	def(&c.Shards, 16)
	def(&c.HandshakeTimeout, 5*time.Second)
	def(&c.IdleTimeout, 10*time.Second)
	def(&c.MaxHeaderBytes, 16<<10)
	def(&c.PingEvery, 25*time.Second)
	def(&c.PeerTimeout, 2*c.PingEvery+c.PingEvery/5)
	def(&c.WriteTimeout, 10*time.Second)
	def(&c.CloseWait, time.Second)
	def(&c.FrameTimeout, 5*time.Second)
	def(&c.MaxFrameBytes, 1<<10)
	def(&c.InboundPerSecond, 5)
	def(&c.InboundBurst, 20)
	def(&c.MaxSocketsPerUser, 10)
	def(&c.MaxSocketsPerAddress, 1000)
	def(&c.MaxRefusals, 256)
	def(&c.QueueMessages, 64)
	def(&c.QueueBytes, 64<<10)
	def(&c.SendBufferBytes, 64<<10)
	def(&c.SubscriberQueue, 8192)
	def(&c.SubscribeWait, 3*time.Second)
	def(&c.UnsubscribeAfter, 5*time.Second)
	def(&c.StoreTimeout, 2*time.Second)
	def(&c.Loops, max(1, runtime.GOMAXPROCS(0)-1))
	def(&c.CheckEvery, 30*time.Second)
	def(&c.Readers, 4)
	def(&c.ReadBatch, 256)
	def(&c.LedgerReadsPerSecond, 200)
	def(&c.RefusalsEvery, 2*time.Second)
	def(&c.RefusalsFor, 10*time.Minute)
	def(&c.MaxRefusalsRead, 10_000)
	def(&c.CatalogRefresh, time.Second)
	def(&c.CatalogReload, 2*time.Second)
	def(&c.ResultsFor, sale.DefaultRetention)
	def(&c.MaxSales, 200)
	def(&c.DrainWindow, 2*time.Second)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Check refuses bounds that contradict one another, and origins and proxies that cannot be read. That none is negative is
// for those who load the configuration.
func (c *Config) Check() error {
	if c.PeerTimeout < 2*c.PingEvery {
		return errors.New("pusher.peerTimeout: must be at least twice pusher.pingEvery, or a lost ping ends a socket")
	}
	_, originErr := newOrigins(c.Origins)
	_, proxyErr := newAddresses(c.MaxSocketsPerAddress, c.TrustedProxies)
	return errors.Join(originErr, proxyErr)
}

// Subscriber listens to the channels of hub shards and sales. It calls a Handler, after every new subscription too.
type Subscriber interface {
	Subscribe(ctx context.Context, shard int) error
	Unsubscribe(ctx context.Context, shard int) error
	SubscribeLive(ctx context.Context, activityID string) error
	UnsubscribeLive(ctx context.Context, activityID string) error
	// Subscribed reports whether the server has confirmed a shard's channel and the connection still stands.
	Subscribed(shard int) bool
	Close() error
}

// States reads what Redis holds.
type States interface {
	ResultsOfUsers(ctx context.Context, activityIDs []string, userIDs []int64) ([]sale.UserResult, error)
	Live(ctx context.Context, activityIDs []string) (map[string]sale.Live, error)
}

// Ledger reads the database.
type Ledger interface {
	Activity(ctx context.Context, id string) (*sale.Activity, error)
	Activities(ctx context.Context) ([]*sale.Activity, error)
	DecisionsOfUser(ctx context.Context, userID int64, activityIDs []string) ([]sale.Decision, error)
	RecentRefusals(ctx context.Context, activityIDs []string, since time.Time, limit int) ([]sale.Decision, error)
}

// Users verifies who is asking, and until when. The error of a bad token is safe to show.
type Users interface {
	UserOf(jwt string) (userID int64, expires time.Time, err error)
}

// Deps are the parts a pusher is built from. All are required, but for those that say otherwise.
type Deps struct {
	Subscriber func(*Handler) Subscriber // makes the subscriber that calls this handler; Run closes it
	States     States
	Ledger     Ledger
	Users      Users
	Checks     map[string]func(context.Context) error // for readyz, beside its own; may be nil
	Metrics    *prometheus.Registry
	Jitter     func() float64   // numbers from 0 to 1; default math/rand/v2
	Now        func() time.Time // default time.Now
	Log        *slog.Logger     // default slog.Default
}
