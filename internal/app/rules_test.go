package app_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"seckill/internal/apiclient"
	"seckill/internal/app"
	"seckill/internal/ledger"
)

// R8: a payment is committed by a process that dies before it tells anyone. The row says that nobody was told: the
// reconciler writes the status to Redis, the user's socket gets it, and the row then says so.
func TestPaymentOfADeadProcessIsTold(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	const id = 9301
	u := user(t, id)
	frames := s.socket(t, u, act)
	token, r := s.buy(t, u, act, "C1")
	db := s.app.Config().Database
	l, err := ledger.Open(t.Context(), ledger.Options{Driver: db.Driver, DSN: db.DSN})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if o, changed, err := l.Pay(t.Context(), r.OrderNo, id, time.Now(), "a process that dies"); err != nil || !changed || o.ToldVersion != 1 {
		t.Fatalf("pay: %+v %v %v", o, changed, err)
	}
	if f := next(t, frames, resultOf(token, "paid")); f.Version != 2 {
		t.Errorf("told %+v", f)
	}
	if status, err := s.redis(t).HGet(t.Context(), "seckill:{"+act+"}:token:"+token, "status").Result(); err != nil || status != "paid" {
		t.Errorf("redis says %q, %v", status, err)
	}
	var told int64
	for range 100 { // the row follows
		o, err := l.OrderByNo(t.Context(), r.OrderNo)
		if err != nil {
			t.Fatal(err)
		}
		if told = o.ToldVersion; told == 2 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if told != 2 {
		t.Errorf("told version %d, want 2", told)
	}
}

// ownShop starts a second process for one test, configured in its own way.
func ownShop(t *testing.T, edit func(*app.Config)) *shop {
	t.Helper()
	cfg := testConfig()
	edit(&cfg)
	a, err := app.New(cfg, app.AllRoles(), slog.New(slog.DiscardHandler))
	if err == nil {
		err = a.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Stop() })
	return &shop{app: a, api: apiclient.New("http://"+a.Addr(app.RoleGateway), 10), admin: adminPass}
}

// S25, R13: nobody asks for it, and yet an audit by schedule finds a unit too many, a mark without an order and an order
// without its mark, and mends them at its next look; a sale in which nothing is wrong is left as it is.
func TestScheduledAuditMends(t *testing.T) {
	t.Parallel()
	s := ownShop(t, func(cfg *app.Config) { cfg.Reconciler.AuditInterval = time.Second })
	act, good := s.openSale(t, item("C1", 10)), s.openSale(t, item("C1", 10))
	token, _ := s.buy(t, user(t, 9304), act, "C1")
	s.buy(t, user(t, 9304), good, "C1")
	rdb := s.redis(t)
	ctx := context.Background()
	key := "seckill:{" + act + "}:"
	for _, err := range []error{
		rdb.Incr(ctx, key+"stock:C1").Err(), rdb.Del(ctx, key+"user:9304").Err(), rdb.Set(ctx, key+"user:9305", "nothing.behind."+act, 0).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mended := func() bool {
		return rdb.Get(ctx, key+"stock:C1").Val() == "9" && rdb.Get(ctx, key+"user:9304").Val() == token && rdb.Exists(ctx, key+"user:9305").Val() == 0
	}
	for start := time.Now(); !mended(); time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("stock %s, marks %q and %q", rdb.Get(ctx, key+"stock:C1").Val(), rdb.Get(ctx, key+"user:9304").Val(), rdb.Get(ctx, key+"user:9305").Val())
		}
	}
	if n := rdb.Get(ctx, "seckill:{"+good+"}:stock:C1").Val(); n != "9" {
		t.Errorf("the other sale has %s units", n)
	}
}

// S27: when a settled sale's retention is over, a job removes by prefix what a lifetime was lost on, and no other sale's
// keys.
func TestCleanUpAfterTheRetention(t *testing.T) {
	t.Parallel()
	s := ownShop(t, func(cfg *app.Config) { cfg.Retention = 2 * time.Second })
	now := time.Now()
	short, long := uniqueID(), uniqueID()
	for id, ends := range map[string]time.Time{short: now.Add(1500 * time.Millisecond), long: now.Add(time.Hour)} {
		body := map[string]any{
			"activityId": id, "title": "T", "startsAt": now.Add(-time.Second).UnixMilli(), "endsAt": ends.UnixMilli(),
			"waitlistUntil": ends.UnixMilli(), "payWithin": "1s", "closeGrace": "0s",
			"items": []map[string]any{{"commodityId": "C1", "title": "T", "price": "1.00", "total": 5}},
		}
		if _, err := s.api.Admin(t.Context(), s.admin, "", "", body); err != nil {
			t.Fatal(err)
		}
		if _, err := s.api.Admin(t.Context(), s.admin, id, "warm-up", nil); err != nil {
			t.Fatal(err)
		}
	}
	rdb := s.redis(t)
	ctx := context.Background()
	endless := "seckill:{" + short + "}:user:42"
	if err := rdb.Set(ctx, endless, "a mark whose lifetime was lost", 0).Err(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for rdb.Exists(ctx, endless).Val() == 1 {
		if time.Since(start) > 30*time.Second {
			act, _ := s.api.Activity(ctx, short)
			t.Fatalf("the key is still there; the sale is %s", act.State)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if keys := rdb.Keys(ctx, "seckill:{"+short+"}:*").Val(); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
	if rdb.Exists(ctx, "seckill:{"+long+"}:meta", "seckill:{"+long+"}:stock:C1").Val() != 2 {
		t.Error("the other sale lost keys")
	}
	if _, r := s.buy(t, user(t, 9302), long, "C1"); r.Status != "pending_payment" && r.Status != "closed" {
		t.Errorf("the other sale: %+v", r)
	}
}
