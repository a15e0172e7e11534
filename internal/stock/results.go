package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// Result returns the state of one token with the user it belongs to, and false when Redis does not know it; the
// caller then asks the database (R18). Whether the user may see it is for the caller to check.
func (s *Store) Result(ctx context.Context, activityID, token string) (sale.UserResult, bool, error) {
	rs, err := s.tokens(ctx, []tokenRef{{activityID, token}})
	if err != nil {
		return sale.UserResult{}, false, fmt.Errorf("read result: %w", err)
	}
	if rs[0].status == "" {
		return sale.UserResult{}, false, nil
	}
	return sale.UserResult{UserID: rs[0].userID, Result: rs[0].result(activityID, token)}, true, nil
}

// Mark returns the token under which a user takes part in a sale, and false when there is none.
func (s *Store) Mark(ctx context.Context, activityID string, userID int64) (token string, ok bool, err error) {
	k, err := keysOf(activityID)
	if err != nil {
		return "", false, fmt.Errorf("read mark: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	token, err = s.rdb.Get(ctx, k.mark(userID)).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read mark: %w", classify(err))
	}
	return token, true, nil
}

// ResultsOfUsers returns the current state of every given user in every given sale, where Redis knows one: the marks
// in pipelines, then the token hashes. It is what a hub shard reads after it has subscribed (S29). Order is not kept.
func (s *Store) ResultsOfUsers(ctx context.Context, activityIDs []string, userIDs []int64) ([]sale.UserResult, error) {
	var refs []tokenRef
	for _, id := range activityIDs {
		k, err := keysOf(id)
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		marks := make([]*redis.StringCmd, len(userIDs))
		err = s.pipeline(ctx, len(userIDs), func(p redis.Pipeliner, from, to int) {
			for i := from; i < to; i++ {
				marks[i] = p.Get(ctx, k.mark(userIDs[i]))
			}
		})
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		for _, cmd := range marks {
			if token, err := cmd.Result(); err == nil && sale.ValidToken(token) {
				refs = append(refs, tokenRef{id, token})
			}
		}
	}
	found, err := s.tokens(ctx, refs)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	out := make([]sale.UserResult, 0, len(found))
	for i := range found {
		if t := &found[i]; t.status != "" && t.userID > 0 {
			out = append(out, sale.UserResult{UserID: t.userID, Result: t.result(refs[i].activityID, refs[i].token)})
		}
	}
	return out, nil
}

// tokenRef names one token hash.
type tokenRef struct{ activityID, token string }

// tokens reads token hashes in pipelines. One that is missing is a zero value.
func (s *Store) tokens(ctx context.Context, refs []tokenRef) ([]storedToken, error) {
	fields := append([]string{"userId"}, tokenFields[:]...)
	cmds := make([]*redis.SliceCmd, len(refs))
	names := make([]string, len(refs))
	for i, ref := range refs {
		k, err := keysOf(ref.activityID)
		if err != nil {
			return nil, err
		}
		names[i] = k.token(ref.token)
	}
	err := s.pipeline(ctx, len(refs), func(p redis.Pipeliner, from, to int) {
		for i := from; i < to; i++ {
			cmds[i] = p.HMGet(ctx, names[i], fields...)
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]storedToken, len(refs))
	for i, cmd := range cmds {
		if v := cmd.Val(); len(v) == len(fields) {
			out[i].userID = integer(v[0])
			out[i].fill(v[1:])
		}
	}
	return out, nil
}

// Occupied returns reservations of a sale that were made before a time and are not decided yet, oldest first, at
// most limit of them: what the relay enqueues again (S21). An entry of the outbox whose token is gone or decided is
// dropped on the way, so that such entries cannot hide the others.
func (s *Store) Occupied(ctx context.Context, activityID string, before time.Time, limit int) ([]sale.Reservation, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return nil, fmt.Errorf("list occupied tokens: %w", err)
	}
	if limit <= 0 {
		return nil, nil
	}
	callCtx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	tokens, err := s.rdb.ZRangeArgs(callCtx, redis.ZRangeArgs{
		Key: k.occupied(), ByScore: true, Start: "-inf", Stop: "(" + strconv.FormatInt(before.UnixMilli(), 10),
		Count: int64(limit),
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("list occupied tokens: %w", classify(err))
	}
	out, err := s.occupiedOf(ctx, activityID, k, tokens)
	if err != nil {
		return nil, fmt.Errorf("list occupied tokens: %w", err)
	}
	return out, nil
}

// occupiedOf reads the reservations of tokens from the outbox and drops the entries that are none.
func (s *Store) occupiedOf(ctx context.Context, activityID string, k keys, tokens []string) ([]sale.Reservation, error) {
	refs := make([]tokenRef, len(tokens))
	for i, token := range tokens {
		refs[i] = tokenRef{activityID, token}
	}
	found, err := s.tokens(ctx, refs)
	if err != nil {
		return nil, err
	}
	out := make([]sale.Reservation, 0, len(found))
	var stray []any
	for i := range found {
		if found[i].state == sale.TokenOccupied {
			out = append(out, found[i].reservation(activityID, tokens[i]))
		} else {
			stray = append(stray, tokens[i])
		}
	}
	if len(stray) == 0 {
		return out, nil
	}
	// No token becomes occupied a second time, so an entry that is not occupied now never will be again.
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	if err := s.rdb.ZRem(ctx, k.occupied(), stray...).Err(); err != nil {
		return nil, classify(err)
	}
	return out, nil
}

// ParticipantsOf returns the users who hold a participation mark of a sale, in no order: what a gateway fills its
// local filter with (R14). It reads in steps, so a user may be missing who joined meanwhile: results feed the filter.
func (s *Store) ParticipantsOf(ctx context.Context, activityID string) ([]int64, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return nil, fmt.Errorf("list participants: %w", err)
	}
	seen := make(map[int64]struct{})
	var cursor uint64
	for {
		callCtx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
		users, next, err := s.rdb.SScan(callCtx, k.participants(), cursor, "", int64(s.o.ScanStep)).Result()
		cancel()
		if err != nil {
			return nil, fmt.Errorf("list participants: %w", classify(err))
		}
		for _, u := range users {
			if id, err := sale.ParseUserID(u); err == nil {
				seen[id] = struct{}{}
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	out := make([]int64, 0, len(seen))
	for id := range seen {
		out = append(out, id)
	}
	return out, nil
}
