package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/sale"
	"seckill/internal/stock"
	"seckill/internal/testenv"
)

// anyStock is what the simulation's Redis and the real one both are.
type anyStock interface {
	Reserve(ctx context.Context, id string, now time.Time, reqs []sale.ReserveRequest) ([]sale.ReserveReply, error)
	Settle(ctx context.Context, id string, ds []sale.Decision) ([]sale.Settlement, error)
	Return(ctx context.Context, id string, rs []sale.Return) ([]sale.Settlement, int64, error)
	SetStatus(ctx context.Context, rs []sale.UserResult) ([]sale.Settlement, error)
	Promote(ctx context.Context, r sale.Return, now time.Time, line []int64, tokenFor func(int64) string) (sale.Promotion, error)
	Waiting(ctx context.Context, id, commodity string, limit int) ([]sale.Waiter, error)
	FillWaitlist(ctx context.Context, id, commodity string, epoch int64, ws []sale.Waiter) error
	DropWaiters(ctx context.Context, id, commodity string, ws []sale.Waiter) error
	JoinWaitlist(ctx context.Context, id, commodity string, ws []sale.Waiter) error
	LeaveWaitlist(ctx context.Context, id, commodity string, user int64) error
	DropWaitlist(ctx context.Context, id, commodity string) error
	SetMeta(ctx context.Context, a *sale.Activity) error
	SetUserList(ctx context.Context, id, list string, user int64, on bool) error
	BeginRebuild(ctx context.Context, a sale.Activity, epoch int64) error
	FinishRebuild(ctx context.Context, snap *sale.Snapshot, epoch int64) error
	Occupied(ctx context.Context, id string, before time.Time, limit int) ([]sale.Reservation, error)
	Live(ctx context.Context, ids []string) (map[string]sale.Live, error)
	Result(ctx context.Context, id, token string) (sale.UserResult, bool, error)
	Mark(ctx context.Context, id string, user int64) (string, bool, error)
	ParticipantsOf(ctx context.Context, id string) ([]int64, error)
	Audit(ctx context.Context, id string, commodities, closed []string) (sale.StockAudit, error)
	Repair(ctx context.Context, id string, epoch, seq int64, units map[string]int64) error
	Marks(ctx context.Context, id string) (map[int64]string, error)
	SetMark(ctx context.Context, id string, user int64, was, token string) error
	RaiseSeq(ctx context.Context, id string) (int64, int64, error)
	Purge(ctx context.Context, id string) error
	Rewound(id string) bool
}

// The simulation proves the product only if its Redis answers as the real scripts do: random histories, call by call.
func TestStockAnswersAsTheScriptsDo(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		defer func() { _ = rdb.Close() }()
		compareStocks(t, rdb)
	})
	t.Run("redis", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: testenv.Redis(t)})
		defer func() { _ = rdb.Close() }()
		compareStocks(t, rdb)
	})
}

// histories is how many to compare.
func histories(usual int) int {
	switch {
	case os.Getenv("SECKILL_LONG") != "":
		return 1000
	case testing.Short():
		return usual / 5
	}
	return usual
}

func compareStocks(t *testing.T, rdb redis.UniversalClient) {
	run := rand.Uint32()
	for seed := range uint64(histories(200)) {
		h := newStockHistory(rdb, "D"+strconv.FormatUint(uint64(run), 36)+"-"+strconv.FormatUint(seed, 36), seed)
		for range 60 {
			h.step()
			if h.wrong != "" {
				t.Errorf("history %d: %s\nafter\n%s", seed, h.wrong, strings.Join(h.log, "\n"))
				break
			}
		}
		_ = h.real.Purge(context.Background(), h.id)
		if t.Failed() {
			return
		}
	}
}

// stockHistory drives both with the same calls.
type stockHistory struct {
	r          *rand.Rand
	id         string
	real, twin anyStock
	now        time.Time
	act        sale.Activity
	log        []string
	wrong      string
}

func newStockHistory(rdb redis.UniversalClient, id string, seed uint64) *stockHistory {
	h := &stockHistory{r: rand.New(rand.NewPCG(seed, 7)), id: id, now: time.Now().UTC().Truncate(time.Millisecond)}
	clock := func() time.Time { return h.now }
	twin := newStore(newRedisServer(), direct{})
	twin.now, twin.chunk = clock, stock.MaxBatch
	h.twin, h.real = twin, stock.New(rdb, stock.Options{UserPerSecond: 100, SalePerSecond: 1_000_000, Now: clock})
	h.act = sale.Activity{
		ID: id, Title: "x", StartsAt: h.now.Add(-time.Minute), EndsAt: h.now.Add(time.Duration(h.r.IntN(5)) * time.Second), PayWithin: time.Minute,
		CloseGrace: time.Minute, WaitlistUntil: h.now.Add(time.Hour), State: sale.StateScheduled,
		Items: []sale.Item{
			{CommodityID: "SP1", Title: "1", Price: decimal.New(9900, -2), Total: int64(1 + h.r.IntN(4)), MaxPerUser: 2},
			{CommodityID: "SP2", Title: "2", Price: decimal.New(10, -2), Total: 1, MaxPerUser: 1},
		},
	}
	return h
}

