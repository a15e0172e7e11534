// Package ledgertest is the conformance suite of package ledger: what every dialect must do, in one place. It
// only uses the exported API, so that it says what callers may rely on; tests that hurt a real server stand with
// the package itself. Every test has its own activity, so that the suite may run on a shared database.
//
// The simulation's database runs it too, test by test the same, but for what it does not model: see RunCore.
package ledgertest

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

// Open returns a ledger with its tables made, closed by the test's clean-up. edit may change its options and may
// be nil.
type Open func(t *testing.T, edit func(*ledger.Options)) Ledger

// Run runs the whole suite.
func Run(t *testing.T, open Open) { run(t, open, nil) }

// RunCore runs the suite on a back end that models a part of a database. notModelled names each test that is left out,
// as "Group/name", with what is missing; the test is skipped and says so. A name that is no test fails.
func RunCore(t *testing.T, open Open, notModelled map[string]string) { run(t, open, notModelled) }

// suite is one run.
type suite struct {
	open        Open
	group       string
	notModelled map[string]string
	met         *sync.Map // names of notModelled that are tests
}

func run(t *testing.T, open Open, notModelled map[string]string) {
	met := &sync.Map{}
	t.Cleanup(func() {
		for name := range notModelled {
			if _, ok := met.Load(name); !ok && !strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
				t.Errorf("%q is to be left out and is no test", name)
			}
		}
	})
	for name, group := range map[string]func(*testing.T, *suite){
		"Activity": activityTests,
		"Commit":   commitTests,
		"Refuse":   refuseTests,
		"Identity": identityTests,
		"Rebuild":  rebuildTests,
		"Status":   statusTests,
		"Read":     readTests,
		"Misc":     miscTests,
		"Race":     raceTests,
		"Model":    modelTests,
		"Operate":  operationsTests,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group(t, &suite{open, name, notModelled, met})
		})
	}
}

// each runs the tests of a group side by side.
func (s *suite) each(t *testing.T, tests map[string]func(*testing.T, Open)) {
	for name, f := range tests {
		s.one(t, name, func(t *testing.T, open Open) { t.Parallel(); f(t, open) })
	}
}

// one runs a test, unless what it is about is not modelled.
func (s *suite) one(t *testing.T, name string, f func(*testing.T, Open)) {
	t.Run(name, func(t *testing.T) {
		if why, ok := s.notModelled[s.group+"/"+name]; ok {
			s.met.Store(s.group+"/"+name, true)
			t.Skip("not modelled: " + why)
		}
		f(t, s.open)
	})
}

// shop is one activity of one test, and a maker of users and messages for it.
type shop struct {
	*testing.T
	L     Ledger
	A     *sale.Activity
	users atomic.Int64
	seq   atomic.Int64
}

// start is a moment with milliseconds, so that a dialect that drops them is caught.
func start() time.Time { return time.Now().Add(-time.Minute).Truncate(time.Millisecond).UTC() }

// newShop creates an activity that is on sale, with one item for each total: C0, C1, …
func newShop(t *testing.T, open Open, edit func(*ledger.Options), totals ...int64) *shop {
	t.Helper()
	s := &shop{T: t, L: open(t, edit)}
	s.A = &sale.Activity{
		ID: "A-" + randomText(12), Title: "sale", StartsAt: start(), EndsAt: start().Add(time.Hour),
		PayWithin: 15 * time.Minute, CloseGrace: 5 * time.Minute, State: sale.StateScheduled,
	}
	for i, n := range totals {
		s.A.Items = append(s.A.Items, sale.Item{
			CommodityID: fmt.Sprintf("C%d", i), Title: "item", Price: decimal.RequireFromString("19.99"), Total: n, MaxPerUser: 5,
		})
	}
	s.users.Store(mathrand.Int64N(1 << 50))
	s.seq.Store(mathrand.Int64N(1 << 55))
	if err := s.L.CreateActivity(t.Context(), s.A); err != nil {
		t.Fatal(err)
	}
	return s
}

