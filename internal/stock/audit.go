package stock

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// auditTokens is the most occupied tokens that one audit lists. The script that lists them blocks Redis, by about
// 0.1 us a token; a sale with more undecided reservations has a backlog to explain before it can be audited.
const auditTokens = 100_000

// Audit takes one consistent look at a sale: position, stock of the given commodities, occupied tokens and the states
// of the given closed tokens, all from one script (R13). Commodity and quantity of an occupied token never change, so
// they are read afterwards.
func (s *Store) Audit(ctx context.Context, activityID string, commodityIDs, closed []string) (sale.StockAudit, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return sale.StockAudit{}, fmt.Errorf("audit stock: %w", err)
	}
	closed = slices.DeleteFunc(slices.Clone(closed), func(t string) bool { return !sale.ValidToken(t) })
	commodityIDs = slices.DeleteFunc(slices.Clone(commodityIDs), func(c string) bool { return !sale.ValidID(c) })
	a := newScriptArgs(4+len(commodityIDs)+len(closed), 256+len(commodityIDs)*64+len(closed)*96)
	a.key(k.meta())
	a.key(k.occupied())
	for _, c := range commodityIDs {
		a.keyOf(k.prefix, "stock:", c)
	}
	for _, t := range closed {
		a.keyOf(k.prefix, "token:", t)
	}
	a.int(int64(len(commodityIDs)))
	a.int(auditTokens)
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.audit, a)
	if err != nil {
		return sale.StockAudit{}, fmt.Errorf("audit stock: %w", err)
	}
	out := sale.StockAudit{Stock: make(map[string]int64), Closed: make(map[string]sale.TokenState)}
	if out.Epoch, out.Seq, err = s.header(activityID, floor, reply, 0); err != nil {
		return sale.StockAudit{}, fmt.Errorf("audit stock: %w", err)
	}
	tokens, err := readAudit(&out, reply, commodityIDs, closed)
	if err != nil {
		return sale.StockAudit{}, fmt.Errorf("audit stock: %w", err)
	}
	if out.Occupied, err = s.occupiedThen(ctx, activityID, tokens); err != nil {
		return sale.StockAudit{}, fmt.Errorf("audit stock: %w", err)
	}
	return out, nil
}

// readAudit reads {epoch, seq, state, occupied in all, tokens, stock, states} and returns the tokens.
func readAudit(out *sale.StockAudit, reply []any, commodityIDs, closed []string) ([]string, error) {
	if len(reply) != 7 {
		return nil, fmt.Errorf("%d parts, not 7", len(reply))
	}
	st := text(reply[2])
	out.Ready = out.Epoch > 0 && st != metaRebuilding && st != metaDraft
	all, err := number(reply, 3)
	if err != nil {
		return nil, err
	}
	listed, _ := reply[4].([]any)
	units, _ := reply[5].([]any)
	states, _ := reply[6].([]any)
	if len(units) != len(commodityIDs) || len(states) != len(closed) {
		return nil, fmt.Errorf("%d stock values and %d states", len(units), len(states))
	}
	for i, c := range commodityIDs {
		if n, ok := plainUnits(text(units[i])); ok {
			out.Stock[c] = n
		}
	}
	for i, t := range closed {
		if st := text(states[i]); st != "" {
			out.Closed[t] = sale.TokenState(st)
		}
	}
	tokens := make([]string, len(listed))
	for i, t := range listed {
		tokens[i] = text(t)
	}
	out.Truncated = all > int64(len(tokens))
	return tokens, nil
}

// occupiedThen reads the reservations of tokens that were occupied when the script ran, whatever they are now.
func (s *Store) occupiedThen(ctx context.Context, activityID string, tokens []string) ([]sale.Reservation, error) {
	refs := make([]tokenRef, len(tokens))
	for i, t := range tokens {
		refs[i] = tokenRef{activityID, t}
	}
	found, err := s.tokens(ctx, refs)
	if err != nil {
		return nil, err
	}
	out := make([]sale.Reservation, len(found))
	for i := range found {
		out[i] = found[i].reservation(activityID, tokens[i])
	}
	return out, nil
}

// Repair sets the stock of commodities to what an audit worked out, all or none, unless the sale has moved since the
// position the audit read: sale.ErrConflict then, and the audit starts again (R13). It never creates a stock key.
func (s *Store) Repair(ctx context.Context, activityID string, epoch, seq int64, units map[string]int64) error {
	k, err := keysOf(activityID)
	if err != nil {
		return fmt.Errorf("repair stock: %w", err)
	}
	a := newScriptArgs(3+2*len(units), 128+len(units)*80)
	a.key(k.meta())
	order := make([]string, 0, len(units))
	for c, n := range units {
		if !sale.ValidID(c) || n < 0 {
			return fmt.Errorf("repair stock: %d units of %.40q: %w", n, c, sale.ErrBadID)
		}
		order = append(order, c)
		a.keyOf(k.prefix, "stock:", c)
	}
	a.int(epoch)
	a.int(seq)
	for _, c := range order {
		a.int(units[c])
	}
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.repair, a)
	if err != nil {
		return fmt.Errorf("repair stock: %w", err)
	}
	if err := s.outcome(activityID, floor, reply); err != nil {
		return fmt.Errorf("repair stock: %w", err)
	}
	return nil
}

// TokenCounts returns how many tokens of a sale are occupied and how many users take part.
func (s *Store) TokenCounts(ctx context.Context, activityID string) (sale.TokenCounts, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return sale.TokenCounts{}, fmt.Errorf("count tokens: %w", err)
	}
	var (
		meta                   *redis.SliceCmd
		occupied, participants *redis.IntCmd
		oldest                 *redis.ZSliceCmd
	)
	floor := s.floor(activityID)
	err = s.pipelineOnce(ctx, func(p redis.Pipeliner) {
		meta = p.HMGet(ctx, k.meta(), "epoch", "seq")
		occupied = p.ZCard(ctx, k.occupied())
		participants = p.SCard(ctx, k.participants())
		oldest = p.ZRangeWithScores(ctx, k.occupied(), 0, 0)
	})
	if err != nil {
		return sale.TokenCounts{}, fmt.Errorf("count tokens: %w", err)
	}
	out := sale.TokenCounts{Occupied: occupied.Val(), Participants: participants.Val()}
	if v := meta.Val(); len(v) == 2 {
		out.Epoch, out.Seq = integer(v[0]), integer(v[1])
		s.note(activityID, floor, out.Epoch, out.Seq)
	}
	if z := oldest.Val(); len(z) == 1 {
		out.OldestOccupied = sale.FromMillis(int64(z[0].Score))
	}
	return out, nil
}
