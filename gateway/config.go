package gateway

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

// Config bounds the gateway. Zero values mean the defaults stated here.
type Config struct {
	MaxBodyBytes      int           // of a request; default 8 KiB
	MaxHeaderBytes    int           // of a request, cookies included; default 16 KiB
	ReadTimeout       time.Duration // for a whole request to come in; default 5 s
	WriteTimeout      time.Duration // for an answer to go out; default 10 s
	IdleTimeout       time.Duration // of a keep-alive connection; default 60 s
	MaxConnections    int           // served at once; default 18,000
	ReserveBatch      int           // order requests in one script call; default 256
	ReserveQueue      int           // order requests of one sale that may wait; more are answered overloaded; default 8192
	PublishesInFlight int           // publish calls of one sale at once; default 64
	AdmitTimeout      time.Duration // until an order request is answered pending; default 4 s
	StoreTimeout      time.Duration // of one Redis or database read; default 2 s
	PollAfter         time.Duration // told to clients; +-20 %; longer with a backlog, at most ten times; default 2 s
	PollBacklog       int           // undecided reservations of a sale that double PollAfter; default 5000
	MaxQueued         int           // undecided reservations of a sale; above, orders are answered overloaded; default 200,000
	CountRefresh      time.Duration // of the number of undecided reservations; default 1 s
	MaxWait           time.Duration // of a long poll; default 30 s
	MaxWaiters        int           // long polls at once; more are answered at once; default 2000
	CatalogRefresh    time.Duration // of state and stock from Redis; default 250 ms
	CatalogReload     time.Duration // of the list of activities from the database; default 2 s
	ReadsPerSecond    int           // for each user on this gateway; default 5
	SystemChunk       int           // permits fetched from the system-wide window at once; default 64
	AllowedOrigins    []string      // for CORS, beside the gateway's own
	DemoTokenLife     time.Duration // default 12 h
	PayURL            string        // shop's payment page, {orderNo} is replaced; used when demo login is off
	PushURL           string        // ws:// or wss:// address of the pushers, told to the page
	AuditTimeout      time.Duration // of an operator's audit; default 60 s
	WarmUpTimeout     time.Duration // the admin call waits this long for Redis; default 15 s
}

