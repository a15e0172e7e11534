package ledgertest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

func activityTests(t *testing.T, s *suite) {
	s.one(t, "FS-034 FS-059 round trip is exact", roundTrip)
	s.one(t, "FS-060 money is exact", money)
	s.one(t, "S34 states are conditional", states)
	s.one(t, "list is newest first and bounded", list)
	s.one(t, "bad input", badActivity)
}

// Milliseconds, four-byte characters, every field: what goes in comes out, whatever zone the caller thinks in.
func roundTrip(t *testing.T, open Open) {
	l := open(t, nil)
	zone := time.FixedZone("odd", 5*3600+45*60)
	a := &sale.Activity{
		ID: "A-" + randomText(10), Title: "\U00023FB7 春节 \U0001F9E8 'quoted' \\ \"", State: sale.StateDraft,
		StartsAt: time.Date(2026, 3, 29, 2, 30, 0, 123e6, zone), EndsAt: time.Date(2026, 10, 25, 1, 30, 0, 999e6, zone),
		PayWithin: 90 * time.Second, CloseGrace: 0, AllowList: true,
		Items: []sale.Item{
			{CommodityID: "zz", Title: "first \U0001F382", Price: decimal.RequireFromString("0.01"), Total: 1, MaxPerUser: 1},
			{CommodityID: "aa", Title: "second", Price: decimal.RequireFromString("99999999.99"), Total: sale.MaxStock, MaxPerUser: 1},
		},
	}
	must(t, l.CreateActivity(ctx(t), a))
	got, err := l.Activity(ctx(t), a.ID)
	must(t, err)
	want := *a
	want.StartsAt, want.EndsAt = a.StartsAt.UTC(), a.EndsAt.UTC()
	want.WaitlistUntil = want.EndsAt.Add(sale.DefaultWaitlistAfterEnd)
	for i := range got.Items {
		if !got.Items[i].Price.Equal(want.Items[i].Price) {
			t.Fatalf("price %s, want %s", got.Items[i].Price, want.Items[i].Price)
		}
		got.Items[i].Price = want.Items[i].Price // equal numbers may differ inside
	}
	if !reflect.DeepEqual(got, &want) {
		t.Fatalf("read back\n got %+v\nwant %+v", got, &want)
	}
	if err := l.CreateActivity(ctx(t), a); !errors.Is(err, sale.ErrExists) {
		t.Fatalf("second create: %v, want ErrExists", err)
	}
	if _, err := l.Activity(ctx(t), "no-such-id"); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("unknown id: %v, want ErrNotFound", err)
	}
}

func money(t *testing.T, open Open) {
	s := newShop(t, open, nil, 100)
	for _, c := range []struct {
		price    string
		quantity int
		amount   string
	}{
		{"0.10", 3, "0.30"}, {"19.99", 1, "19.99"}, {"0.07", 5, "0.35"}, {"99999999.99", 1, "99999999.99"}, {"0.00", 2, "0.00"},
	} {
		a := *s.A
		a.ID = "M-" + randomText(10)
		a.Items = []sale.Item{{CommodityID: "C0", Title: "x", Price: decimal.RequireFromString(c.price), Total: 10, MaxPerUser: c.quantity}}
		must(t, s.L.CreateActivity(ctx(t), &a))
		m := s.message(s.user())
		m.ActivityID, m.Price, m.Quantity = a.ID, a.Items[0].Price, c.quantity
		d := s.buy(m)
		o, err := s.L.OrderByNo(ctx(t), d.OrderNo)
		must(t, err)
		if o.PayAmount != c.amount {
			t.Errorf("%s x %d is stored as %s, want %s", c.price, c.quantity, o.PayAmount, c.amount)
		}
		again := s.commit(m)[0]
		if !again.Price.Equal(m.Price) {
			t.Errorf("unit price came back as %s, want %s", again.Price, m.Price)
		}
	}
	for _, price := range []string{"0.0003", "100000000.00", "-1"} { // and one cent more than the column holds
		a := *s.A
		a.ID = "M-" + randomText(10)
		a.Items = []sale.Item{{CommodityID: "C0", Title: "x", Price: decimal.RequireFromString(price), Total: 10, MaxPerUser: 1}}
		if err := s.L.CreateActivity(ctx(t), &a); sale.CodeOf(err) != sale.CodeInvalidRequest {
			t.Errorf("price %s: %v, want invalid_request", price, err)
		}
	}
}

