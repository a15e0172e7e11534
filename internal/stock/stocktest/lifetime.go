package stocktest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"seckill/internal/sale"
)

func testLifetime(t *testing.T, b Backend) {
	b.each(t, "Lifetime", []namedTest{
		{name: "EveryKeyEnds_S2_S27", run: everyKeyEnds},
		{name: "KeysExpire_FS098", run: keysExpire},
		{name: "LongerSaleKeepsItsKeys_R16", run: longerSale},
	})
}

// allKeys lists the keys of this sale on all nodes.
func (e *env) allKeys() []string {
	e.Helper()
	names, err := e.keys.Names(e.ctx, e.key(""))
	e.must(err)
	return names
}

// checkLifetimes checks that limiter windows end within seconds, and all other keys with the sale and its retention.
func (e *env) checkLifetimes(until time.Time) {
	e.Helper()
	names := e.allKeys()
	for _, name := range names {
		ttl, modelled, err := e.keys.Lasts(e.ctx, name)
		e.must(err)
		if !modelled {
			e.Log("not modelled: lifetimes")
			return
		}
		if strings.HasPrefix(name, e.key("rate")) {
			if ttl <= 0 || ttl > 4*time.Second {
				e.Errorf("%s ends in %v", name, ttl)
			}
			continue
		}
		if end := time.Now().Add(ttl); ttl <= 0 || end.Sub(until).Abs() > 5*time.Second {
			e.Errorf("%s ends in %v, want %v", name, ttl, time.Until(until))
		}
	}
}

// act leaves every kind of key behind.
func (e *env) act() {
	e.Helper()
	e.want(sale.ReserveAccepted)
	d := order(e.accepted())
	e.settle(d, sale.SettleDone)
	e.giveBack(d, sale.StatusClosed, 2, sale.SettleDone)
	e.settle(refusal(e.accepted(), sale.ReasonInvalid), sale.SettleDone)
	first := refusal(e.accepted(), sale.ReasonParticipated)
	first.FirstToken = "elsewhere"
	e.settle(first, sale.SettleDone)
	e.must(e.s.SetUserList(e.ctx, e.a.ID, "blocked", 1, true))
	e.must(e.s.SetUserList(e.ctx, e.a.ID, "eligible", 1, true))
	_, _, err := e.s.Limit(e.ctx, e.a.ID, 2, e.now)
	e.must(err)
	_, err = e.s.SetStatus(e.ctx, []sale.UserResult{{UserID: 3, Result: sale.Result{
		RequestToken: "back", ActivityID: e.a.ID, Status: sale.StatusPaid, Version: 2}}})
	e.must(err)
	lost := order(sale.Reservation{Token: fmt.Sprint("lost", e.user()), UserID: 4, CommodityID: "SP1", ActivityID: e.a.ID, Epoch: 0})
	e.settle(lost, sale.SettleUnknown)
}

func everyKeyEnds(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.act()
	e.checkLifetimes(e.a.KeysUntil(24 * time.Hour))
	e.a.Epoch = 2
	e.warmUp(sale.Snapshot{Blocked: []int64{1}, Eligible: []int64{2}, Entries: []sale.SnapshotEntry{e.entry("r", true, sale.StatusPaid, 2, -1)}})
	e.act()
	e.checkLifetimes(e.a.KeysUntil(24 * time.Hour))
}

// With explicit time on the stand-in, and with real time on a server: the same.
func keysExpire(t *testing.T, b Backend) {
	if b.Private != nil {
		b = b.Private(t).complete()
	}
	lasts := 3 * time.Second
	e := newEnv(t, b, func(e *env) {
		e.now = time.Now().UTC()
		e.a.StartsAt, e.a.EndsAt, e.a.WaitlistUntil = e.now.Add(-time.Hour), e.now.Add(time.Second), time.Time{}
		e.a.CloseGrace, e.a.PayWithin, e.o.Retention = 0, time.Second, lasts-2*time.Second
	})
	u := e.user()
	e.outcome(e.reserve(u, "a", "SP1", 1), sale.ReserveAccepted)
	e.act()
	if len(e.allKeys()) < 10 {
		t.Fatalf("keys %v", e.allKeys())
	}
	if b.FastForward != nil {
		b.FastForward(lasts + time.Second)
	} else {
		deadline := time.Now().Add(lasts + 5*time.Second)
		for len(e.allKeys()) > 0 && time.Now().Before(deadline) {
			time.Sleep(100 * time.Millisecond) // real time must pass on a real server
		}
	}
	if left := e.allKeys(); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	e.outcome(e.reserve(u, "a", "SP1", 1), sale.ReserveNotReady) // gone is never "sold out"
}

// A sale that is prolonged keeps the marks and tokens it has: nobody takes part twice.
func longerSale(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.act()
	before := e.a.EndsAt
	e.a.EndsAt = before.Add(72 * time.Hour)
	e.must(e.s.SetMeta(e.ctx, &e.a))
	e.act()
	e.checkLifetimes(e.a.KeysUntil(24 * time.Hour))
	// A sale that is shortened may keep marks longer than it needs; meta, which all later keys follow, is shortened.
	e.a.EndsAt = before
	e.must(e.s.SetMeta(e.ctx, &e.a))
	end := time.Now().Add(e.rdb.PTTL(e.ctx, e.key("meta")).Val())
	if end.Sub(e.a.KeysUntil(24*time.Hour)).Abs() > 5*time.Second {
		t.Fatalf("meta ends at %s", end)
	}
}
