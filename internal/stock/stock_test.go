package stock_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"seckill/internal/stock/stocktest"
	"seckill/internal/testenv"
)

// The stand-in of the embedded default, always.
func TestMiniredis(t *testing.T) {
	t.Parallel()
	b := mini(t)
	b.FastForward, b.Private = nil, mini
	stocktest.Run(t, b)
}

func mini(t *testing.T) stocktest.Backend {
	t.Helper()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return stocktest.Backend{Name: "miniredis", Client: rdb, FastForward: m.FastForward}
}

// A real server.
func TestRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: testenv.Redis(t)})
	t.Cleanup(func() { _ = rdb.Close() })
	stocktest.Run(t, stocktest.Backend{Name: "redis", Client: rdb})
}

// A real cluster: every script must keep to one slot (FS-012).
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: testenv.RedisCluster(t)})
	t.Cleanup(func() { _ = rdb.Close() })
	stocktest.Run(t, stocktest.Backend{Name: "cluster", Client: rdb})
}
