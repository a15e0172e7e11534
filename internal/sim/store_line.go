package sim

import (
	"context"
	"time"

	"seckill/internal/sale"
)

// Waiting is as of package stock.
func (s *store) Waiting(ctx context.Context, id, commodity string, limit int) (ws []sale.Waiter, err error) {
	err = s.by.call(ctx, toRedis, "waiting", "", func() error {
		s.r.lineRead()
		k := s.r.of(id)
		for _, u := range k.line(commodity, limit) {
			ws = append(ws, sale.Waiter{ActivityID: id, CommodityID: commodity, UserID: u, JoinedAt: time.UnixMilli(k.lines[commodity][u]).UTC()})
		}
		return nil
	})
	return ws, err
}

// JoinWaitlist is as of package stock.
func (s *store) JoinWaitlist(ctx context.Context, id, commodity string, ws []sale.Waiter) error {
	return s.script(ctx, id, "join waitlist", "", func(k *keysOfSale) error { return k.wait("join", commodity, 0, ws) })
}

// FillWaitlist is as of package stock.
func (s *store) FillWaitlist(ctx context.Context, id, commodity string, epoch int64, ws []sale.Waiter) error {
	return s.script(ctx, id, "fill waitlist", "", func(k *keysOfSale) error { return k.wait("fill", commodity, epoch, ws) })
}

// DropWaiters is as of package stock.
func (s *store) DropWaiters(ctx context.Context, id, commodity string, ws []sale.Waiter) error {
	if len(ws) == 0 {
		return nil
	}
	return s.script(ctx, id, "drop waiters", "", func(k *keysOfSale) error { return k.wait("drop", commodity, 0, ws) })
}

// LeaveWaitlist is as of package stock.
func (s *store) LeaveWaitlist(ctx context.Context, id, commodity string, user int64) error {
	return s.script(ctx, id, "leave waitlist", "", func(k *keysOfSale) error {
		return k.wait("leave", commodity, 0, []sale.Waiter{{UserID: user}})
	})
}

// DropWaitlist is as of package stock.
func (s *store) DropWaitlist(ctx context.Context, id, commodity string) error {
	return s.by.call(ctx, toRedis, "drop waitlist", "", func() error { delete(s.r.of(id).lines, commodity); return nil })
}
