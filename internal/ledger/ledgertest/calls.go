package ledgertest

import (
	"context"
	"database/sql"
	"time"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

// Ledger are the calls that the suite makes, as *ledger.Ledger has them.
type Ledger interface {
	Deciding
	Changing
	Looking
	Operating
}

// Deciding are the calls of consumers and of rebuilds.
type Deciding interface {
	Commit(ctx context.Context, batch []sale.Pending) ([]sale.Decision, error)
	Refuse(ctx context.Context, p sale.Pending) (sale.Decision, error)
	RaiseEpoch(ctx context.Context, id string, fence int64) (int64, error)
	Suspect(ctx context.Context, id string, epoch int64) error
	Witness(ctx context.Context, fence int64, seen map[string]sale.Sighting) ([]string, error)
	SaveBoundary(ctx context.Context, id string, epoch int64, offsets map[int]int64) error
	RebuildSnapshot(ctx context.Context, id string) (*sale.Snapshot, error)
}

// Changing are the calls that move what was decided.
type Changing interface {
	Pay(ctx context.Context, orderNo string, userID int64, at time.Time, why string) (*sale.Order, bool, error)
	Cancel(ctx context.Context, orderNo string, userID int64) (*sale.Order, bool, error)
	CloseOrder(ctx context.Context, orderNo string, userID int64) (*sale.Order, bool, error)
	CloseUnpaid(ctx context.Context, now time.Time, limit int) ([]sale.Order, error)
	RecordPayment(ctx context.Context, p sale.Payment) (sale.PaymentOutcome, *sale.Order, bool, error)
	PendingReturns(ctx context.Context, limit int) ([]sale.Return, error)
	MarkReturned(ctx context.Context, token string, userID, epoch int64) error
	Untold(ctx context.Context, limit int) ([]sale.Order, error)
	MarkTold(ctx context.Context, token string, userID, version int64) error
	JoinWaitlist(ctx context.Context, id, commodity string, userID int64) (time.Time, error)
	LeaveWaitlist(ctx context.Context, id string, userID int64) ([]string, error)
	Waiters(ctx context.Context, id string) ([]sale.Waiter, error)
	NotWaiting(ctx context.Context, id, commodity string, ws []sale.Waiter) ([]sale.Waiter, error)
	MarkPromoted(ctx context.Context, w sale.Waiter, token string) error
	ExpireWaitlist(ctx context.Context, id string) ([]sale.Waiter, error)
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (int64, error)
	RenewLease(ctx context.Context, name, holder string, fence int64, ttl time.Duration) error
	ReleaseLease(ctx context.Context, name, holder string, fence int64) error
}

// Looking are the calls by which the suite sees what is stored.
type Looking interface {
	Activity(ctx context.Context, id string) (*sale.Activity, error)
	Balance(ctx context.Context, id string) ([]ledger.ItemBalance, error)
	TokenStory(ctx context.Context, userID int64, token string) ([]ledger.LogRow, error)
	OrderByNo(ctx context.Context, orderNo string) (*sale.Order, error)
	DecisionByToken(ctx context.Context, id string, userID int64, token string, minVersion int64) (*sale.Decision, error)
	DecisionOfUser(ctx context.Context, id string, userID int64) (*sale.Decision, error)
	DecisionsOfUser(ctx context.Context, userID int64, ids []string) ([]sale.Decision, error)
	OrdersOfUser(ctx context.Context, userID int64, limit int, cursor string) (orders []sale.Order, next string, err error)
	RefundsDue(ctx context.Context, limit int) ([]sale.RecordedPayment, error)
}

// Operating are the calls of operators and of the program's start.
type Operating interface {
	CreateActivity(ctx context.Context, a *sale.Activity) error
	Activities(ctx context.Context) ([]*sale.Activity, error)
	SetActivityState(ctx context.Context, id string, from []sale.State, to sale.State) error
	Reschedule(ctx context.Context, id string, startsAt, endsAt time.Time) error
	SetUserList(ctx context.Context, id, list string, userID int64, on bool) error
	UserList(ctx context.Context, id, list string) ([]int64, error)
	ChangeStock(ctx context.Context, id, commodity string, delta int64) (int64, error)
	SaveDeadLetter(ctx context.Context, d sale.DeadLetter) error
	DeadLetters(ctx context.Context, state sale.DeadLetterState, after int64, limit int) ([]sale.DeadLetter, error)
	DeadLetter(ctx context.Context, id int64) (*sale.DeadLetter, error)
	MarkDeadLetter(ctx context.Context, id int64, to sale.DeadLetterState) error
	AdminLog(ctx context.Context, who, what, activityID, detail string) error
	Migrate(ctx context.Context) error
	CheckSchema(ctx context.Context) error
	Ping(ctx context.Context) error
	Stats() sql.DBStats
}
