package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// fakeStock is Redis in memory, for one sale: enough to see what the gateway asks of it.
type fakeStock struct {
	mu       sync.Mutex
	units    int64
	seq      int64
	marks    map[int64]string
	calls    int // of Reserve
	batches  []int
	err      error
	onCall   func()
	notReady bool
	occupied int64
	outcome  sale.ReserveOutcome // when set, the answer to everything
}

func newFakeStock(units int64) *fakeStock { return &fakeStock{units: units, marks: map[int64]string{}} }

func (f *fakeStock) Reserve(_ context.Context, activityID string, now time.Time, reqs []sale.ReserveRequest) ([]sale.ReserveReply, error) {
	if f.onCall != nil {
		f.onCall()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.batches = append(f.batches, len(reqs))
	if f.err != nil {
		return nil, f.err
	}
	out := make([]sale.ReserveReply, len(reqs))
	for i, r := range reqs {
		res := sale.Reservation{Token: r.Token, UserID: r.UserID, ActivityID: activityID, CommodityID: r.CommodityID, Quantity: r.Quantity, At: now}
		state := sale.Result{RequestToken: r.Token, ActivityID: activityID, CommodityID: r.CommodityID, Quantity: r.Quantity, Status: sale.StatusProcessing}
		first, taken := f.marks[r.UserID]
		switch {
		case f.outcome != "":
			out[i] = sale.ReserveReply{Outcome: f.outcome, Reservation: res, Result: state, FirstToken: "first.A1", RetryAfter: time.Second}
		case taken && first == r.Token:
			out[i] = sale.ReserveReply{Outcome: sale.ReserveRepeat, Reservation: res, Result: state}
		case taken:
			out[i] = sale.ReserveReply{Outcome: sale.ReserveParticipated, FirstToken: first}
		case f.notReady:
			out[i] = sale.ReserveReply{Outcome: sale.ReserveNotReady}
		case f.units < int64(r.Quantity):
			out[i] = sale.ReserveReply{Outcome: sale.ReserveSoldOut}
		default:
			f.units -= int64(r.Quantity)
			f.seq++
			f.marks[r.UserID] = r.Token
			out[i] = sale.ReserveReply{Outcome: sale.ReserveAccepted, Reservation: res, Result: state}
		}
	}
	return out, nil
}

func (f *fakeStock) Limit(context.Context, string, int64, time.Time) (bool, time.Duration, error) {
	return true, 0, nil
}

func (f *fakeStock) SystemQuota(_ context.Context, _ time.Time, n int) (int, error) { return n, nil }

func (f *fakeStock) Result(_ context.Context, activityID, token string) (sale.UserResult, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for user, t := range f.marks {
		if t == token {
			return sale.UserResult{UserID: user, Result: sale.Result{RequestToken: t, ActivityID: activityID, CommodityID: "C1", Quantity: 1, Status: sale.StatusProcessing}}, true, nil
		}
	}
	return sale.UserResult{}, false, nil
}

func (f *fakeStock) Mark(_ context.Context, _ string, userID int64) (string, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.marks[userID]
	return t, ok, nil
}

func (f *fakeStock) Live(_ context.Context, ids []string) (map[string]sale.Live, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]sale.Live{}
	for _, id := range ids {
		out[id] = sale.Live{ActivityID: id, State: sale.StateOpen, Seq: f.seq, Items: []sale.Remaining{{CommodityID: "C1", Units: f.units}}}
	}
	return out, nil
}

func (f *fakeStock) ParticipantsOf(context.Context, string) ([]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var users []int64
	for u := range maps.Keys(f.marks) {
		users = append(users, u)
	}
	return users, nil
}

func (f *fakeStock) SetStatus(_ context.Context, rs []sale.UserResult) ([]sale.Settlement, error) {
	return make([]sale.Settlement, len(rs)), nil
}
func (f *fakeStock) TakeBack(context.Context, string, string, int64) error { return nil }
func (f *fakeStock) SetMeta(context.Context, *sale.Activity) error         { return nil }
func (f *fakeStock) SetUserList(context.Context, string, string, int64, bool) error {
	return nil
}

func (f *fakeStock) TokenCounts(context.Context, string) (sale.TokenCounts, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sale.TokenCounts{Occupied: f.occupied}, nil
}
func (f *fakeStock) JoinWaitlist(context.Context, string, string, []sale.Waiter) error { return nil }
func (f *fakeStock) LeaveWaitlist(context.Context, string, string, int64) error        { return nil }
func (f *fakeStock) WaitPosition(context.Context, string, string, int64) (int64, time.Time, error) {
	return 0, time.Time{}, nil
}

// setUnits is a unit that comes back, or goes, behind the gateway's back.
func (f *fakeStock) setUnits(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.units = n
}

func (f *fakeStock) reserveCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// fakeQueue is Kafka in memory.
type fakeQueue struct {
	mu   sync.Mutex
	got  []sale.Reservation
	fail bool
}

func (f *fakeQueue) Publish(_ context.Context, rs []sale.Reservation) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail {
		errs := make([]error, len(rs))
		for i := range errs {
			errs[i] = sale.ErrUncertain
		}
		return errs
	}
	f.got = append(f.got, rs...)
	return nil
}

func (f *fakeQueue) Replay(context.Context, []byte, []byte) error { return nil }

// fakeLedger knows one activity.
type fakeLedger struct {
	Ledger
	activity sale.Activity
}

func (f *fakeLedger) Activity(_ context.Context, id string) (*sale.Activity, error) {
	if id != f.activity.ID {
		return nil, sale.ErrNotFound
	}
	a := f.activity
	return &a, nil
}

func (f *fakeLedger) Activities(context.Context) ([]*sale.Activity, error) {
	a := f.activity
	return []*sale.Activity{&a}, nil
}

func (f *fakeLedger) DecisionByToken(context.Context, string, int64, string, int64) (*sale.Decision, error) {
	return nil, sale.ErrNotFound
}

func (f *fakeLedger) DecisionOfUser(context.Context, string, int64) (*sale.Decision, error) {
	panic("a bug in a handler")
}

// fakeUsers takes "u42" as the token of user 42.
type fakeUsers struct{}

func (fakeUsers) UserOf(jwt string) (int64, error) {
	if !strings.HasPrefix(jwt, "u") {
		return 0, errors.New("no")
	}
	return strconv.ParseInt(jwt[1:], 10, 64)
}

// fakeTokens takes "42.anything.A1" as a token of user 42 for the sale A1.
type fakeTokens struct{}

func (fakeTokens) Issue(userID int64, activityID string) (string, time.Time) {
	return strconv.FormatInt(userID, 10) + ".x." + activityID, time.Now().Add(time.Minute)
}

func (fakeTokens) Verify(token string, userID int64) (string, bool, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[0] != strconv.FormatInt(userID, 10) {
		return "", false, errors.New("no")
	}
	return parts[2], parts[1] == "expired", nil
}

func (fakeTokens) ActivityOf(token string) (string, error) { return "A1", nil }

func fakeDeps(stock *fakeStock, queue *fakeQueue) Deps {
	now := time.Now()
	return Deps{
		Stock: stock, Queue: queue, Users: fakeUsers{}, Tokens: fakeTokens{}, Log: slog.New(slog.DiscardHandler),
		Ledger: &fakeLedger{activity: sale.Activity{
			ID: "A1", Title: "T", State: sale.StateScheduled, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PayWithin: time.Minute,
			Items: []sale.Item{{CommodityID: "C1", Title: "C", Price: decimal.New(100, -2), Total: 1000, MaxPerUser: 2}},
		}},
	}
}
