package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// JoinWaitlist puts waiters of one commodity into its line. Who stands there already keeps the place, unless joined anew,
// at a later time. sale.ErrNotReady when the sale has no meta: the database keeps the list, and the next rebuild writes it.
func (s *Store) JoinWaitlist(ctx context.Context, activityID, commodityID string, ws []sale.Waiter) error {
	if err := s.waits(ctx, "join", activityID, commodityID, 0, ws); err != nil {
		return fmt.Errorf("join waitlist: %w", err)
	}
	return nil
}

// FillWaitlist is JoinWaitlist of a rebuild: sale.ErrConflict unless the sale is being rebuilt under this epoch, so that
// nothing of it comes after the sale is open.
func (s *Store) FillWaitlist(ctx context.Context, activityID, commodityID string, epoch int64, ws []sale.Waiter) error {
	if err := s.waits(ctx, "fill", activityID, commodityID, epoch, ws); err != nil {
		return fmt.Errorf("fill waitlist: %w", err)
	}
	return nil
}

// LeaveWaitlist takes a user out of the line of a commodity.
func (s *Store) LeaveWaitlist(ctx context.Context, activityID, commodityID string, userID int64) error {
	if err := s.wait(ctx, "leave", activityID, commodityID, 0, []sale.Waiter{{UserID: userID}}); err != nil {
		return fmt.Errorf("leave waitlist: %w", err)
	}
	return nil
}

// DropWaiters takes out of the line of a commodity who stands there since just the time given: for those whom the database
// no longer has. One who has joined again meanwhile stays.
func (s *Store) DropWaiters(ctx context.Context, activityID, commodityID string, ws []sale.Waiter) error {
	if err := s.waits(ctx, "drop", activityID, commodityID, 0, ws); err != nil {
		return fmt.Errorf("drop waiters: %w", err)
	}
	return nil
}

func (s *Store) waits(ctx context.Context, what, activityID, commodityID string, epoch int64, ws []sale.Waiter) error {
	for from := 0; from < len(ws); from += MaxBatch {
		if err := s.wait(ctx, what, activityID, commodityID, epoch, ws[from:min(from+MaxBatch, len(ws))]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) wait(ctx context.Context, what, activityID, commodityID string, epoch int64, ws []sale.Waiter) error {
	k, err := keysOf(activityID)
	if err != nil {
		return err
	}
	if !sale.ValidID(commodityID) {
		return sale.ErrBadID
	}
	a := newScriptArgs(5+2*len(ws), 256+len(ws)*40)
	a.key(k.meta())
	a.key(k.waitlist(commodityID))
	a.str(what)
	a.int(epoch)
	a.int(int64(len(ws)))
	for _, w := range ws {
		a.int(w.UserID)
	}
	if what != "leave" {
		for _, w := range ws {
			a.int(w.JoinedAt.UnixMilli())
		}
	}
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.wait, a)
	if err != nil {
		return err
	}
	if _, _, err := s.header(activityID, floor, reply, 0); err != nil {
		return err
	}
	switch outcome, err := number(reply, 2); {
	case err != nil || outcome == 0:
		return fmt.Errorf("waitlist of %s: %w", activityID, sale.ErrNotReady)
	case outcome == 2:
		return fmt.Errorf("waitlist of %s: not being rebuilt under epoch %d: %w", activityID, epoch, sale.ErrConflict)
	}
	return nil
}

// WaitPosition is a user's place in the line of a commodity, 1 for the head, and when the user joined; 0 when the user
// does not wait.
func (s *Store) WaitPosition(ctx context.Context, activityID, commodityID string, userID int64) (int64, time.Time, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("place in the waitlist: %w", err)
	}
	member := strconv.FormatInt(userID, 10)
	pipe := s.rdb.Pipeline()
	rank := pipe.ZRank(ctx, k.waitlist(commodityID), member)
	score := pipe.ZScore(ctx, k.waitlist(commodityID), member)
	_, err = pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) {
		return 0, time.Time{}, nil
	}
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("place in the waitlist: %w", classify(err))
	}
	return rank.Val() + 1, time.UnixMilli(int64(score.Val())).UTC(), nil
}

// Waiting lists the first in the line of a commodity, at most limit.
func (s *Store) Waiting(ctx context.Context, activityID, commodityID string, limit int) ([]sale.Waiter, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return nil, fmt.Errorf("read waitlist: %w", err)
	}
	members, err := s.rdb.ZRangeWithScores(ctx, k.waitlist(commodityID), 0, int64(limit)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("read waitlist: %w", classify(err))
	}
	ws := make([]sale.Waiter, 0, len(members))
	for _, m := range members {
		member, _ := m.Member.(string) // always is one
		id, err := sale.ParseUserID(member)
		if err != nil {
			return nil, fmt.Errorf("read waitlist: member %.32q: %w", member, err)
		}
		ws = append(ws, sale.Waiter{ActivityID: activityID, CommodityID: commodityID, UserID: id, JoinedAt: time.UnixMilli(int64(m.Score)).UTC()})
	}
	return ws, nil
}