func states(t *testing.T, open Open) {
	s := newShop(t, open, nil, 1)
	must(t, s.L.SetActivityState(ctx(t), s.A.ID, []sale.State{sale.StateScheduled, sale.StateDraft}, sale.StatePaused))
	err := s.L.SetActivityState(ctx(t), s.A.ID, []sale.State{sale.StateScheduled}, sale.StateEnded)
	if !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("from a state it is not in: %v, want ErrConflict", err)
	}
	// A change to the state it has is a change that met its condition, not a miss (FS-056).
	must(t, s.L.SetActivityState(ctx(t), s.A.ID, []sale.State{sale.StatePaused}, sale.StatePaused))
	err = s.L.SetActivityState(ctx(t), "no-such-id", []sale.State{sale.StateDraft}, sale.StateEnded)
	if !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("unknown id: %v, want ErrNotFound", err)
	}
	if err := s.L.SetActivityState(ctx(t), s.A.ID, []sale.State{sale.StatePaused}, sale.StateOpen); !errors.Is(err, sale.ErrWrongState) {
		t.Fatalf("open is never stored: %v", err)
	}
	end := start().Add(7 * time.Hour)
	must(t, s.L.Reschedule(ctx(t), s.A.ID, start().Add(time.Hour), end))
	a, err := s.L.Activity(ctx(t), s.A.ID)
	must(t, err)
	if !a.EndsAt.Equal(end) || a.State != sale.StatePaused || !a.WaitlistUntil.Equal(end.Add(sale.DefaultWaitlistAfterEnd)) {
		t.Fatalf("rescheduled to %v, waitlist until %v, state %s", a.EndsAt, a.WaitlistUntil, a.State)
	}
	if err := s.L.Reschedule(ctx(t), s.A.ID, end, end); sale.CodeOf(err) != sale.CodeInvalidRequest {
		t.Fatalf("empty window: %v", err)
	}
}

func list(t *testing.T, open Open) {
	const most = 3
	s := newShop(t, open, func(o *ledger.Options) { o.MaxList = most }, 1)
	far := time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)
	var ids []string
	for i := range most + 1 {
		a := *s.A
		a.ID = "L-" + randomText(10)
		a.StartsAt, a.EndsAt = far.Add(time.Duration(i)*time.Hour), far.Add(time.Duration(i+1)*time.Hour)
		must(t, s.L.CreateActivity(ctx(t), &a))
		ids = append(ids, a.ID)
	}
	got, err := s.L.Activities(ctx(t))
	must(t, err)
	if len(got) != most || got[0].ID != ids[most] || got[2].ID != ids[1] || len(got[2].Items) != 1 {
		t.Fatalf("got %d activities, want the %d newest, newest first, with items", len(got), most)
	}
}

func badActivity(t *testing.T, open Open) {
	l := open(t, nil)
	ok := sale.Activity{
		ID: "B-" + randomText(10), Title: "x", StartsAt: start(), EndsAt: start().Add(time.Hour), PayWithin: time.Minute,
		Items: []sale.Item{{CommodityID: "C", Title: "x", Price: decimal.NewFromInt(1), Total: 1, MaxPerUser: 1}},
	}
	for name, edit := range map[string]func(a *sale.Activity){
		"id":        func(a *sale.Activity) { a.ID = "has space" },
		"half sec":  func(a *sale.Activity) { a.PayWithin = 1500 * time.Millisecond },
		"no items":  func(a *sale.Activity) { a.Items = nil },
		"open":      func(a *sale.Activity) { a.State = sale.StateOpen },
		"bad utf-8": func(a *sale.Activity) { a.Title = "\xff" },
	} {
		a := ok
		edit(&a)
		if err := l.CreateActivity(ctx(t), &a); sale.CodeOf(err) != sale.CodeInvalidRequest {
			t.Errorf("%s: %v, want invalid_request", name, err)
		}
	}
}
