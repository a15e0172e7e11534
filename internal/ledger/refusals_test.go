package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

// S29, R18: refusals are found by sale and time, orders and other sales are not among them.
func TestRecentRefusals(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	l := openSQLite(t, func(o *ledger.Options) { o.Now = func() time.Time { return now } })
	for _, id := range []string{"A", "B"} {
		a := sale.Activity{
			ID: id, Title: id, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PayWithin: time.Minute, State: sale.StateScheduled,
			Items: []sale.Item{{CommodityID: "C1", Title: "Item", Price: decimal.New(1, 0), Total: 1, MaxPerUser: 1}},
		}
		if err := l.CreateActivity(t.Context(), &a); err != nil {
			t.Fatal(err)
		}
	}
	numbers := int64(0)
	commit := func(activity string, user int64) {
		t.Helper()
		numbers++
		m := sale.Pending{OrderNo: sale.OrderNo(numbers, user)}
		m.Reservation = sale.Reservation{
			Token: fmt.Sprintf("token-%s-%d", activity, user), UserID: user, ActivityID: activity, CommodityID: "C1",
			Quantity: 1, Price: decimal.New(1, 0), At: now,
		}
		if _, err := l.Commit(t.Context(), []sale.Pending{m}); err != nil {
			t.Fatal(err)
		}
	}
	commit("A", 1) // the only unit
	commit("A", 2)
	commit("B", 1)
	commit("B", 3)
	now = now.Add(time.Minute)
	commit("A", 4)
	tokens := func(ids []string, since time.Time, limit int) (list []string) {
		t.Helper()
		ds, err := l.RecentRefusals(t.Context(), ids, since, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			if d.Ordered || d.Status != sale.StatusSoldOut || d.Version != 1 {
				t.Errorf("%+v is no refusal", d)
			}
			list = append(list, d.Token)
		}
		slices.Sort(list)
		return list
	}
	if got := tokens([]string{"A", "bad id"}, now.Add(-time.Minute), 100); !slices.Equal(got, []string{"token-A-2", "token-A-4"}) {
		t.Errorf("of A: %v", got)
	}
	if got := tokens([]string{"A", "B"}, now.Add(-time.Second), 100); !slices.Equal(got, []string{"token-A-4"}) {
		t.Errorf("the latest: %v", got)
	}
	if got := tokens([]string{"A", "B"}, now.Add(-time.Hour), 2); len(got) != 2 {
		t.Errorf("two at most: %v", got)
	}
	if got := tokens(nil, now.Add(-time.Hour), 100); got != nil {
		t.Errorf("of no sale: %v", got)
	}
}