// DropWaitlist removes the line of a commodity: promotion is over.
func (s *Store) DropWaitlist(ctx context.Context, activityID, commodityID string) error {
	k, err := keysOf(activityID)
	if err != nil {
		return fmt.Errorf("drop waitlist: %w", err)
	}
	if err := s.rdb.Unlink(ctx, k.waitlist(commodityID)).Err(); err != nil {
		return fmt.Errorf("drop waitlist: %w", classify(err))
	}
	return nil
}

// Promote gives the units of one cancelled or closed order to the first in line who do not take part yet, as new
// reservations under tokens that tokenFor makes, and what is left back on sale (R12). line are the users in front, as
// Waiting lists them; only these are looked at. It answers as Return does, with the reservations to publish, and not_yet too
// when Redis has gone back behind what this process has seen: then so has the line, and a rebuild follows (R15).
// sale.ErrConflict when the line has moved since: read it and call again.
func (s *Store) Promote(ctx context.Context, r sale.Return, now time.Time, line []int64, tokenFor func(userID int64) string) (p sale.Promotion, err error) {
	k, err := keysOf(r.ActivityID)
	if err != nil {
		return p, fmt.Errorf("promote: %w", err)
	}
	if !sale.ValidToken(r.Token) || !sale.ValidID(r.CommodityID) {
		return sale.Promotion{Found: sale.SettleNotYet}, nil
	}
	tokens := make([]string, len(line))
	for i, u := range line {
		tokens[i] = tokenFor(u)
	}
	floor := s.floor(r.ActivityID)
	reply, err := s.run(ctx, s.sc.promote, promoteArgs(k, r, now, floor, line, tokens))
	if err == nil {
		p, err = s.promoted(r, floor, now, line, tokens, reply)
	}
	if err != nil {
		return p, fmt.Errorf("promote: %w", err)
	}
	return p, nil
}

func promoteArgs(k keys, r sale.Return, now time.Time, floor position, line []int64, tokens []string) *scriptArgs {
	a := newScriptArgs(15+4*len(line), 512+len(line)*256)
	a.key(k.meta())
	a.key(k.occupied())
	a.key(k.participants())
	a.key(k.waitlist(r.CommodityID))
	a.key(k.stock(r.CommodityID))
	a.key(k.token(r.Token))
	for _, u := range line {
		a.key(k.mark(u))
	}
	for _, t := range tokens {
		a.key(k.token(t))
	}
	a.clock(now)
	a.int(int64(len(line)))
	a.str(r.CommodityID)
	a.str(string(r.Status))
	a.str(string(endReason(r.Status)))
	a.str(r.OrderNo)
	a.int(r.Version)
	a.int(floor.epoch)
	a.int(floor.seq)
	for _, u := range line {
		a.int(u)
	}
	for _, t := range tokens {
		a.str(t)
	}
	return a
}

func (s *Store) promoted(r sale.Return, floor position, now time.Time, line []int64, tokens []string, reply []any) (p sale.Promotion, err error) {
	if p.Epoch, _, err = s.header(r.ActivityID, floor, reply, 0); err != nil {
		return p, err
	}
	code, err := number(reply, 3)
	if err != nil {
		return p, err
	}
	switch code {
	case 2:
		p.Found = sale.SettleAlready
		return p, nil
	case 4:
		p.Found = sale.SettleNotYet
		return p, nil
	case 5:
		return p, fmt.Errorf("the line moved: %w", sale.ErrConflict)
	}
	price, err := decimal.NewFromString(text(reply[4]))
	if err != nil {
		return p, fmt.Errorf("price: %w", err)
	}
	p.Found = sale.SettleDone
	for i := 5; i < len(reply); i++ {
		at, err := number(reply, i)
		if err != nil || at < 1 || at > int64(len(line)) {
			return sale.Promotion{}, fmt.Errorf("answered index %v", reply[i])
		}
		p.Reservations = append(p.Reservations, sale.Reservation{
			Token: tokens[at-1], UserID: line[at-1], ActivityID: r.ActivityID, CommodityID: r.CommodityID, Price: price,
			Quantity: 1, Epoch: p.Epoch, At: now.UTC().Truncate(time.Millisecond),
		})
	}
	return p, nil
}
