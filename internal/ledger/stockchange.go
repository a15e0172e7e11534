package ledger

import (
	"context"
	"errors"
	"fmt"

	"seckill/internal/sale"
)

// ChangeStock adds units to an item of an activity, or takes unsold ones back with a negative delta, and returns the
// new total. sale.ErrConflict: the total would fall below what is sold, or exceed sale.MaxStock; sale.ErrNotFound: no
// such item; sale.ErrWrongState: the activity is settled.
func (l *Ledger) ChangeStock(ctx context.Context, activityID, commodityID string, delta int64) (total int64, err error) {
	err = l.retryTx(ctx, func(ctx context.Context, t tx) error {
		var state string
		if err := t.QueryRowContext(ctx, "SELECT state FROM activity WHERE id = ?", knownID(activityID)).Scan(&state); err != nil {
			return err
		}
		if state == string(sale.StateSettled) {
			return sale.ErrWrongState
		}
		n, err := affected(t.ExecContext(ctx, "UPDATE stock_table SET stock_total = stock_total + ? WHERE activity_id = ? AND commodity_id = ? "+
			"AND stock_total + ? >= sold_count AND stock_total + ? BETWEEN 1 AND ?", delta, activityID, knownID(commodityID), delta, delta, int64(sale.MaxStock)))
		if err != nil {
			return err
		}
		row := t.QueryRowContext(ctx, "SELECT stock_total FROM stock_table WHERE activity_id = ? AND commodity_id = ?", activityID, knownID(commodityID))
		if err := row.Scan(&total); err != nil {
			return err
		}
		if n == 0 {
			return sale.ErrConflict
		}
		return nil
	})
	if err != nil && !errors.Is(err, sale.ErrConflict) {
		return 0, fmt.Errorf("change stock: %w", err)
	}
	if err != nil {
		return total, fmt.Errorf("change stock of %s by %d: %w", commodityID, delta, err)
	}
	return total, nil
}
