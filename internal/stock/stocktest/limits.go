package stocktest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"seckill/internal/sale"
	"seckill/internal/stock"
)

func testLimits(t *testing.T, b Backend) {
	b.each(t, "Limits", []namedTest{
		{name: "UserWindowSlides_S5", run: userWindowSlides},
		{name: "TokenRouteSharesTheWindow_S5", run: tokenRouteShares},
		{name: "RetryAfterIsTrue_S5", run: retryAfterIsTrue},
		{name: "SpoiltWindowHeals_FS032", run: spoiltWindowHeals},
		{name: "ClocksOfGatewaysDiffer", run: clocksDiffer},
		{name: "SaleWindow_S4", run: saleWindowLimits},
		{name: "SystemQuota_S4", run: systemQuota, alone: true},
	})
}

func limited(perUser int) func(e *env) {
	return func(e *env) { e.o.UserPerSecond = perUser; e.a.Items[0].Total = 1000 }
}

// Never more than 3 in any second, whatever the outcome; and three again a second later.
func userWindowSlides(t *testing.T, b Backend) {
	e := newEnv(t, b, limited(3))
	u := e.user()
	var allowed []time.Time
	for range 400 {
		e.now = e.now.Add(25 * time.Millisecond)
		r := e.reserve(u, "same", "SP1", 1)
		if r.Outcome == sale.ReserveRateLimited {
			continue
		}
		allowed = append(allowed, e.now)
	}
	if len(allowed) != 30 {
		t.Fatalf("%d requests passed in 10 s", len(allowed))
	}
	for i := range allowed {
		n := 0
		for _, at := range allowed[i:] {
			if at.Sub(allowed[i]) < time.Second {
				n++
			}
		}
		if n > 3 {
			t.Fatalf("%d requests passed within a second", n)
		}
	}
	// Others are not concerned, and refusals count as requests.
	v := e.user()
	for range 3 {
		e.outcome(e.reserve(v, "v", "SP9", 1), sale.ReserveUnknownItem)
	}
	e.outcome(e.reserve(v, "v", "SP9", 1), sale.ReserveRateLimited)
	e.outcome(e.reserve(e.user(), "w", "SP1", 1), sale.ReserveAccepted)
	// In one batch too.
	x := e.user()
	req := sale.ReserveRequest{Token: "x", UserID: x, CommodityID: "SP1", Quantity: 1}
	r := e.batch(req, req, req, req, req)
	for i, want := range []sale.ReserveOutcome{
		sale.ReserveAccepted, sale.ReserveRepeat, sale.ReserveRepeat, sale.ReserveRateLimited, sale.ReserveRateLimited,
	} {
		e.outcome(r[i], want)
	}
}

func tokenRouteShares(t *testing.T, b Backend) {
	e := newEnv(t, b, limited(3))
	u := e.user()
	for range 2 {
		ok, after, err := e.s.Limit(e.ctx, e.a.ID, u, e.now)
		e.must(err)
		if !ok || after != 0 {
			t.Fatalf("allowed %v, after %v", ok, after)
		}
	}
	e.outcome(e.reserve(u, "a", "SP1", 1), sale.ReserveAccepted)
	e.outcome(e.reserve(u, "a", "SP1", 1), sale.ReserveRateLimited)
	ok, after, err := e.s.Limit(e.ctx, e.a.ID, u, e.now)
	e.must(err)
	if ok || after <= 0 {
		t.Fatalf("allowed %v, after %v", ok, after)
	}
	if _, _, err := e.s.Limit(e.ctx, e.a.ID, 0, e.now); err == nil {
		t.Fatal("user 0 has a window")
	}
}