// WithDefaults fills what is not set.
func (c Config) WithDefaults() Config {
	def(&c.MaxBodyBytes, 8<<10)
	def(&c.MaxHeaderBytes, 16<<10)
	def(&c.ReadTimeout, 5*time.Second)
	def(&c.WriteTimeout, 10*time.Second)
	def(&c.IdleTimeout, 60*time.Second)
	def(&c.MaxConnections, 18_000)
	def(&c.ReserveBatch, 256)
	def(&c.ReserveQueue, 8192)
	def(&c.PublishesInFlight, 64)
	def(&c.AdmitTimeout, 4*time.Second)
	def(&c.StoreTimeout, 2*time.Second)
	def(&c.PollAfter, 2*time.Second)
	def(&c.PollBacklog, 5000)
	def(&c.MaxQueued, 200_000)
	def(&c.CountRefresh, time.Second)
	def(&c.MaxWait, 30*time.Second)
	def(&c.MaxWaiters, 2000)
	def(&c.CatalogRefresh, 250*time.Millisecond)
	def(&c.CatalogReload, 2*time.Second)
	def(&c.ReadsPerSecond, 5)
	def(&c.SystemChunk, 64)
	def(&c.DemoTokenLife, 12*time.Hour)
	def(&c.AuditTimeout, 60*time.Second)
	def(&c.WarmUpTimeout, 15*time.Second)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Stock is what the gateway asks of Redis.
type Stock interface {
	Reserve(ctx context.Context, activityID string, now time.Time, reqs []sale.ReserveRequest) ([]sale.ReserveReply, error)
	Limit(ctx context.Context, activityID string, userID int64, now time.Time) (allowed bool, retryAfter time.Duration, err error)
	SystemQuota(ctx context.Context, now time.Time, n int) (granted int, err error)
	Result(ctx context.Context, activityID, token string) (sale.UserResult, bool, error)
	Mark(ctx context.Context, activityID string, userID int64) (token string, ok bool, err error)
	Live(ctx context.Context, activityIDs []string) (map[string]sale.Live, error)
	ParticipantsOf(ctx context.Context, activityID string) ([]int64, error)
	TokenCounts(ctx context.Context, activityID string) (sale.TokenCounts, error)
	SetStatus(ctx context.Context, rs []sale.UserResult) ([]sale.Settlement, error)
	SetMeta(ctx context.Context, a *sale.Activity) error
	TakeBack(ctx context.Context, activityID, commodityID string, units int64) error
	SetUserList(ctx context.Context, activityID, list string, userID int64, on bool) error
	JoinWaitlist(ctx context.Context, activityID, commodityID string, ws []sale.Waiter) error
	LeaveWaitlist(ctx context.Context, activityID, commodityID string, userID int64) error
	WaitPosition(ctx context.Context, activityID, commodityID string, userID int64) (position int64, joined time.Time, err error)
}

// Queue is what the gateway asks of Kafka. An entry that is not nil means "uncertain".
type Queue interface {
	Publish(ctx context.Context, rs []sale.Reservation) []error
	Replay(ctx context.Context, key, value []byte) error
}

// Ledger is what the gateway asks of the database.
type Ledger interface {
	Activity(ctx context.Context, id string) (*sale.Activity, error)
	Activities(ctx context.Context) ([]*sale.Activity, error)
	CreateActivity(ctx context.Context, a *sale.Activity) error
	SetActivityState(ctx context.Context, id string, from []sale.State, to sale.State) error
	Reschedule(ctx context.Context, id string, startsAt, endsAt time.Time) error
	SetUserList(ctx context.Context, activityID, list string, userID int64, on bool) error
	AdminLog(ctx context.Context, who, what, activityID, detail string) error
	DecisionByToken(ctx context.Context, activityID string, userID int64, token string, minVersion int64) (*sale.Decision, error)
	DecisionOfUser(ctx context.Context, activityID string, userID int64) (*sale.Decision, error)
	OrdersOfUser(ctx context.Context, userID int64, limit int, cursor string) (orders []sale.Order, next string, err error)
	OrderByNo(ctx context.Context, orderNo string) (*sale.Order, error)
	Pay(ctx context.Context, orderNo string, userID int64, at time.Time, why string) (*sale.Order, bool, error)
	Cancel(ctx context.Context, orderNo string, userID int64) (*sale.Order, bool, error)
	MarkTold(ctx context.Context, token string, userID, version int64) error
	RecordPayment(ctx context.Context, p sale.Payment) (outcome sale.PaymentOutcome, order *sale.Order, changed bool, err error)
	RefundsDue(ctx context.Context, limit int) ([]sale.RecordedPayment, error)
	DeadLetters(ctx context.Context, state sale.DeadLetterState, after int64, limit int) ([]sale.DeadLetter, error)
	DeadLetter(ctx context.Context, id int64) (*sale.DeadLetter, error)
	MarkDeadLetter(ctx context.Context, id int64, to sale.DeadLetterState) error
	JoinWaitlist(ctx context.Context, activityID, commodityID string, userID int64) (joined time.Time, err error)
	LeaveWaitlist(ctx context.Context, activityID string, userID int64) ([]string, error)
	ChangeStock(ctx context.Context, activityID, commodityID string, delta int64) (total int64, err error)
	StoryOf(ctx context.Context, token string) ([]sale.Step, error)
}

// Announcer tells users of results.
type Announcer interface {
	Results(ctx context.Context, rs []sale.UserResult) error
	// Presences is who is connected to each pusher.
	Presences(ctx context.Context, now time.Time) ([]sale.Presence, error)
}

// Users verifies who is asking.
type Users interface {
	UserOf(jwt string) (int64, error)
}

// Tokens makes and checks request tokens.
type Tokens interface {
	Issue(userID int64, activityID string) (token string, expires time.Time)
	// Verify returns the sale of a genuine token; expired tells whether its life is over.
	Verify(token string, userID int64) (activityID string, expired bool, err error)
	// ActivityOf returns the sale a token claims to be for, unchecked.
	ActivityOf(token string) (string, error)
}

// Deps are the parts a gateway is built from. All are required, but for those that say otherwise.
type Deps struct {
	Stock     Stock
	Queue     Queue
	Ledger    Ledger
	Announcer Announcer
	Users     Users
	Tokens    Tokens
	DemoLogin func(userID int64, expires time.Time) (string, error) // nil when demo login is off
	Admin     func(token string) bool                               // nil: no admin API
	// Audit compares a sale in Redis with the database, and with repair mends Redis.
	Audit func(ctx context.Context, activityID string, repair bool) (*sale.AuditReport, error)
	// Payments verifies the signature of a payment callback; nil: no callbacks.
	Payments func(id, timestamp, signature string, body []byte) error
	Checks   map[string]func(context.Context) error // for readyz
	Metrics  *prometheus.Registry
	OpenAPI  []byte
	Now      func() time.Time  // default time.Now
	Log      *slog.Logger      // default slog.Default
	Step     func(name string) // told between reserve and publish, so that tests can fail there; nil in production
}
