package ledger

import (
	"context"
	"database/sql"
	"fmt"

	"seckill/internal/sale"
)

// PendingReturns reads cancelled and closed orders whose units are still on their way back to stock, at most
// limit (and at most MaxList), spread over the tables so that none holds up the others.
func (l *Ledger) PendingReturns(ctx context.Context, limit int) ([]sale.Return, error) {
	var list []sale.Return
	err := l.todo(ctx, limit, "stock_returned = 0", func(o *orderRow) {
		list = append(list, sale.Return{
			Token: o.RequestToken, UserID: o.UserID, ActivityID: o.ActivityID, CommodityID: o.CommodityID,
			Quantity: o.Quantity, OrderNo: o.OrderNo, Status: o.Status, Version: o.Version,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("pending returns: %w", err)
	}
	return list, nil
}

// Untold reads orders whose latest version has not been confirmed in Redis (R8), bounded as PendingReturns.
func (l *Ledger) Untold(ctx context.Context, limit int) ([]sale.Order, error) {
	var list []sale.Order
	err := l.todo(ctx, limit, "told_version < version", func(o *orderRow) { list = append(list, o.Order) })
	if err != nil {
		return nil, fmt.Errorf("untold orders: %w", err)
	}
	return list, nil
}

// todo reads rows with work for the reconciler: a generated column, indexed, marks the few among the many.
func (l *Ledger) todo(ctx context.Context, limit int, where string, each func(*orderRow)) error {
	limit = min(max(limit, 1), l.opt.MaxList)
	share := (limit + sale.Tables - 1) / sale.Tables
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	left := limit
	for n := 0; n < sale.Tables && left > 0; n++ {
		err := l.query(ctx, l.read, func(r *sql.Rows) error {
			o, err := scanOrder(r)
			if err == nil {
				each(o)
				left--
			}
			return err
		}, "SELECT "+orderColumns+" FROM "+orderTable(n)+" WHERE todo = 1 AND "+where+" ORDER BY id LIMIT ?", min(share, left))
		if err != nil {
			return err
		}
	}
	return nil
}

// MarkReturned records that the units of a cancelled or closed order are back in stock: 0 becomes 1, once
// (FS-007). epoch is the one that Redis answered with: a rebuild that has begun since counts the units as still to come,
// and a mark that came after its snapshot would strand them (R10, R11). Errors: sale.ErrConflict when it was recorded
// before or the activity has another epoch by now, sale.ErrWrongState when the order is neither cancelled nor closed,
// sale.ErrNotFound.
func (l *Ledger) MarkReturned(ctx context.Context, token string, userID, epoch int64) error {
	if !sale.ValidToken(token) || userID <= 0 {
		return fmt.Errorf("mark returned: %w", sale.ErrNotFound)
	}
	table := sale.TableOf(userID)
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		o, err := l.oneOrder(ctx, t, table, "request_token = ? AND user_id = ?", token, userID)
		if err != nil {
			return err
		}
		if o.returned < 0 {
			return sale.ErrWrongState
		}
		// The row stays locked until the commit, so a rebuild raises the epoch before this or after it, never between.
		var now int64
		q := "SELECT epoch FROM activity WHERE id = ?" + l.d.forUpdate
		if err := t.QueryRowContext(ctx, q, o.ActivityID).Scan(&now); err != nil {
			return err
		}
		if now != epoch {
			return fmt.Errorf("answer of epoch %d, the activity has %d: %w", epoch, now, sale.ErrConflict)
		}
		n, err := affected(t.ExecContext(ctx, "UPDATE "+orderTable(table)+" SET stock_returned = 1 "+
			"WHERE request_token = ? AND user_id = ? AND stock_returned = 0", token, userID))
		if err == nil && n == 0 {
			return sale.ErrConflict
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("mark returned: %w", err)
	}
	return nil
}

// MarkTold records that Redis holds at least this version of an order (R8). told_version only grows, and never
// beyond the row's version; a call that has nothing to raise is no error. sale.ErrNotFound: no such order.
func (l *Ledger) MarkTold(ctx context.Context, token string, userID, version int64) error {
	if !sale.ValidToken(token) || userID <= 0 {
		return fmt.Errorf("mark told: %w", sale.ErrNotFound)
	}
	table := sale.TableOf(userID)
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		n, err := affected(t.ExecContext(ctx, "UPDATE "+orderTable(table)+" SET told_version = ? "+
			"WHERE request_token = ? AND user_id = ? AND told_version < ? AND version >= ?", version, token, userID, version, version))
		if err != nil || n == 1 {
			return err
		}
		_, err = l.oneOrder(ctx, t, table, "request_token = ? AND user_id = ?", token, userID)
		return err
	})
	if err != nil {
		return fmt.Errorf("mark told: %w", err)
	}
	return nil
}

// Open counts what is still to do for the orders of an activity: unpaid ones, those whose latest version is not told,
// and those whose units are on their way back (S22).
func (l *Ledger) Open(ctx context.Context, activityID string) (unpaid, untold, returning int64, err error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	for n := 0; n < sale.Tables; n++ {
		var u, t, r sql.NullInt64
		err := l.read.QueryRowContext(ctx, "SELECT SUM(status = 0), SUM(told_version < version), SUM(stock_returned = 0) FROM "+
			orderTable(n)+" WHERE activity_id = ? AND todo = 1 OR activity_id = ? AND status = 0", activityID, activityID).Scan(&u, &t, &r)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("open orders: %w", l.d.classify(err))
		}
		unpaid, untold, returning = unpaid+u.Int64, untold+t.Int64, returning+r.Int64
	}
	return unpaid, untold, returning, nil
}
