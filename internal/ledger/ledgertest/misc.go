package ledgertest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

func miscTests(t *testing.T, s *suite) {
	s.each(t, map[string]func(*testing.T, Open){
		"S1 user lists":               userLists,
		"R17 S15 leases":              leases,
		"FS-096 lease has one winner": leaseRace,
		"FS-059 admin log":            adminLog,
		"schema":                      schema,
	})
}

func userLists(t *testing.T, open Open) {
	s := newShop(t, open, func(o *ledger.Options) { o.MaxUsers = 3 }, 1)
	set := func(list string, user int64, on bool) {
		t.Helper()
		must(t, s.L.SetUserList(ctx(t), s.A.ID, list, user, on))
	}
	check := func(list string, want ...int64) {
		t.Helper()
		if got, err := s.L.UserList(ctx(t), s.A.ID, list); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: %v %v, want %v", list, got, err, want)
		}
	}
	check(ledger.ListBlocked)
	set(ledger.ListBlocked, 20, true)
	set(ledger.ListBlocked, 10, true)
	set(ledger.ListBlocked, 10, true)
	set(ledger.ListEligible, 30, true)
	check(ledger.ListBlocked, 10, 20)
	check(ledger.ListEligible, 30)
	set(ledger.ListBlocked, 10, false)
	set(ledger.ListBlocked, 10, false)
	check(ledger.ListBlocked, 20)
	for user := range int64(3) {
		set(ledger.ListBlocked, user+1, true)
	}
	if got, err := s.L.UserList(ctx(t), s.A.ID, ledger.ListBlocked); err == nil {
		t.Fatalf("a part of a longer list was given as the list: %v", got)
	}
	if err := s.L.SetUserList(ctx(t), "no-such-id", ledger.ListBlocked, 1, true); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("unknown activity: %v", err)
	}
	for _, bad := range []struct {
		list string
		user int64
	}{{"vip", 1}, {"", 1}, {ledger.ListBlocked, 0}, {ledger.ListBlocked, -1}} {
		if err := s.L.SetUserList(ctx(t), s.A.ID, bad.list, bad.user, true); sale.CodeOf(err) != sale.CodeInvalidRequest {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func leases(t *testing.T, open Open) {
	l := open(t, nil)
	name := "leader-" + randomText(10)
	take := func(holder string, ttl time.Duration) (int64, error) {
		return l.AcquireLease(ctx(t), name, holder, ttl)
	}
	conflict := func(err error) {
		t.Helper()
		if !errors.Is(err, sale.ErrConflict) {
			t.Fatalf("got %v, want ErrConflict", err)
		}
	}
	f1, err := take("a", time.Hour)
	must(t, err)
	_, err = take("b", time.Hour)
	conflict(err)
	again, err := take("a", time.Hour) // by a process of the same name: the one before is fenced off
	if err != nil || again <= f1 {
		t.Fatalf("taken again: fence %d, %v, after %d", again, err, f1)
	}
	conflict(l.RenewLease(ctx(t), name, "a", f1, time.Hour))
	f1 = again
	must(t, l.RenewLease(ctx(t), name, "a", f1, time.Hour))
	conflict(l.RenewLease(ctx(t), name, "b", f1, time.Hour))
	conflict(l.RenewLease(ctx(t), name, "a", f1+1, time.Hour))
	conflict(l.ReleaseLease(ctx(t), name, "b", f1))
	must(t, l.ReleaseLease(ctx(t), name, "a", f1))
	conflict(l.RenewLease(ctx(t), name, "a", f1, time.Hour))
	f2, err := take("b", time.Millisecond)
	if err != nil || f2 <= f1 {
		t.Fatalf("fence %d after %d, %v", f2, f1, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; { // it runs out by the database's clock
		f3, err := take("a", time.Hour)
		if err == nil {
			if f3 <= f2 {
				t.Fatalf("fence %d after %d", f3, f2)
			}
			break
		}
		conflict(err)
		if time.Now().After(deadline) {
			t.Fatal("the lease never ran out")
		}
	}
	conflict(l.RenewLease(ctx(t), name, "b", f2, time.Hour))
	for _, bad := range []string{"", "\u00e9", strings.Repeat("x", 129)} {
		if _, err := l.AcquireLease(ctx(t), name, bad, time.Hour); sale.CodeOf(err) != sale.CodeInvalidRequest {
			t.Errorf("holder %.20q: %v", bad, err)
		}
	}
}

// Of eight that want a lease at the same moment one gets it: a lease nobody ever had, and one that was given up.
func leaseRace(t *testing.T, open Open) {
	l := open(t, nil)
	for range 5 {
		name := "node-" + randomText(10)
		var last int64
		for range 3 {
			type win struct {
				holder string
				fence  int64
			}
			won := make(chan win, 8)
			for i := range cap(won) {
				go func() {
					holder := string(rune('a' + i))
					fence, err := l.AcquireLease(ctx(t), name, holder, time.Hour)
					if err != nil && !errors.Is(err, sale.ErrConflict) {
						t.Errorf("acquire: %v", err)
					}
					won <- win{holder, fence}
				}()
			}
			var winners []win
			for range cap(won) {
				if w := <-won; w.fence > 0 {
					winners = append(winners, w)
				}
			}
			if len(winners) != 1 || winners[0].fence <= last {
				t.Fatalf("holders of one lease: %+v, fence before: %d", winners, last)
			}
			last = winners[0].fence
			must(t, l.ReleaseLease(ctx(t), name, winners[0].holder, last))
		}
	}
}

func adminLog(t *testing.T, open Open) {
	l := open(t, nil)
	must(t, l.AdminLog(ctx(t), "root \U00023FB7", "pause", "A-1", "{\"why\":\"\U0001F6D1\"}"))
	must(t, l.AdminLog(ctx(t), strings.Repeat("\U0001F6D1", 300), strings.Repeat("x", 300), "", strings.Repeat("\U0001F6D1", 50_000)+"\xff"))
	if err := l.AdminLog(ctx(t), "root", "pause", "bad id", ""); !errors.Is(err, sale.ErrBadID) {
		t.Fatalf("bad activity id: %v", err)
	}
}

func schema(t *testing.T, open Open) {
	l := open(t, nil)
	must(t, l.Ping(ctx(t)))
	must(t, l.CheckSchema(ctx(t)))
	must(t, l.Migrate(ctx(t))) // nothing to do
	must(t, l.CheckSchema(ctx(t)))
}