// One who waits exactly as long as told passes; a millisecond less does not.
func retryAfterIsTrue(t *testing.T, b Backend) {
	for _, offset := range []int{0, 1, 250, 333, 500, 777, 999} {
		e := newEnv(t, b, limited(3))
		u := e.user()
		e.now = e.now.Add(time.Duration(offset) * time.Millisecond)
		for round := range 6 {
			var r sale.ReserveReply
			for r = e.reserve(u, "a", "SP1", 1); r.Outcome != sale.ReserveRateLimited; {
				r = e.reserve(u, "a", "SP1", 1)
			}
			if r.RetryAfter <= 0 || r.RetryAfter > 2*time.Second || r.RetryAfter%time.Millisecond != 0 {
				t.Fatalf("retry after %v", r.RetryAfter)
			}
			e.now = e.now.Add(r.RetryAfter - time.Millisecond)
			if early := e.reserve(u, "a", "SP1", 1); early.Outcome != sale.ReserveRateLimited {
				t.Fatalf("offset %d round %d: told to wait %v, passed a millisecond earlier", offset, round, r.RetryAfter)
			}
			e.now = e.now.Add(time.Millisecond)
			if r := e.reserve(u, "a", "SP1", 1); r.Outcome == sale.ReserveRateLimited {
				t.Fatalf("offset %d round %d: waited as told, still limited for %v", offset, round, r.RetryAfter)
			}
		}
	}
}

// FS-032: a window left without a TTL, of another type or full of nonsense blocks nobody for long, and gets a TTL.
func spoiltWindowHeals(t *testing.T, b Backend) {
	e := newEnv(t, b, limited(3))
	second := fmt.Sprintf("%d", e.now.Unix())
	full := strings.Repeat(fmt.Sprintf("%d", e.now.UnixMilli()), 3)
	for name, spoil := range map[string]func(key string) error{
		"counter above the limit": func(key string) error { return e.rdb.Set(e.ctx, key, "999999", 0).Err() },
		"full window without TTL": func(key string) error { return e.rdb.Set(e.ctx, key, full, 0).Err() },
		"far future":              func(key string) error { return e.rdb.Set(e.ctx, key, strings.Repeat("9", 39), 0).Err() },
		"infinity":                func(key string) error { return e.rdb.Set(e.ctx, key, strings.Repeat("9", 400), 0).Err() },
		"no number":               func(key string) error { return e.rdb.Set(e.ctx, key, "nan", 0).Err() },
		"fraction":                func(key string) error { return e.rdb.Set(e.ctx, key, full[:11]+".5", 0).Err() },
		"a hash":                  func(key string) error { return e.rdb.HSet(e.ctx, key, "n", "9").Err() },
		"a list":                  func(key string) error { return e.rdb.LPush(e.ctx, key, "9").Err() },
	} {
		u := e.user()
		key := e.key(fmt.Sprintf("rate:%d", u))
		e.must(spoil(key))
		later := e.now.Add(2 * time.Second) // one window
		r, err := e.s.Reserve(e.ctx, e.a.ID, later, []sale.ReserveRequest{{
			Token: fmt.Sprint("r", u), UserID: u, CommodityID: "SP1", Quantity: 1}})
		e.must(err)
		if r[0].Outcome != sale.ReserveAccepted {
			t.Errorf("%s: %q after a window", name, r[0].Outcome)
		}
		if ttl := e.rdb.PTTL(e.ctx, key).Val(); ttl <= 0 || ttl > 4*time.Second {
			t.Errorf("%s: TTL %v", name, ttl)
		}
		e.must(e.rdb.Del(e.ctx, key).Err())
		e.must(spoil(key))
		ok, _, err := e.s.Limit(e.ctx, e.a.ID, u, later)
		e.must(err)
		if ttl := e.rdb.PTTL(e.ctx, key).Val(); !ok || ttl <= 0 || ttl > 4*time.Second {
			t.Errorf("%s: limit allows %v, TTL %v", name, ok, ttl)
		}
	}
	for name, spoil := range map[string]func(key string) error{
		"a string":     func(key string) error { return e.rdb.Set(e.ctx, key, "9", 0).Err() },
		"full, no TTL": func(key string) error { return e.rdb.HSet(e.ctx, key, "bucket", second, "count", "99999999").Err() },
		"nonsense":     func(key string) error { return e.rdb.HSet(e.ctx, key, "bucket", "x", "last", "y", "count", "z").Err() },
		"far future": func(key string) error {
			return e.rdb.HSet(e.ctx, key, "bucket", "99999999999", "count", "99999999").Err()
		},
		"missing fields": func(key string) error { return e.rdb.HSet(e.ctx, key, "other", "1").Err() },
	} {
		e.must(e.rdb.Del(e.ctx, e.key("rate")).Err())
		e.must(spoil(e.key("rate")))
		e.now = e.now.Add(2 * time.Second)
		e.want(sale.ReserveAccepted)
		if ttl := e.rdb.PTTL(e.ctx, e.key("rate")).Val(); ttl <= 0 || ttl > 4*time.Second {
			t.Errorf("sale's window, %s: TTL %v", name, ttl)
		}
	}
}