func randomText(n int) string { return rand.Text()[:n] }

// user is a new user; consecutive ones are in consecutive tables.
func (s *shop) user() int64 { return s.users.Add(1) }

// neighbour is another user whose rows are in the same tables.
func neighbour(user, n int64) int64 { return user + n*sale.Tables<<20 }

// orderNo draws an order number for a user.
func (s *shop) orderNo(user int64) string { return sale.OrderNo(s.seq.Add(1), user) }

// message is a reservation of one unit of C0 by a user, under a new token.
func (s *shop) message(user int64) sale.Pending {
	return sale.Pending{
		Reservation: sale.Reservation{
			Token: "t." + rand.Text(), UserID: user, ActivityID: s.A.ID, CommodityID: "C0", Price: s.A.Items[0].Price,
			Quantity: 1, At: time.Now().Truncate(time.Millisecond).UTC(), TraceID: "trace-1",
		},
		OrderNo: s.orderNo(user), Partition: 1, Offset: 10,
	}
}

// messages are n reservations by n new users.
func (s *shop) messages(n int) []sale.Pending {
	list := make([]sale.Pending, n)
	for i := range list {
		list[i] = s.message(s.user())
	}
	return list
}

// commit must decide all.
func (s *shop) commit(batch ...sale.Pending) []sale.Decision {
	s.Helper()
	out, err := s.L.Commit(s.Context(), batch)
	if err != nil {
		s.Fatalf("Commit: %v", err)
	}
	if len(out) != len(batch) {
		s.Fatalf("Commit answered %d of %d messages", len(out), len(batch))
	}
	for i := range out {
		if out[i].Token != batch[i].Token || out[i].UserID != batch[i].UserID {
			s.Fatalf("decision %d is not about message %d: %+v", i, i, out[i])
		}
	}
	return out
}

// buy makes one order.
func (s *shop) buy(m sale.Pending) sale.Decision {
	s.Helper()
	d := s.commit(m)[0]
	if !d.Ordered || d.Status != sale.StatusPendingPayment || d.OrderNo == "" || d.Version != 1 {
		s.Fatalf("no order: %+v", d)
	}
	return d
}

// balanced checks that sold_count is what the orders say, for every item, and returns the balances.
func (s *shop) balanced() []ledger.ItemBalance {
	s.Helper()
	list, err := s.L.Balance(s.Context(), s.A.ID)
	if err != nil {
		s.Fatal(err)
	}
	for _, b := range list {
		if b.Sold != b.Orders || b.Sold > b.Total || b.Sold < 0 {
			s.Fatalf("item %s: sold %d, orders %d, total %d", b.CommodityID, b.Sold, b.Orders, b.Total)
		}
	}
	return list
}

// sold checks the units sold of C0.
func (s *shop) sold(want int64) {
	s.Helper()
	if got := s.balanced()[0].Sold; got != want {
		s.Fatalf("sold %d units of C0, want %d", got, want)
	}
}

// story checks the log of a token, written as "version:from>to:status:reason", joined by spaces.
func (s *shop) story(user int64, token, want string) {
	s.Helper()
	rows, err := s.L.TokenStory(s.Context(), user, token)
	if err != nil {
		s.Fatal(err)
	}
	var parts []string
	for _, r := range rows {
		parts = append(parts, fmt.Sprintf("%d:%s>%s:%s:%s", r.Version, r.From, r.To, r.Status, r.Reason))
		if r.ActivityID != s.A.ID || r.UserID != user || r.At.IsZero() || r.Role != "tester" || r.Node != "node-1" {
			s.Fatalf("log row without who and when: %+v", r)
		}
	}
	if got := strings.Join(parts, " "); got != want {
		s.Fatalf("story of the token\n got %s\nwant %s", got, want)
	}
}

// Defaults are the options the suite expects of Open before edit: a role and a node, as every process has them.
func Defaults(o *ledger.Options) { o.Role, o.Node = "tester", "node-1" }

func ctx(t *testing.T) context.Context { return t.Context() }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
