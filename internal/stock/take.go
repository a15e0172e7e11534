package stock

import (
	"context"
	"crypto/rand"
	"fmt"

	"seckill/internal/sale"
)

// TakeBack takes unsold units of a commodity out of sale: sale.ErrConflict when fewer are left, sale.ErrNotReady when
// the sale has no usable stock. What the database then does not confirm, an audit puts back.
func (s *Store) TakeBack(ctx context.Context, activityID, commodityID string, units int64) error {
	k, err := keysOf(activityID)
	if err != nil {
		return fmt.Errorf("take back stock: %w", err)
	}
	if !sale.ValidID(commodityID) || units <= 0 {
		return fmt.Errorf("take back %d units of %.40q: %w", units, commodityID, sale.ErrBadID)
	}
	a := newScriptArgs(5, 256)
	a.key(k.meta())
	a.key(k.stock(commodityID))
	a.int(units)
	a.str(commodityID)
	a.str(rand.Text()) // of this change: the client library may repeat the call
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.take, a)
	if err != nil {
		return fmt.Errorf("take back stock: %w", err)
	}
	if err := s.outcome(activityID, floor, reply); err != nil {
		return fmt.Errorf("take back stock: %w", err)
	}
	return nil
}