// A gateway whose clock is a second behind neither resets the window nor is reset by it.
func clocksDiffer(t *testing.T, b Backend) {
	e := newEnv(t, b, limited(3))
	u := e.user()
	passed := 0
	for i := range 20 {
		at := e.now
		if i%2 == 1 {
			at = at.Add(-time.Second + time.Millisecond)
		}
		ok, _, err := e.s.Limit(e.ctx, e.a.ID, u, at)
		e.must(err)
		if ok {
			passed++
		}
	}
	if passed != 3 {
		t.Fatalf("%d passed", passed)
	}
}

func saleWindowLimits(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.o.SalePerSecond = 5; e.a.Items[0].Total = 100 })
	for range 5 {
		e.want(sale.ReserveAccepted)
	}
	r := e.want(sale.ReserveSaleLimited)
	if r.RetryAfter <= 0 || r.RetryAfter > 2*time.Second {
		t.Fatalf("retry after %v", r.RetryAfter)
	}
	u := e.user()
	e.outcome(e.reserve(u, "u", "SP1", 1), sale.ReserveSaleLimited)
	e.takesPart(u, "")
	e.stock("SP1", 95) // a limited request takes nothing
	// A second store shares the window, as a second gateway does.
	other := *e
	other.s = e.b.Open(e.o)
	other.outcome(other.reserve(u, "u", "SP1", 1), sale.ReserveSaleLimited)
	// In one batch too; and the last unit behind a full window is not "sold out".
	g := newEnv(t, b, func(e *env) { e.o.SalePerSecond = 2; e.a.Items[0].Total = 3 })
	var reqs []sale.ReserveRequest
	for i := range int64(4) {
		reqs = append(reqs, sale.ReserveRequest{Token: fmt.Sprint("g", i), UserID: i + 1, CommodityID: "SP1", Quantity: 1})
	}
	answers := g.batch(reqs...)
	for i, want := range []sale.ReserveOutcome{
		sale.ReserveAccepted, sale.ReserveAccepted, sale.ReserveSaleLimited, sale.ReserveSaleLimited,
	} {
		g.outcome(answers[i], want)
	}
	g.stock("SP1", 1)
	e.now = e.now.Add(r.RetryAfter)
	e.outcome(e.reserve(u, "u", "SP1", 1), sale.ReserveAccepted)
	total := 6
	for range 100 {
		e.now = e.now.Add(50 * time.Millisecond)
		v := e.user()
		if e.reserve(v, fmt.Sprint("v", v), "SP1", 1).Outcome == sale.ReserveAccepted {
			total++
		}
	}
	if total < 25 || total > 33 {
		t.Fatalf("%d reservations in 6 s at 5/s", total)
	}
}

// The window of the whole system is one key of a server, so this test names a time nobody else uses and is alone.
func systemQuota(t *testing.T, b Backend) {
	const key = "seckill:{system}:rate"
	ctx := t.Context()
	clean := func() { _ = b.Client.Del(t.Context(), key).Err() }
	clean()
	s := stock.New(b.Client, stock.Options{SystemPerSecond: 1000})
	now := time.Now().Truncate(time.Second)
	lease := func(at time.Time, n, want int) {
		t.Helper()
		got, err := s.SystemQuota(ctx, at, n)
		if err != nil || got != want {
			t.Fatalf("granted %d (%v), want %d", got, err, want)
		}
	}
	lease(now, 400, 400)
	lease(now, 400, 400)
	lease(now, 400, 200) // the rest
	lease(now, 1, 0)
	lease(now, 0, 0)
	lease(now, -5, 0)
	if ttl := b.Client.PTTL(ctx, key).Val(); ttl <= 0 || ttl > 4*time.Second {
		t.Fatalf("TTL %v", ttl)
	}
	lease(now.Add(1500*time.Millisecond), 1000, 500) // half of the last second still counts
	lease(now.Add(4*time.Second), 1000, 1000)
	if err := b.Client.Del(ctx, key).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Client.Set(ctx, key, "spoilt", 0).Err(); err != nil {
		t.Fatal(err)
	}
	lease(now.Add(8*time.Second), 10, 10) // FS-032
	clean()
}
