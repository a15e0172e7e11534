package stock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/sale"
	"seckill/internal/stock"
	"seckill/internal/testenv"
)

// plainScript is what P3 compares with: the same checks and effects as reserve.lua, written as one usually would, one
// call for one request.
const plainScript = `
local meta, occupied, rate, blocked, eligible, participants = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local mark, token, window, stock = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now, user, id, item, quantity = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local perUser, perSale = tonumber(ARGV[6]), tonumber(ARGV[7])
local w = redis.call('GET', window) or ''
if #w >= 13 * perUser and now - tonumber(string.sub(w, 1, 13)) < 1000 then return {13} end
redis.call('SET', window, string.sub(w, -13 * (perUser - 1)) .. ARGV[1], 'PX', 3000)
if redis.call('EXISTS', token) == 1 then return {2, redis.call('HGETALL', token)} end
if redis.call('SISMEMBER', blocked, user) == 1 then return {11} end
local m = redis.call('HMGET', meta, 'epoch', 'seq', 'state', 'startsAt', 'endsAt', 'keysUntil', 'allowList',
  'price:' .. item, 'max:' .. item)
if not m[1] or m[3] == 'rebuilding' then return {9} end
if m[7] == '1' and redis.call('SISMEMBER', eligible, user) == 0 then return {12} end
if now < tonumber(m[4]) then return {6} end
if now >= tonumber(m[5]) then return {7} end
if not m[8] then return {10} end
if quantity > tonumber(m[9]) then return {15} end
local first = redis.call('GET', mark)
if first then return {4, first} end
local left = tonumber(redis.call('GET', stock))
if not left then return {9} end
if left < quantity then return {5} end
local r = redis.call('HMGET', rate, 'bucket', 'last', 'count')
local bucket = math.floor(now / 1000)
local last, count = 0, 0
if tonumber(r[1]) == bucket then last, count = tonumber(r[2]), tonumber(r[3])
elseif tonumber(r[1]) == bucket - 1 then last = tonumber(r[3]) end
if last * (1000 - now % 1000) / 1000 + count + 1 > perSale then return {14} end
redis.call('HSET', rate, 'bucket', bucket, 'last', last, 'count', count + 1)
redis.call('PEXPIRE', rate, 3000)
redis.call('DECRBY', stock, quantity)
redis.call('SET', mark, id, 'PXAT', m[6])
redis.call('HSET', token, 'state', 'occupied', 'userId', user, 'commodityId', item, 'quantity', quantity, 'price', m[8],
  'ts', now, 'epoch', m[1], 'status', 'processing', 'version', 0)
redis.call('PEXPIREAT', token, m[6])
redis.call('ZADD', occupied, now, id)
redis.call('PEXPIREAT', occupied, m[6])
redis.call('SADD', participants, user)
redis.call('PEXPIREAT', participants, m[6])
local seq = redis.call('HINCRBY', meta, 'seq', 1)
return {1, tonumber(m[1]), seq, m[8]}
`

// BenchmarkReserve measures the Redis CPU of one reservation (P3): go test -bench Reserve -benchtime 50000x, with
// SECKILL_TEST_REDIS. redis-us/op is the CPU time of the whole server process, script-us/op the time it spent in scripts.
//
// growing begins with an empty sale: Redis doubles its tables again and again meanwhile, at the same cost for each way.
// large stands beside another sale of 400,000 reservations, so that the tables are as large as they get.
func BenchmarkReserve(b *testing.B) {
	for _, keyspace := range []string{"growing", "large"} {
		b.Run(keyspace, func(b *testing.B) {
			if keyspace == "large" {
				if testing.Short() {
					b.Skip("fills the server with 400,000 reservations")
				}
				beside := newReserveBench(b, "L")
				for range 400_000 / 250 {
					beside.must(b, beside.batch(b, 250))
				}
			}
			for _, way := range []struct {
				name    string
				batch   int
				clients int
			}{{"plain", 0, 50}, {"batch=1", 1, 50}, {"batch=10", 10, 8}, {"batch=50", 50, 4}, {"batch=256", 256, 4}} {
				b.Run(way.name, func(b *testing.B) { benchmarkReserve(b, way.batch, way.clients) })
			}
		})
	}
}

// reserveBench is a sale to reserve from.
type reserveBench struct {
	rdb   *redis.Client
	s     *stock.Store
	id    string
	plain *redis.Script
	user  atomic.Int64
}

