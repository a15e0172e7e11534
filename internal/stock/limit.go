package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// Limit counts one request of a user in the window that Reserve uses too (S5), and says when there is room again if
// it is full. A refused request is not counted, so that impatience does not lengthen the wait.
func (s *Store) Limit(ctx context.Context, activityID string, userID int64, now time.Time) (allowed bool, retryAfter time.Duration, err error) {
	k, err := keysOf(activityID)
	if err != nil {
		return false, 0, fmt.Errorf("limit user: %w", err)
	}
	if userID <= 0 {
		return false, 0, fmt.Errorf("limit user: user %d: %w", userID, sale.ErrBadID)
	}
	a := newScriptArgs(3, 128)
	a.key(k.userRate(userID))
	a.clock(now)
	a.int(int64(s.o.UserPerSecond))
	reply, err := s.run(ctx, s.sc.limit, a)
	if err != nil {
		return false, 0, fmt.Errorf("limit user: %w", err)
	}
	ok, err := number(reply, 0)
	if err != nil {
		return false, 0, fmt.Errorf("limit user: %w", err)
	}
	ms, err := number(reply, 1)
	if err != nil {
		return false, 0, fmt.Errorf("limit user: %w", err)
	}
	if ok == 1 {
		return true, 0, nil
	}
	return false, time.Duration(max(ms, 1)) * time.Millisecond, nil
}

// SystemQuota leases up to n reservations from the window of the whole system, above those of the sales (S4), and
// returns how many were granted. A gateway leases in chunks and spends them at once: a permit is counted in the
// second in which it was leased, also when it is never used.
func (s *Store) SystemQuota(ctx context.Context, now time.Time, n int) (granted int, err error) {
	if n <= 0 {
		return 0, nil
	}
	a := newScriptArgs(4, 128)
	a.key(systemRateKey)
	a.int(now.UnixMilli())
	a.int(int64(s.o.SystemPerSecond))
	a.int(int64(n))
	reply, err := s.run(ctx, s.sc.quota, a)
	if err != nil {
		return 0, fmt.Errorf("lease quota: %w", err)
	}
	got, err := number(reply, 0)
	if err != nil {
		return 0, fmt.Errorf("lease quota: %w", err)
	}
	return int(got), nil
}

// pipeline sends commands in bounded portions. fill adds the commands for places from..to. A command that answers
// nil is no error of the pipeline.
func (s *Store) pipeline(ctx context.Context, n int, fill func(p redis.Pipeliner, from, to int)) error {
	for from := 0; from < n; from += s.o.Pipeline {
		to := min(from+s.o.Pipeline, n)
		if err := s.pipelineOnce(ctx, func(p redis.Pipeliner) { fill(p, from, to) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) pipelineOnce(ctx context.Context, fill func(p redis.Pipeliner)) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	p := s.rdb.Pipeline()
	fill(p)
	cmds, err := p.Exec(ctx)
	if err == nil {
		return nil
	}
	for _, cmd := range cmds { // Exec tells only the first error, and that may be a harmless one
		if e := cmd.Err(); e != nil && !errors.Is(e, redis.Nil) && !redis.HasErrorPrefix(e, "WRONGTYPE") {
			return classify(e)
		}
	}
	return nil
}
