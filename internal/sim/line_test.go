package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// joins puts a user in line as a gateway does, the database first.
func (o *office) joins(t *testing.T, user int64) {
	t.Helper()
	at, err := o.led.JoinWaitlist(o.ctx, saleID, commodity, user)
	o.must(t, err)
	o.must(t, o.st.JoinWaitlist(o.ctx, saleID, commodity, []sale.Waiter{{UserID: user, JoinedAt: at}}))
}

// leaves takes a user out of the line as a gateway does, and thereby promises that no unit comes.
func (o *office) leaves(t *testing.T, user int64) {
	t.Helper()
	_, err := o.led.LeaveWaitlist(o.ctx, saleID, user)
	o.must(t, err)
	o.must(t, o.st.LeaveWaitlist(o.ctx, saleID, commodity, user))
}

// R12, R10: a user leaves while the line is written anew after a loss, after the reading of the list and before the writing.
// The user's unit would be an order that nobody wants, and the user's one participation in the sale.
func TestLeaverStaysOutOfARebuiltLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.order(t, o.reserve(t))
		for _, user := range []int64{2, 17} {
			o.joins(t, user)
			time.Sleep(time.Second)
		}
		o.redis.flush()
		o.lead(t, &between{name: "fill waitlist", do: func() { o.leaves(t, 2) }}, 5*time.Second)
		o.wantLine(t, 17)
		o.comesBack(t, 17)
	})
}

// R12, R10: the same, but the user joins again before the rebuild looks once more: last in line, and not taken out.
func TestRejoinedDuringARebuild(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"fill waitlist", "not waiting", "drop waiters"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t)
				for _, user := range []int64{2, 17, 18} {
					o.joins(t, user)
					time.Sleep(time.Second)
				}
				o.redis.flush()
				left := &between{name: "fill waitlist", do: func() { o.leaves(t, 2); o.leaves(t, 18) }}
				again := &between{name: when, do: func() { o.joins(t, 2) }}
				o.lead(t, both{left, again}, 5*time.Second)
				o.wantLine(t, 17, 2)
			})
		})
	}
}

// R12: Redis goes back to a time before a user left, and a unit comes before anybody has noticed: Redis only proposes.
func TestNoOfferFromAnOldLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.order(t, o.reserve(t))
		o.joins(t, 2)
		time.Sleep(time.Second)
		o.joins(t, 17)
		_, err := o.led.LeaveWaitlist(o.ctx, saleID, 2) // and Redis is as it was before
		o.must(t, err)
		o.wantLine(t, 2, 17)
		o.comesBack(t, 17)
	})
}

// both are two callers, one around the other.
type both struct{ outer, inner caller }

func (b both) call(ctx context.Context, to port, name, detail string, do func() error) error {
	return b.outer.call(ctx, to, name, detail, func() error { return b.inner.call(ctx, to, name, detail, do) })
}

func (o *office) wantLine(t *testing.T, users ...int64) {
	t.Helper()
	if got := o.redis.of(saleID).line(commodity, 10); !slices.Equal(got, users) {
		t.Errorf("in line are %v, want %v", got, users)
	}
}

// comesBack cancels the order of user 1, and looks who gets the unit.
func (o *office) comesBack(t *testing.T, want int64) {
	t.Helper()
	_, _, err := o.led.Cancel(o.ctx, sale.OrderNo(100, 1), 1)
	o.must(t, err)
	o.lead(t, &failing{}, 5*time.Second)
	k := o.redis.of(saleID)
	if len(k.occupied) != 1 {
		t.Fatalf("%d reservations from the waitlist, want 1", len(k.occupied))
	}
	for id := range k.occupied {
		if got := k.tokens[id].user; got != want {
			t.Errorf("the unit went to user %d, whom the database has as %s; want %d", got, o.db.waits[waitKey{saleID, commodity, got}].state, want)
		}
	}
}

// R12, S24: users who wait, and have bought something meanwhile, take part for good. However many of them stand in front,
// they do not keep a unit from who waits behind them.
func TestBuyersDoNotBlockTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.order(t, o.reserve(t))
		const buyers = 50 // more than are looked at for one unit
		o.db.acts[saleID].Items[0].Total += buyers
		for user := int64(101); user <= 100+buyers; user++ {
			o.joins(t, user)
			time.Sleep(time.Second)
			o.order(t, sale.Reservation{
				Token: fmt.Sprint("B", user), UserID: user, ActivityID: saleID, CommodityID: commodity, Price: decimal.New(9900, -2), Quantity: 1, At: time.Now(),
			})
		}
		o.joins(t, 17)
		o.comesBack(t, 17)
		o.wantLine(t)
	})
}

// S22: whoever waited when the line ended is told, also if the first try to end it fails half-way.
func TestLineEndsForEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.joins(t, 17)
		o.db.acts[saleID].WaitlistUntil = time.Now().Add(3 * time.Second)
		fails := 2
		o.lead(t, &failing{name: "drop waitlist", when: func(context.Context) bool { fails--; return fails >= 0 }}, 12*time.Second)
		if n := len(o.told); n == 0 || o.told[n-1].UserID != 17 || o.told[n-1].Position != 0 {
			t.Errorf("told: %+v", o.told)
		}
	})
}