func newReserveBench(b *testing.B, prefix string) *reserveBench {
	b.Helper()
	r := &reserveBench{rdb: redis.NewClient(&redis.Options{Addr: testenv.Redis(b), PoolSize: 50}), plain: redis.NewScript(plainScript)}
	b.Cleanup(func() { _ = r.rdb.Close() })
	now := time.Now()
	r.id = prefix + strconv.FormatInt(now.UnixNano(), 36)
	r.user.Store(738529527931269425)
	a := sale.Activity{
		ID: r.id, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PayWithin: time.Minute, State: sale.StateScheduled, Epoch: 1,
		Items: []sale.Item{{CommodityID: "SP20240601001", Price: decimal.New(9900, -2), Total: 1_000_000_000, MaxPerUser: 1}},
	}
	r.s = stock.New(r.rdb, stock.Options{SalePerSecond: 1 << 40, CallTimeout: time.Minute})
	r.must(b, r.s.BeginRebuild(b.Context(), a, 1))
	r.must(b, r.s.FinishRebuild(b.Context(), &sale.Snapshot{Activity: a}, 1))
	b.Cleanup(func() { r.must(b, r.s.Purge(context.Background(), r.id)) })
	return r
}

func (r *reserveBench) must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func benchmarkReserve(b *testing.B, batch, clients int) {
	r := newReserveBench(b, "B")
	per := max(batch, 1)
	one := func() error { return r.batch(b, batch) }
	if batch == 0 {
		one = func() error { return r.plainOne(b) }
	}
	r.must(b, one()) // loads the script
	cpu, script := serverCPU(b, r.rdb)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	var calls atomic.Int64
	for range clients {
		wg.Go(func() {
			for calls.Add(1) <= int64(b.N/per) {
				if err := one(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	done := float64(max(b.N/per, 1) * per)
	cpu2, script2 := serverCPU(b, r.rdb)
	b.ReportMetric((cpu2-cpu)/done, "redis-us/op")
	b.ReportMetric((script2-script)/done, "script-us/op")
	b.ReportMetric(done/b.Elapsed().Seconds(), "reservations/s")
}

func (r *reserveBench) batch(b *testing.B, n int) error {
	reqs := make([]sale.ReserveRequest, n)
	for i := range reqs {
		u := r.user.Add(1)
		reqs[i] = sale.ReserveRequest{Token: benchToken(u), UserID: u, CommodityID: "SP20240601001", Quantity: 1}
	}
	rs, err := r.s.Reserve(b.Context(), r.id, time.Now(), reqs)
	if err != nil {
		return err
	}
	for i := range rs {
		if rs[i].Outcome != sale.ReserveAccepted {
			return fmt.Errorf("outcome %q", rs[i].Outcome)
		}
	}
	return nil
}

func (r *reserveBench) plainOne(b *testing.B) error {
	u := r.user.Add(1)
	p, name, token := "seckill:{"+r.id+"}:", strconv.FormatInt(u, 10), benchToken(u)
	v, err := r.plain.Run(b.Context(), r.rdb, []string{
		p + "meta", p + "occupied", p + "rate", p + "blocked", p + "eligible", p + "participants",
		p + "user:" + name, p + "token:" + token, p + "rate:" + name, p + "stock:SP20240601001",
	}, time.Now().UnixMilli(), name, token, "SP20240601001", 1, 3, 1<<40).Slice()
	if err == nil && v[0] != int64(1) {
		err = fmt.Errorf("outcome %v", v)
	}
	return err
}

// benchToken has the length of a real request token, 31 characters, a dot, and the activity id; and like one its
// beginning differs from all others.
func benchToken(u int64) string {
	return fmt.Sprintf("%016x%015d.ACT20240601", uint64(u)*0x9E3779B97F4A7C15, u%1_000_000_000_000_000)
}

// serverCPU returns the CPU time of the server and of its scripts, in microseconds.
func serverCPU(b *testing.B, rdb *redis.Client) (all, scripts float64) {
	b.Helper()
	info, err := rdb.Info(b.Context(), "cpu", "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, line := range strings.Split(info, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "used_cpu_user", "used_cpu_sys":
			n, _ := strconv.ParseFloat(value, 64)
			all += n * 1e6
		case "cmdstat_evalsha":
			_, rest, _ := strings.Cut(value, "usec=")
			usec, _, _ := strings.Cut(rest, ",")
			scripts, _ = strconv.ParseFloat(usec, 64)
		}
	}
	return all, scripts
}
