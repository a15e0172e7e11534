package stocktest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Keys looks at what is stored, and spoils it, by the names that the design gives.
type Keys interface {
	Text(ctx context.Context, key string) (string, error) // "" when it is missing
	SetText(ctx context.Context, key, value string) error // lasts an hour
	Hash(ctx context.Context, key string) (map[string]string, error)
	SetField(ctx context.Context, key, field, value string) error
	Set(ctx context.Context, key string) ([]string, error)
	Line(ctx context.Context, key string) (map[string]float64, error) // a sorted set: members and their scores
	PutFirst(ctx context.Context, key string, members ...string) error
	Delete(ctx context.Context, key string) error
	Names(ctx context.Context, prefix string) ([]string, error) // of all keys that begin so, sorted
	// Lasts is how long a key has to live, and false where lifetimes are not modelled.
	Lasts(ctx context.Context, key string) (time.Duration, bool, error)
}

// onRedis are the keys of a server.
type onRedis struct{ rdb redis.UniversalClient }

func (k onRedis) Text(ctx context.Context, key string) (string, error) {
	v, err := k.rdb.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return v, err
}

func (k onRedis) SetText(ctx context.Context, key, value string) error {
	return k.rdb.Set(ctx, key, value, time.Hour).Err()
}

func (k onRedis) Hash(ctx context.Context, key string) (map[string]string, error) {
	return k.rdb.HGetAll(ctx, key).Result()
}

func (k onRedis) SetField(ctx context.Context, key, field, value string) error {
	return k.rdb.HSet(ctx, key, field, value).Err()
}

func (k onRedis) Set(ctx context.Context, key string) ([]string, error) {
	return k.rdb.SMembers(ctx, key).Result()
}

func (k onRedis) Line(ctx context.Context, key string) (map[string]float64, error) {
	members, err := k.rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
	out := map[string]float64{}
	for _, m := range members {
		out[m.Member.(string)] = m.Score
	}
	return out, err
}

func (k onRedis) PutFirst(ctx context.Context, key string, members ...string) error {
	zs := make([]redis.Z, len(members))
	for i, m := range members {
		zs[i] = redis.Z{Member: m}
	}
	return k.rdb.ZAdd(ctx, key, zs...).Err()
}

func (k onRedis) Delete(ctx context.Context, key string) error { return k.rdb.Del(ctx, key).Err() }

func (k onRedis) Names(ctx context.Context, prefix string) ([]string, error) {
	return scanAll(ctx, k.rdb, prefix+"*")
}

func (k onRedis) Lasts(ctx context.Context, key string) (time.Duration, bool, error) {
	d, err := k.rdb.PTTL(ctx, key).Result()
	return d, true, err
}

// scanAll lists the keys that match a pattern on all masters.
func scanAll(ctx context.Context, rdb redis.UniversalClient, pattern string) ([]string, error) {
	var mu sync.Mutex
	found := map[string]bool{}
	walk := func(ctx context.Context, node redis.Cmdable) error {
		it := node.Scan(ctx, 0, pattern, 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			found[it.Val()] = true
			mu.Unlock()
		}
		return it.Err()
	}
	var err error
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return walk(ctx, c) })
	} else {
		err = walk(ctx, rdb)
	}
	return slices.Sorted(maps.Keys(found)), err
}

// onScan does something once, after the first SCAN that finds keys.
type onScan struct {
	mu sync.Mutex
	do func()
}

func (h *onScan) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *onScan) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *onScan) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if scan, ok := cmd.(*redis.ScanCmd); ok {
			h.mu.Lock()
			defer h.mu.Unlock()
			if names, _ := scan.Val(); len(names) > 0 && h.do != nil {
				do := h.do
				h.do = nil
				do()
			}
		}
		return err
	}
}

// hooked makes a second client of the backend's server, with a hook.
func hooked(t *testing.T, b Backend, hook redis.Hook) redis.UniversalClient {
	t.Helper()
	var rdb redis.UniversalClient
	switch c := b.Client.(type) {
	case *redis.Client:
		rdb = redis.NewClient(c.Options())
		rdb.AddHook(hook)
	case *redis.ClusterClient:
		cluster := redis.NewClusterClient(c.Options())
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		rdb = cluster
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