func (h *stockHistory) user() int64       { return int64(9 + h.r.IntN(4)) }
func (h *stockHistory) token() string     { return "T" + strconv.Itoa(h.r.IntN(7)) }
func (h *stockHistory) commodity() string { return []string{"SP1", "SP1", "SP2", "SPX"}[h.r.IntN(4)] }

// reservation belongs mostly to the user its token's number says.
func (h *stockHistory) reservation() sale.Reservation {
	n := h.r.IntN(7)
	user := int64(9 + n%4)
	if h.r.IntN(12) == 0 {
		user = h.user()
	}
	r := sale.Reservation{
		Token: "T" + strconv.Itoa(n), UserID: user, ActivityID: h.id, CommodityID: "SP1", Price: decimal.New(9900, -2), Quantity: 1,
		Epoch: int64(h.r.IntN(3)), At: h.now,
	}
	if n == 3 {
		r.CommodityID, r.Price = "SP2", decimal.New(10, -2)
	}
	if n == 4 {
		r.Quantity = 2
	}
	return r
}

func (h *stockHistory) decision() sale.Decision {
	d := sale.Decision{Reservation: h.reservation(), Version: int64(1 + h.r.IntN(3))}
	switch h.r.IntN(5) {
	case 0:
		d.Status, d.SoldOut, d.Version = sale.StatusSoldOut, true, 1
	case 1:
		d.Status, d.Reason, d.Version = sale.StatusFailed, sale.ReasonExpired, 1
	case 2:
		d.Status, d.Reason, d.FirstToken, d.Version = sale.StatusFailed, sale.ReasonParticipated, h.token(), 1
	default:
		d.Ordered, d.OrderNo, d.PayBefore = true, "12"+d.Token[1:]+"01", h.now.Add(time.Minute)
		d.Status = []sale.Status{sale.StatusPendingPayment, sale.StatusPaid, sale.StatusCancelled}[min(d.Version-1, 2)]
	}
	return d
}

func (h *stockHistory) giveBack() sale.Return {
	r := h.reservation()
	return sale.Return{
		Token: r.Token, UserID: r.UserID, ActivityID: h.id, CommodityID: r.CommodityID, Quantity: r.Quantity, OrderNo: "1", Version: 3,
		Status: []sale.Status{sale.StatusCancelled, sale.StatusClosed}[h.r.IntN(2)],
	}
}

func (h *stockHistory) snapshot() *sale.Snapshot {
	s := &sale.Snapshot{Activity: h.act}
	s.Activity.Items = slices.Clone(h.act.Items)
	seen := map[string]bool{}
	for range h.r.IntN(4) {
		d := h.decision()
		if seen[d.Token] {
			continue
		}
		seen[d.Token] = true
		e := sale.SnapshotEntry{Decision: d, Returned: -1}
		if d.Status == sale.StatusCancelled {
			e.Returned = int8(h.r.IntN(2))
		} else if d.Ordered {
			s.Activity.Item(d.CommodityID).Sold += int64(d.Quantity)
		}
		s.Entries = append(s.Entries, e)
	}
	if h.r.IntN(4) == 0 {
		s.Blocked = []int64{h.user()}
	}
	return s
}

// both makes the same call on both and compares what they say.
func (h *stockHistory) both(name string, do func(s anyStock) string) {
	a, b := do(h.real), do(h.twin)
	h.log = append(h.log, name+" -> "+a)
	if a != b {
		h.wrong = fmt.Sprintf("%s\nreal: %s\ntwin: %s", name, a, b)
	}
	if ra, rb := h.real.Rewound(h.id), h.twin.Rewound(h.id); ra != rb && h.wrong == "" {
		h.wrong = fmt.Sprintf("%s: rewound %t, twin %t", name, ra, rb)
	}
}

// class is an error as callers tell errors apart.
func class(err error) string {
	for _, e := range []error{sale.ErrConflict, sale.ErrNotReady, sale.ErrWrongState, sale.ErrNotFound, sale.ErrExists, sale.ErrTransient, sale.ErrUncertain} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	if err != nil {
		return "error"
	}
	return "ok"
}

func sayReservation(r *sale.Reservation) string {
	if r.Token == "" {
		return "-"
	}
	return fmt.Sprintf("%s/%d/%s/%s/%d/e%d/%d", r.Token, r.UserID, r.CommodityID, sale.FormatMoney(r.Price), r.Quantity, r.Epoch, sale.Millis(r.At))
}

func sayReservations(rs []sale.Reservation) string {
	var out []string
	for i := range rs {
		out = append(out, sayReservation(&rs[i]))
	}
	return strings.Join(out, " ")
}

func sayResult(r *sale.Result) string {
	return fmt.Sprintf("%s/%s/%d/%s/%s/%s/%d/v%d", r.RequestToken, r.CommodityID, r.Quantity, r.Status, r.Reason, r.OrderNo, sale.Millis(r.PayBefore), r.Version)
}
