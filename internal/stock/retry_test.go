package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/sale"
	"seckill/internal/testenv"
)

// replyLoser is a go-redis hook whose connections lose the answer to the next call of one script: the server has run it,
// the client sees a broken connection and calls again by itself.
type replyLoser struct {
	digest atomic.Pointer[string]
	lost   atomic.Int64
}

func (l *replyLoser) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &losingConn{Conn: c, from: l}, nil
	}
}
func (l *replyLoser) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *replyLoser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type losingConn struct {
	net.Conn
	from *replyLoser
	lose atomic.Bool
}

func (c *losingConn) Write(p []byte) (int, error) {
	if d := c.from.digest.Load(); d != nil && bytes.Contains(p, []byte(*d)) && c.from.digest.CompareAndSwap(d, nil) {
		c.lose.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *losingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.lose.Load() {
		c.from.lost.Add(1)
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// call is one operation of a Store on its way through one script.
type call struct {
	script string
	do     func(s *Store, a *sale.Activity, now time.Time) (any, error)
	// again is what a caller may be told when the first answer was lost; nil: the same as without the loss.
	again any
	err   error // the same for its error
}

func retryReservation(a *sale.Activity, user int64, now time.Time) sale.Reservation {
	return sale.Reservation{
		Token: fmt.Sprintf("tok%d", user), UserID: user, ActivityID: a.ID, CommodityID: "C1", Price: decimal.New(990, -2),
		Quantity: 1, Epoch: 2, At: now.Truncate(time.Millisecond),
	}
}

func retryOrder(a *sale.Activity, user int64, now time.Time) sale.Decision {
	return sale.Decision{Reservation: retryReservation(a, user, now), Ordered: true, OrderNo: "12301", Status: sale.StatusPendingPayment, Version: 1}
}

func retryReturn(a *sale.Activity, user int64) sale.Return {
	return sale.Return{Token: fmt.Sprintf("tok%d", user), UserID: user, ActivityID: a.ID, CommodityID: "C1", Quantity: 1, OrderNo: "12301", Status: sale.StatusClosed, Version: 2}
}

// reserveOf returns the outcomes alone: the rest depends on the clock.
func reserveOf(s *Store, a *sale.Activity, now time.Time, users ...int64) (any, error) {
	var reqs []sale.ReserveRequest
	for _, u := range users {
		reqs = append(reqs, sale.ReserveRequest{Token: fmt.Sprintf("tok%d", u), UserID: u, CommodityID: "C1", Quantity: 1})
	}
	replies, err := s.Reserve(context.Background(), a.ID, now, reqs)
	var out []sale.ReserveOutcome
	for _, r := range replies {
		out = append(out, r.Outcome)
	}
	return out, err
}

// retryCalls is a sale's life, in the order of its steps; every script is in it.
func retryCalls() []call {
	ctx := context.Background()
	none := func(f func(s *Store, a *sale.Activity) error) func(*Store, *sale.Activity, time.Time) (any, error) {
		return func(s *Store, a *sale.Activity, _ time.Time) (any, error) { return nil, f(s, a) }
	}
	finish := none(func(s *Store, a *sale.Activity) error {
		old := retryOrder(a, 90, time.UnixMilli(1_700_000_000_000))
		return s.FinishRebuild(ctx, &sale.Snapshot{Activity: *a, Blocked: []int64{91}, Entries: []sale.SnapshotEntry{{Decision: old, Returned: -1}}}, 2)
	})
	begin := none(func(s *Store, a *sale.Activity) error { return s.BeginRebuild(ctx, *a, 2) })
	settle := func(ds ...func(*sale.Activity, time.Time) sale.Decision) func(*Store, *sale.Activity, time.Time) (any, error) {
		return func(s *Store, a *sale.Activity, now time.Time) (any, error) {
			var list []sale.Decision
			for _, d := range ds {
				list = append(list, d(a, now))
			}
			return s.Settle(ctx, a.ID, list)
		}
	}
	orderOf := func(user int64) func(*sale.Activity, time.Time) sale.Decision {
		return func(a *sale.Activity, now time.Time) sale.Decision { return retryOrder(a, user, now) }
	}
	refusalOf := func(user int64) func(*sale.Activity, time.Time) sale.Decision {
		return func(a *sale.Activity, now time.Time) sale.Decision {
			return sale.Decision{Reservation: retryReservation(a, user, now), Reason: sale.ReasonInvalid, Status: sale.StatusFailed, Version: 1}
		}
	}
	return []call{
		{script: "begin", do: begin},
		{script: "wipe", do: begin}, // of what the call before it left: see retried
		{script: "restore", do: finish},
		{script: "begin", do: none(func(s *Store, a *sale.Activity) error { a.Epoch = 3; return s.BeginRebuild(ctx, *a, 3) })},
		{script: "open", do: none(func(s *Store, a *sale.Activity) error {
			return s.FinishRebuild(ctx, &sale.Snapshot{Activity: *a}, 3)
		})},
		{script: "reserve", do: func(s *Store, a *sale.Activity, now time.Time) (any, error) { return reserveOf(s, a, now, 1, 2, 3, 4) },
			again: []sale.ReserveOutcome{sale.ReserveRepeat, sale.ReserveRepeat, sale.ReserveRepeat, sale.ReserveRepeat}},
		{script: "limit", do: func(s *Store, a *sale.Activity, now time.Time) (any, error) {
			ok, _, err := s.Limit(ctx, a.ID, 7, now)
			return ok, err
		}},
		{script: "settle", do: settle(orderOf(1), orderOf(2), refusalOf(3)),
			again: []sale.Settlement{sale.SettleAlready, sale.SettleAlready, sale.SettleAlready}},
		{script: "status", do: func(s *Store, a *sale.Activity, _ time.Time) (any, error) {
			return s.SetStatus(ctx, []sale.UserResult{{UserID: 2, Result: sale.Result{RequestToken: "tok2", ActivityID: a.ID, CommodityID: "C1", Quantity: 1, Status: sale.StatusPaid, Version: 2}}})
		}},
		{script: "wait", do: func(s *Store, a *sale.Activity, now time.Time) (any, error) {
			return nil, s.JoinWaitlist(ctx, a.ID, "C1", []sale.Waiter{{UserID: 21, JoinedAt: now}, {UserID: 22, JoinedAt: now.Add(time.Millisecond)},
				{UserID: 23, JoinedAt: now.Add(2 * time.Millisecond)}, {UserID: 24, JoinedAt: now.Add(3 * time.Millisecond)}})
		}},
		{script: "wait", do: none(func(s *Store, a *sale.Activity) error { return s.LeaveWaitlist(ctx, a.ID, "C1", 23) })},
		{script: "wait", do: none(func(s *Store, a *sale.Activity) error {
			ws, err := s.Waiting(ctx, a.ID, "C1", 3)
			return errors.Join(err, s.DropWaiters(ctx, a.ID, "C1", ws[2:]))
		})},
		{script: "promote", do: func(s *Store, a *sale.Activity, now time.Time) (any, error) {
			p, err := s.Promote(ctx, retryReturn(a, 1), now, []int64{21, 22}, func(user int64) string { return fmt.Sprintf("promoted%d", user) })
			return p.Found, err
		}, again: sale.SettleAlready}, // the new reservation is in the outbox: the relay publishes it
		{script: "return", do: func(s *Store, a *sale.Activity, _ time.Time) (any, error) {
			found, _, err := s.Return(ctx, a.ID, []sale.Return{{Token: "tok2", UserID: 2, ActivityID: a.ID, CommodityID: "C1", Quantity: 1, Status: sale.StatusClosed, Version: 3}})
			return found, err
		}, again: []sale.Settlement{sale.SettleAlready}},
		{script: "take", do: none(func(s *Store, a *sale.Activity) error { return s.TakeBack(ctx, a.ID, "C1", 2) })},
		{script: "take", do: none(func(s *Store, a *sale.Activity) error { return s.TakeBack(ctx, a.ID, "C1", 3) })}, // of the 5 left
		{script: "meta", do: none(func(s *Store, a *sale.Activity) error { a.State = sale.StatePaused; return s.SetMeta(ctx, a) })},
		{script: "list", do: none(func(s *Store, a *sale.Activity) error { return s.SetUserList(ctx, a.ID, "blocked", 33, true) })},
		{script: "mark", do: none(func(s *Store, a *sale.Activity) error { return s.SetMark(ctx, a.ID, 34, "", "tok34") }),
			err: sale.ErrConflict}, // an audit takes it for "moved meanwhile", and the next one finds it mended
		{script: "audit", do: func(s *Store, a *sale.Activity, _ time.Time) (any, error) {
			look, err := s.Audit(ctx, a.ID, []string{"C1"}, []string{"tok1"})
			return look.Stock["C1"], err
		}},
		{script: "repair", do: none(func(s *Store, a *sale.Activity) error {
			look, err := s.Audit(ctx, a.ID, nil, nil)
			return errors.Join(err, s.Repair(ctx, a.ID, look.Epoch, look.Seq, map[string]int64{"C1": 9}))
		}), err: sale.ErrConflict}, // the audit starts again and finds nothing
		{script: "seq", do: none(func(s *Store, a *sale.Activity) error { _, _, err := s.RaiseSeq(ctx, a.ID); return err })},
		{script: "quota", do: func(s *Store, _ *sale.Activity, now time.Time) (any, error) { return s.SystemQuota(ctx, now, 5) }},
	}
}

// FS-013, S39, R5, R7: go-redis repeats a call whose answer is lost (MaxRetries in internal/app). For every script: the
// data after two runs of one call is the data after one, and the caller is told something true.
func TestEveryScriptMayRunTwice(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); everyScriptTwice(t, miniredis.RunT(t).Addr()) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		everyScriptTwice(t, testenv.OwnRedis(t, testenv.RedisOptions{}).Addr)
	})
}

