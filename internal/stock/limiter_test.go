package stock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
	"seckill/internal/stock"
	"seckill/internal/testenv"
)

// FS-032: a counter without an end, above the limit, stops its user for one window only; whatever many users leave behind
// has an end of its own, so that memory is bounded by the requests of three seconds and not by the users there ever were.
// The case's million users come in the long run; the usual run has 100,000, which are gone just the same.
func TestLimiterKeysEnd(t *testing.T) {
	t.Parallel()
	users := int64(100_000)
	if testenv.Long() {
		users = 1_000_000
	}
	rdb := client(t, testenv.OwnRedis(t, testenv.RedisOptions{}).Addr)
	ctx := t.Context()
	_, a := warm(t, rdb, "LK", 1)
	s := stock.New(rdb, stock.Options{UserPerSecond: 3, SalePerSecond: 10_000_000})
	if r := reserve(t, s, a.ID, 1); r.Outcome != sale.ReserveAccepted {
		t.Fatalf("%+v", r)
	}
	key := "seckill:{" + a.ID + "}:rate:"
	now := time.Now()
	must(t, rdb.Set(ctx, key+"7", strings.Repeat(strconv.FormatInt(now.UnixMilli(), 10), 50), 0).Err())
	if r := reserve(t, s, a.ID, 7); r.Outcome != sale.ReserveRateLimited || r.RetryAfter > time.Second {
		t.Fatalf("above the limit: %+v", r)
	}
	time.Sleep(time.Until(now.Add(1100 * time.Millisecond))) // one window, by the clock
	if r := reserve(t, s, a.ID, 7); r.Outcome != sale.ReserveSoldOut {
		t.Fatalf("after one window: %+v", r)
	}
	time.Sleep(3200 * time.Millisecond) // the windows so far end
	base, memory := rdb.DBSize(ctx).Val(), usedMemory(t, rdb)

	start := time.Now()
	crowd(t, s, a.ID, users)
	took, most := time.Since(start), rdb.DBSize(ctx).Val()
	full := usedMemory(t, rdb)
	limiterKeysHaveTTL(t, rdb)
	eventual := time.Now().Add(8 * time.Second) // TTLs of 3 s, and the server's own pace of removal
	for rdb.DBSize(ctx).Val() > base && time.Now().Before(eventual) {
		time.Sleep(50 * time.Millisecond)
	}
	after := usedMemory(t, rdb)
	t.Logf("%d users in %v: %d keys and %d KiB more at the end of it, %d keys and %d KiB more afterwards",
		users, took.Round(time.Millisecond), most-base, (full-memory)>>10, rdb.DBSize(ctx).Val()-base, (after-memory)>>10)
	if left := rdb.DBSize(ctx).Val(); left > base {
		t.Errorf("%d keys are left of the crowd", left-base)
	}
	if after-memory > 8<<20 { // the server keeps some of its tables for a while
		t.Errorf("%d KiB are left of the crowd", (after-memory)>>10)
	}
}

// crowd has each of so many users ask once; the sale is sold out, so only the windows remember them.
func crowd(t *testing.T, s *stock.Store, id string, users int64) {
	t.Helper()
	var wg sync.WaitGroup
	const workers = 4
	for w := range int64(workers) {
		wg.Go(func() {
			for from := 1000 + w*stock.MaxBatch; from < 1000+users; from += workers * stock.MaxBatch {
				reqs := make([]sale.ReserveRequest, min(stock.MaxBatch, 1000+users-from))
				for i := range reqs {
					reqs[i] = request(from + int64(i))
				}
				replies, err := s.Reserve(context.Background(), id, time.Now(), reqs)
				if err != nil || replies[0].Outcome != sale.ReserveSoldOut {
					t.Errorf("%v, %v", replies, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// limiterKeysHaveTTL looks at every key of a limiter on the server: users', sales', the system's.
func limiterKeysHaveTTL(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	if _, err := stock.New(rdb, stock.Options{}).SystemQuota(ctx, time.Now(), 1); err != nil {
		t.Fatal(err)
	}
	seen, cursor := 0, uint64(0)
	for {
		names, next, err := rdb.Scan(ctx, cursor, "seckill:*:rate*", 2000).Result()
		must(t, err)
		ttls := make([]*redis.DurationCmd, len(names))
		_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, name := range names {
				ttls[i] = p.PTTL(ctx, name)
			}
			return nil
		})
		must(t, err)
		for i, name := range names {
			if ttl := ttls[i].Val(); ttl == -1 || ttl > 3*time.Second { // -2: it has just ended
				t.Fatalf("%s ends in %v", name, ttl)
			}
		}
		seen += len(names)
		if cursor = next; cursor == 0 {
			break
		}
	}
	if seen < 10_000 {
		t.Fatalf("%d limiter keys seen: the test proves nothing", seen)
	}
}

func usedMemory(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	info, err := rdb.Info(t.Context(), "memory").Result()
	must(t, err)
	var n int64
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "used_memory:%d", &n); err == nil {
			return n
		}
	}
	t.Fatal("no used_memory")
	return 0
}
