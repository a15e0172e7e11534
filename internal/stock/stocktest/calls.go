package stocktest

import (
	"context"
	"time"

	"seckill/internal/sale"
)

// Store are the calls that the suite makes, as *stock.Store has them.
type Store interface {
	Selling
	Rebuilding
	Reading
	Limiting
}

// Selling are the calls that move units.
type Selling interface {
	Reserve(ctx context.Context, id string, now time.Time, reqs []sale.ReserveRequest) ([]sale.ReserveReply, error)
	Settle(ctx context.Context, id string, ds []sale.Decision) ([]sale.Settlement, error)
	Return(ctx context.Context, id string, rs []sale.Return) (found []sale.Settlement, epoch int64, err error)
	SetStatus(ctx context.Context, rs []sale.UserResult) ([]sale.Settlement, error)
	Promote(ctx context.Context, r sale.Return, now time.Time, line []int64, tokenFor func(userID int64) string) (sale.Promotion, error)
	JoinWaitlist(ctx context.Context, id, commodity string, ws []sale.Waiter) error
	LeaveWaitlist(ctx context.Context, id, commodity string, userID int64) error
	DropWaiters(ctx context.Context, id, commodity string, ws []sale.Waiter) error
	DropWaitlist(ctx context.Context, id, commodity string) error
	TakeBack(ctx context.Context, id, commodity string, units int64) error
}

// Rebuilding are the calls that make, change and remove a sale as a whole.
type Rebuilding interface {
	BeginRebuild(ctx context.Context, a sale.Activity, epoch int64) error
	FillWaitlist(ctx context.Context, id, commodity string, epoch int64, ws []sale.Waiter) error
	FinishRebuild(ctx context.Context, snap *sale.Snapshot, epoch int64) error
	SetMeta(ctx context.Context, a *sale.Activity) error
	SetUserList(ctx context.Context, id, list string, userID int64, on bool) error
	RaiseSeq(ctx context.Context, id string) (epoch, seq int64, err error)
	Audit(ctx context.Context, id string, commodities, closed []string) (sale.StockAudit, error)
	Repair(ctx context.Context, id string, epoch, seq int64, units map[string]int64) error
	Purge(ctx context.Context, id string) error
	Position(id string) (epoch, seq int64)
	Rewound(id string) bool
}

// Reading are the calls that change nothing.
type Reading interface {
	Result(ctx context.Context, id, token string) (sale.UserResult, bool, error)
	ResultsOfUsers(ctx context.Context, ids []string, users []int64) ([]sale.UserResult, error)
	Mark(ctx context.Context, id string, userID int64) (string, bool, error)
	ParticipantsOf(ctx context.Context, id string) ([]int64, error)
	Occupied(ctx context.Context, id string, before time.Time, limit int) ([]sale.Reservation, error)
	TokenCounts(ctx context.Context, id string) (sale.TokenCounts, error)
	Live(ctx context.Context, ids []string) (map[string]sale.Live, error)
	Waiting(ctx context.Context, id, commodity string, limit int) ([]sale.Waiter, error)
	WaitPosition(ctx context.Context, id, commodity string, userID int64) (int64, time.Time, error)
}

// Limiting are the windows and quotas.
type Limiting interface {
	Limit(ctx context.Context, id string, userID int64, now time.Time) (allowed bool, after time.Duration, err error)
	SystemQuota(ctx context.Context, now time.Time, n int) (int, error)
}