func everyScriptTwice(t *testing.T, addr string) {
	direct := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = direct.Close() })
	loser := &replyLoser{}
	lossy := redis.NewClient(&redis.Options{Addr: addr, MinRetryBackoff: time.Millisecond})
	t.Cleanup(func() { _ = lossy.Close() })
	lossy.AddHook(loser)
	now := time.Now().Truncate(time.Second)
	suffix := strconv.FormatInt(time.Now().UnixNano(), 36)
	once, twice := retrySale("ONE"+suffix, now), retrySale("TWO"+suffix, now)
	a, b := New(direct, Options{}), New(lossy, Options{})
	t.Cleanup(func() {
		_ = a.Purge(context.Background(), once.ID)
		_ = a.Purge(context.Background(), twice.ID)
	})
	digests := digestsOf(b)
	left := maps.Clone(digests)
	for i, c := range retryCalls() {
		if c.script == "wipe" { // something to remove, of an epoch before
			for _, act := range []*sale.Activity{once, twice} {
				if err := direct.Set(t.Context(), "seckill:{"+act.ID+"}:user:1", "old", time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		delete(left, c.script)
		at := now.Add(time.Duration(i) * 10 * time.Millisecond)
		want, wantErr := c.do(a, once, at)
		if wantErr != nil {
			t.Fatalf("%s: %v", c.script, wantErr)
		}
		if err := direct.ScriptLoad(t.Context(), scriptOf(b, c.script).source).Err(); err != nil {
			t.Fatal(err)
		}
		before, d := loser.lost.Load(), digests[c.script]
		loser.digest.Store(&d)
		got, err := c.do(b, twice, at)
		if loser.lost.Load() != before+1 {
			t.Fatalf("%s: no answer was lost", c.script)
		}
		if c.again != nil {
			want = c.again
		}
		if !errors.Is(err, c.err) || c.err == nil && err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: told %v, %v; want %v, %v", c.script, got, err, want, c.err)
		}
		compareSales(t, direct, c, once.ID, twice.ID)
	}
	for name := range left {
		t.Errorf("script %s is not among the calls", name)
	}
}

func retrySale(id string, now time.Time) *sale.Activity {
	return &sale.Activity{
		ID: id, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PayWithin: time.Minute, State: sale.StateScheduled, Epoch: 2,
		Items: []sale.Item{{CommodityID: "C1", Price: decimal.New(990, -2), Total: 10, MaxPerUser: 1}},
	}
}

// scriptOf finds a script by its name.
func scriptOf(s *Store, name string) *script {
	c := s.sc
	for _, sc := range []*script{
		c.reserve, c.limit, c.quota, c.settle, c.giveBack, c.status, c.begin, c.wipe, c.restore, c.open, c.meta, c.list, c.seq, c.audit,
		c.repair, c.promote, c.wait, c.mark, c.take,
	} {
		if sc.name == name {
			return sc
		}
	}
	return nil
}

// digestsOf lists every script file with its digest.
func digestsOf(s *Store) map[string]string {
	files, _ := filepath.Glob("lua/*.lua")
	out := map[string]string{}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".lua")
		if sc := scriptOf(s, name); sc != nil {
			out[name] = sc.digest
		} else {
			out[name] = "unknown"
		}
	}
	return out
}

