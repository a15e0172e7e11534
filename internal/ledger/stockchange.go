package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"seckill/internal/sale"
)

// ChangeStock adds units to an item of an activity, or takes unsold ones back with a negative delta, and returns the
// new total. The change counts once, also when its commit is in doubt and it is repeated here (S39). sale.ErrConflict:
// the total would fall below what is sold, or exceed sale.MaxStock; sale.ErrNotFound: no such item; sale.ErrWrongState:
// the activity is settled.
func (l *Ledger) ChangeStock(ctx context.Context, activityID, commodityID string, delta int64) (total int64, err error) {
	c := stockChange{id: rand.Text(), activityID: knownID(activityID), commodityID: knownID(commodityID), delta: delta}
	err = l.retryTx(ctx, func(ctx context.Context, t tx) (err error) {
		total, err = l.changeStock(ctx, t, c)
		return err
	})
	if errors.Is(err, errDuplicate) { // an earlier try was applied after all
		total, err = l.stockTotal(ctx, l.primary, c)
	}
	if err != nil && !errors.Is(err, sale.ErrConflict) {
		return 0, fmt.Errorf("change stock: %w", err)
	}
	if err != nil {
		return total, fmt.Errorf("change stock of %s by %d: %w", commodityID, delta, err)
	}
	return total, nil
}

// stockChange is one change of an item's total, under an id of its own.
type stockChange struct {
	id, activityID, commodityID string
	delta                       int64
}

// changeStock notes the change, whose id is unique, then makes it: a try that finds the note of an earlier one, or waits
// for its commit, changes nothing.
func (l *Ledger) changeStock(ctx context.Context, t tx, c stockChange) (total int64, err error) {
	_, err = t.ExecContext(ctx, "INSERT INTO stock_change (change_id, activity_id, commodity_id, delta, stock_total, node, at) VALUES (?,?,?,?,0,?,?)",
		c.id, c.activityID, c.commodityID, c.delta, l.opt.Node, l.nowMS())
	if err != nil {
		return 0, err
	}
	var state string
	if err := t.QueryRowContext(ctx, "SELECT state FROM activity WHERE id = ?", c.activityID).Scan(&state); err != nil {
		return 0, err
	}
	if state == string(sale.StateSettled) {
		return 0, sale.ErrWrongState
	}
	n, err := affected(t.ExecContext(ctx, "UPDATE stock_table SET stock_total = stock_total + ? WHERE activity_id = ? AND commodity_id = ? "+
		"AND stock_total + ? >= sold_count AND stock_total + ? BETWEEN 1 AND ?", c.delta, c.activityID, c.commodityID, c.delta, c.delta, int64(sale.MaxStock)))
	if err != nil {
		return 0, err
	}
	if total, err = l.stockTotal(ctx, t, c); err != nil {
		return 0, err
	}
	if n == 0 {
		return total, sale.ErrConflict
	}
	_, err = t.ExecContext(ctx, "UPDATE stock_change SET stock_total = ? WHERE change_id = ?", total, c.id)
	return total, err
}

func (l *Ledger) stockTotal(ctx context.Context, t tx, c stockChange) (total int64, err error) {
	err = t.QueryRowContext(ctx, "SELECT stock_total FROM stock_table WHERE activity_id = ? AND commodity_id = ?", c.activityID, c.commodityID).Scan(&total)
	return total, l.d.classify(err)
}
