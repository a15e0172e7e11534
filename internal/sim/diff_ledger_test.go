package sim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/shopspring/decimal"

	product "seckill/internal/ledger"
	"seckill/internal/sale"
	"seckill/internal/testenv"
)

// anyLedger is what the simulation's database and the real one both are.
type anyLedger interface {
	Commit(ctx context.Context, batch []sale.Pending) ([]sale.Decision, error)
	Refuse(ctx context.Context, p sale.Pending) (sale.Decision, error)
	RaiseEpoch(ctx context.Context, id string, fence int64) (int64, error)
	Suspect(ctx context.Context, id string, epoch int64) error
	SaveBoundary(ctx context.Context, id string, epoch int64, offsets map[int]int64) error
	RebuildSnapshot(ctx context.Context, id string) (*sale.Snapshot, error)
	SetActivityState(ctx context.Context, id string, from []sale.State, to sale.State) error
	CloseUnpaid(ctx context.Context, now time.Time, limit int) ([]sale.Order, error)
	Open(ctx context.Context, id string) (unpaid, untold, returning int64, err error)
	PendingReturns(ctx context.Context, limit int) ([]sale.Return, error)
	MarkReturned(ctx context.Context, token string, user, epoch int64) error
	Witness(ctx context.Context, fence int64, seen map[string]sale.Sighting) ([]string, error)
	Untold(ctx context.Context, limit int) ([]sale.Order, error)
	MarkTold(ctx context.Context, token string, user, version int64) error
	Waiters(ctx context.Context, id string) ([]sale.Waiter, error)
	NotWaiting(ctx context.Context, id, commodity string, ws []sale.Waiter) ([]sale.Waiter, error)
	MarkPromoted(ctx context.Context, w sale.Waiter, token string) error
	ExpireWaitlist(ctx context.Context, id string) ([]sale.Waiter, error)
	JoinWaitlist(ctx context.Context, id, commodity string, user int64) (time.Time, error)
	LeaveWaitlist(ctx context.Context, id string, user int64) ([]string, error)
	Pay(ctx context.Context, orderNo string, user int64, at time.Time, why string) (*sale.Order, bool, error)
	Cancel(ctx context.Context, orderNo string, user int64) (*sale.Order, bool, error)
	RecordPayment(ctx context.Context, p sale.Payment) (sale.PaymentOutcome, *sale.Order, bool, error)
	DecisionByToken(ctx context.Context, id string, user int64, token string, least int64) (*sale.Decision, error)
	DecisionOfUser(ctx context.Context, id string, user int64) (*sale.Decision, error)
}

// The simulation proves the product only if its database decides as the real one does: random histories, call by call.
func TestLedgerDecidesAsTheDatabaseDoes(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		clock := newClock()
		l, err := product.Open(t.Context(), product.Options{
			Driver: product.DriverSQLite, DSN: filepath.Join(t.TempDir(), "sim.db"), Now: clock.now,
		})
		compareLedgers(t, l, err, clock)
	})
	t.Run("mysql", func(t *testing.T) {
		clock := newClock()
		l, err := product.Open(t.Context(), product.Options{
			Driver: product.DriverMySQL, DSN: testDatabase(t), Now: clock.now,
		})
		compareLedgers(t, l, err, clock)
	})
}