// compareSales compares all keys of two sales but for their sequence numbers and their counts of calls.
func compareSales(t *testing.T, rdb *redis.Client, c call, once, twice string) {
	t.Helper()
	a, b := dumpSale(t, rdb, once), dumpSale(t, rdb, twice)
	names := slices.Sorted(maps.Keys(a))
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "rate") {
			continue // windows count how often they were asked: the lost call too, which errs on the strict side, for seconds
		}
		if a[name] != b[name] {
			t.Errorf("after %s, %s is\n%s\nafter one run, and\n%s\nafter two", c.script, name, a[name], b[name])
		}
	}
}

// dumpSale reads every key of a sale, with ids that are its own taken out.
func dumpSale(t *testing.T, rdb *redis.Client, id string) map[string]string {
	t.Helper()
	ctx := t.Context()
	prefix := "seckill:{" + id + "}:"
	names, err := rdb.Keys(ctx, prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		var text string
		switch kind := rdb.Type(ctx, name).Val(); kind {
		case "string":
			text = rdb.Get(ctx, name).Val()
		case "hash":
			fields := rdb.HGetAll(ctx, name).Val()
			delete(fields, "seq")
			for f := range fields {
				if strings.HasPrefix(f, "taken:") {
					fields[f] = "a change" // an id drawn for each change
				}
			}
			text = fmt.Sprint(fields)
		case "set":
			members := rdb.SMembers(ctx, name).Val()
			slices.Sort(members)
			text = fmt.Sprint(members)
		case "zset":
			text = fmt.Sprint(rdb.ZRangeWithScores(ctx, name, 0, -1).Val())
		default:
			t.Fatalf("%s is a %s", name, kind)
		}
		if ttl := rdb.PTTL(ctx, name).Val(); ttl <= 0 {
			text += " without end"
		}
		out[strings.TrimPrefix(name, prefix)] = strings.ReplaceAll(text, id, "ID")
	}
	return out
}
