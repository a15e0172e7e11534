package stock

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// SetMeta changes what gateways enforce of a sale: paused, live or ended, its window, allow-list, prices and
// largest quantities. It holds only under a.Epoch: sale.ErrConflict for another epoch, sale.ErrNotReady without meta or
// during a rebuild (call again after it). It neither opens a sale that is being rebuilt nor touches stock.
func (s *Store) SetMeta(ctx context.Context, a *sale.Activity) error {
	k, err := keysOf(a.ID)
	if err != nil {
		return fmt.Errorf("set meta: %w", err)
	}
	until := a.KeysUntil(s.o.Retention).UnixMilli()
	args := newScriptArgs(17+7*len(a.Items), 768+len(a.Items)*256)
	args.key(k.meta())
	args.key(k.occupied())
	args.key(k.participants())
	args.key(k.blocked())
	args.key(k.eligible())
	for i := range a.Items {
		args.keyOf(k.prefix, "stock:", a.Items[i].CommodityID)
	}
	args.int(a.Epoch)
	args.int(until)
	addMeta(args, a)
	floor := s.floor(a.ID)
	reply, err := s.run(ctx, s.sc.meta, args)
	if err != nil {
		return fmt.Errorf("set meta: %w", err)
	}
	if err := s.outcome(a.ID, floor, reply); err != nil {
		return fmt.Errorf("set meta: %w", err)
	}
	before, err := number(reply, 3)
	if err != nil {
		return fmt.Errorf("set meta: %w", err)
	}
	if until <= before {
		return nil
	}
	// The sale lasts longer than its marks and tokens were made for.
	if err := s.prolong(ctx, k, until); err != nil {
		return fmt.Errorf("set meta: prolong keys: %w", err)
	}
	return nil
}

// SetUserList puts a user on the list "blocked" or "eligible" of a sale, or takes the user off. sale.ErrNotReady while
// the sale has no meta or is being rebuilt: the database keeps the lists, and the next rebuild writes them.
func (s *Store) SetUserList(ctx context.Context, activityID, list string, userID int64, on bool) error {
	k, err := keysOf(activityID)
	if err != nil {
		return fmt.Errorf("set user list: %w", err)
	}
	key, err := k.list(list)
	if err != nil {
		return fmt.Errorf("set user list: %w", err)
	}
	if err := s.writeList(ctx, activityID, k, key, 0, []int64{userID}, on); err != nil {
		return fmt.Errorf("set user list: %w", err)
	}
	return nil
}

// writeList changes a user list: of a sale that is being rebuilt under epoch, or, with epoch 0, of one that is not.
func (s *Store) writeList(ctx context.Context, activityID string, k keys, key string, epoch int64, users []int64, on bool) error {
	a := newScriptArgs(4+len(users), 128+20*len(users))
	a.key(k.meta())
	a.key(key)
	a.int(epoch)
	a.flag(on)
	for _, u := range users {
		a.int(u)
	}
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.list, a)
	if err != nil {
		return err
	}
	return s.outcome(activityID, floor, reply)
}

// RaiseSeq raises the sequence number of a sale by one and returns the position it is at, zeros without meta. Called
// every second, it makes a rewind show even while nobody buys (R15).
func (s *Store) RaiseSeq(ctx context.Context, activityID string) (epoch, seq int64, err error) {
	k, err := keysOf(activityID)
	if err != nil {
		return 0, 0, fmt.Errorf("raise seq: %w", err)
	}
	a := newScriptArgs(1, 64)
	a.key(k.meta())
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.seq, a)
	if err != nil {
		return 0, 0, fmt.Errorf("raise seq: %w", err)
	}
	epoch, seq, err = s.header(activityID, floor, reply, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("raise seq: %w", err)
	}
	return epoch, seq, nil
}

// Purge removes every key of a sale (S27). It is for sales whose retention has passed or that are to vanish.
func (s *Store) Purge(ctx context.Context, activityID string) error {
	k, err := keysOf(activityID)
	if err != nil {
		return fmt.Errorf("purge sale: %w", err)
	}
	err = s.scan(ctx, k.all(), func(ctx context.Context, node redis.UniversalClient, names []string) error {
		return classify(node.Unlink(ctx, names...).Err())
	})
	if err != nil {
		return fmt.Errorf("purge sale: %w", err)
	}
	s.forget(activityID)
	return nil
}

// prolong moves the end of life of every key of a sale, limiter windows excepted.
func (s *Store) prolong(ctx context.Context, k keys, until int64) error {
	rate, rates := k.rate(), k.rate()+":"
	return s.scan(ctx, k.all(), func(ctx context.Context, node redis.UniversalClient, names []string) error {
		p := node.Pipeline()
		for _, name := range names {
			if name != rate && !strings.HasPrefix(name, rates) {
				p.Do(ctx, "pexpireat", name, until)
			}
		}
		_, err := p.Exec(ctx)
		return classify(err)
	})
}

// scan walks the keys that match a pattern on every master, in small steps that never hold a node up for long.
func (s *Store) scan(ctx context.Context, pattern string, do func(ctx context.Context, node redis.UniversalClient, names []string) error) error {
	walk := func(ctx context.Context, node redis.UniversalClient) error {
		var cursor uint64
		for {
			next, err := s.scanStep(ctx, node, pattern, cursor, do)
			if err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return walk(ctx, node) })
	}
	return walk(ctx, s.rdb)
}

func (s *Store) scanStep(ctx context.Context, node redis.UniversalClient, pattern string, cursor uint64,
	do func(ctx context.Context, node redis.UniversalClient, names []string) error) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	names, next, err := node.Scan(ctx, cursor, pattern, int64(s.o.ScanStep)).Result()
	if err != nil {
		return 0, classify(err)
	}
	if len(names) == 0 {
		return next, nil
	}
	return next, do(ctx, node, names)
}