// testDatabase makes a database of its own on the shared server, and drops it at the end.
func testDatabase(t *testing.T) string {
	cfg, err := mysql.ParseDSN(testenv.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	name := "seckill_sim_" + strconv.FormatUint(uint64(rand.Uint32()), 36)
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
	cfg.DBName = name
	return cfg.FormatDSN()
}

// clock is moved by the history that runs.
type clock struct{ at time.Time }

func newClock() *clock              { return &clock{time.Now().UTC().Truncate(time.Millisecond)} }
func (c *clock) now() time.Time     { return c.at }
func (c *clock) on(d time.Duration) { c.at = c.at.Add(d) }

func compareLedgers(t *testing.T, l *product.Ledger, err error, c *clock) {
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := l.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := strconv.FormatUint(uint64(rand.Uint32()), 36)
	for seed := range uint64(histories(60)) {
		h := newLedgerHistory(t, l, c, "L"+run+"-"+strconv.FormatUint(seed, 36), seed)
		for range 50 {
			h.step()
			if h.wrong != "" {
				t.Fatalf("history %d: %s\nafter\n%s", seed, h.wrong, strings.Join(h.log, "\n"))
			}
		}
	}
}

// ledgerHistory drives both with the same calls.
type ledgerHistory struct {
	r          *rand.Rand
	id         string
	c          *clock
	real, twin anyLedger
	user0      int64
	sent       []sale.Pending
	orders     []string
	returned   []string
	epoch      int64
	fence      int64
	seq        int64
	log        []string
	wrong      string
}

func newLedgerHistory(t *testing.T, l *product.Ledger, c *clock, id string, seed uint64) *ledgerHistory {
	h := &ledgerHistory{r: rand.New(rand.NewPCG(seed, 3)), id: id, c: c, user0: 16 * (1 + rand.Int64N(1<<40))}
	c.on(time.Hour) // what the history before left is overdue
	tidy(t, l, c)
	a := &sale.Activity{
		ID: id, Title: "x", StartsAt: c.at.Add(-time.Minute), EndsAt: c.at.Add(20 * time.Second), PayWithin: 4 * time.Second,
		CloseGrace: 2 * time.Second, WaitlistUntil: c.at.Add(time.Hour), State: sale.StateScheduled,
		Items: []sale.Item{
			{CommodityID: "SP1", Title: "1", Price: decimal.New(9900, -2), Total: int64(1 + h.r.IntN(4)), MaxPerUser: 2},
			{CommodityID: "SP2", Title: "2", Price: decimal.New(10, -2), Total: 1, MaxPerUser: 1},
		},
	}
	if err := l.CreateActivity(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	db := newDatabase(c.now)
	copied := *a
	copied.Items = slices.Clone(a.Items)
	db.acts[id] = &activityRow{Activity: copied, boundary: map[int64]map[int]int64{}}
	h.real, h.twin = l, newLedger(db, direct{}, "test", "")
	return h
}

// tidy finishes what earlier histories left undone: lists are bounded.
func tidy(t *testing.T, l *product.Ledger, c *clock) {
	ctx := t.Context()
	_, err := l.CloseUnpaid(ctx, c.at, 1000)
	returns, rerr := l.PendingReturns(ctx, 1000)
	orders, oerr := l.Untold(ctx, 1000)
	err = errors.Join(err, rerr, oerr)
	for _, r := range returns {
		a, aerr := l.Activity(ctx, r.ActivityID)
		if err = errors.Join(err, aerr); err == nil {
			err = l.MarkReturned(ctx, r.Token, r.UserID, a.Epoch)
		}
	}
	for i := range orders {
		err = errors.Join(err, l.MarkTold(ctx, orders[i].RequestToken, orders[i].UserID, orders[i].Version))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (h *ledgerHistory) user() int64 { return h.user0 + []int64{0, 1, 16, 17}[h.r.IntN(4)] }

func (h *ledgerHistory) message() sale.Pending {
	if len(h.sent) > 0 && h.r.IntN(3) == 0 {
		return h.sent[h.r.IntN(len(h.sent))]
	}
	n := len(h.sent)
	p := sale.Pending{
		Reservation: sale.Reservation{
			Token: "t" + h.id + "." + strconv.Itoa(n), UserID: h.user(), ActivityID: h.id, CommodityID: "SP1", Price: decimal.New(9900, -2),
			Quantity: 1 + h.r.IntN(2), Epoch: h.epoch - int64(h.r.IntN(4)/3), At: h.c.at.Add(-time.Duration(h.r.IntN(3000)) * time.Millisecond),
		},
		Partition: h.r.IntN(3), Offset: int64(h.r.IntN(10)),
	}
	p.OrderNo = sale.OrderNo(h.user0<<8+int64(n), p.UserID)
	switch h.r.IntN(12) {
	case 0:
		p.CommodityID, p.Price, p.Quantity = "SP2", decimal.New(10, -2), 1
	case 1:
		p.Price = decimal.New(1, 0)
	case 2:
		p.Quantity = 3
	case 3:
		p.CommodityID = "SPX"
	case 4:
		if len(h.sent) > 0 { // another user under a token that was used
			other := h.sent[h.r.IntN(len(h.sent))]
			p.Token, p.UserID = other.Token, h.user0+((other.UserID-h.user0)^16) // of the same tables
			p.OrderNo = sale.OrderNo(h.user0<<8+int64(n), p.UserID)
			return p
		}
	}
	h.sent = append(h.sent, p)
	return p
}

// both makes the same call on both and compares what they say.
func (h *ledgerHistory) both(name string, do func(l anyLedger) string) {
	if h.wrong != "" {
		return
	}
	a, b := do(h.real), do(h.twin)
	h.log = append(h.log, name+" -> "+a)
	if a != b {
		h.wrong = fmt.Sprintf("%s\nreal: %s\ntwin: %s", name, a, b)
	}
}

func sayDecision(d *sale.Decision) string {
	if d == nil {
		return "-"
	}
	res := d.Result()
	return fmt.Sprintf("[%d %s ordered %t soldout %t first %q repeated %t e%d %s]", d.UserID, sayResult(&res), d.Ordered, d.SoldOut, d.FirstToken,
		d.Repeated, d.Epoch, sale.FormatMoney(d.Price))
}

func sayOrder(o *sale.Order) string {
	if o == nil {
		return "-"
	}
	return fmt.Sprintf("[%s %s %d %s %d %s %s v%d before %d paid %d closed %d told %d]", o.OrderNo, o.RequestToken, o.UserID, o.CommodityID, o.Quantity,
		o.PayAmount, o.Status, o.Version, sale.Millis(o.PayBefore), sale.Millis(o.PaidAt), sale.Millis(o.ClosedAt), o.ToldVersion)
}

// verdict is class, with what Commit and payments may say besides.
func verdict(err error) string {
	if errors.Is(err, product.ErrOrderNoTaken) || errors.Is(err, errNumberTaken) {
		return "number taken"
	}
	return class(err)
}
