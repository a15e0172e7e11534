package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"seckill/internal/sale"
)

// move is one status change of an order.
type move struct {
	to     sale.Status
	reason string // for the log
	at     time.Time
}

// releases reports whether the change gives the units of the order back.
func (m *move) releases() bool { return m.to == sale.StatusCancelled || m.to == sale.StatusClosed }

// Pay marks an order paid. at is when it was paid; why goes into the log (ASCII, at most 32). It returns the
// order, and whether this call changed it: a repeat gives the same order and false. An order that is cancelled or
// closed is returned with sale.ErrWrongState. Past its pay deadline an order can be paid as long as nobody has
// closed it: exactly one of paying, cancelling and closing wins (S23). sale.ErrNotFound: no such order of this user.
func (l *Ledger) Pay(ctx context.Context, orderNo string, userID int64, at time.Time, why string) (*sale.Order, bool, error) {
	return l.move(ctx, orderNo, userID, move{to: sale.StatusPaid, reason: why, at: at})
}

// Cancel cancels an unpaid order for its user. In the same transaction its units leave sold_count and their
// return to stock becomes due (stock_returned = 0). Results and errors as of Pay.
func (l *Ledger) Cancel(ctx context.Context, orderNo string, userID int64) (*sale.Order, bool, error) {
	return l.move(ctx, orderNo, userID, move{to: sale.StatusCancelled, reason: string(sale.ReasonUser), at: l.opt.Now()})
}

// CloseOrder closes an unpaid order, as Cancel does, for not having been paid. It does not look at the deadline:
// CloseUnpaid and the end of a sale do.
func (l *Ledger) CloseOrder(ctx context.Context, orderNo string, userID int64) (*sale.Order, bool, error) {
	return l.move(ctx, orderNo, userID, move{to: sale.StatusClosed, reason: string(sale.ReasonExpired), at: l.opt.Now()})
}

func (l *Ledger) move(ctx context.Context, orderNo string, userID int64, m move) (*sale.Order, bool, error) {
	table, err := sale.TableOfOrderNo(orderNo)
	if err != nil || userID <= 0 || sale.TableOf(userID) != table {
		return nil, false, fmt.Errorf("%s order: %w", m.to, sale.ErrNotFound)
	}
	var o *orderRow
	changed := false
	err = l.retryTx(ctx, func(ctx context.Context, t tx) (err error) {
		changed = false
		// The lock makes the row's state ours until the commit: of two that race, the second reads what the first did.
		o, err = l.oneOrder(ctx, t, table, "order_no = ? AND user_id = ?"+l.d.forUpdate, orderNo, userID)
		if err != nil {
			return err
		}
		switch o.Status {
		case m.to:
			return nil
		case sale.StatusPendingPayment:
			changed = true
			return l.moveRows(ctx, t, table, []*orderRow{o}, m)
		}
		return fmt.Errorf("order is %s: %w", o.Status, sale.ErrWrongState)
	})
	switch {
	case errors.Is(err, sale.ErrWrongState):
		return &o.Order, false, fmt.Errorf("%s order %s: %w", m.to, orderNo, err)
	case err != nil:
		return nil, false, fmt.Errorf("%s order %s: %w", m.to, orderNo, err)
	}
	return &o.Order, changed, nil
}

// moveRows changes unpaid orders of one table, which this transaction has locked: the rows, one log row each
// (S9), and for those that release their units the stock, in the order of its keys as Commit does.
func (l *Ledger) moveRows(ctx context.Context, t tx, table int, list []*orderRow, m move) error {
	at := m.at.UnixMilli()
	set, args := "status = ?, version = version + 1, ", []any{m.to.Number()}
	if m.releases() {
		set += "closed_at = ?, stock_returned = 0"
	} else {
		set += "paid_at = ?"
	}
	args = append(args, at)
	for _, o := range list {
		args = append(args, o.OrderNo)
	}
	args = append(args, sale.StatusPendingPayment.Number())
	n, err := affected(t.ExecContext(ctx, "UPDATE "+orderTable(table)+" SET "+set+
		" WHERE order_no IN ("+marks(len(list))+") AND status = ?", args...))
	if err != nil {
		return err
	}
	if n != int64(len(list)) {
		return fmt.Errorf("moved %d of %d locked orders: %w", n, len(list), sale.ErrTransient)
	}
	for _, o := range list {
		o.Status = m.to
		o.Version++
		if m.releases() {
			o.ClosedAt, o.returned = timeOf(at), 0
		} else {
			o.PaidAt = timeOf(at)
		}
	}
	if err := l.logMoves(ctx, t, table, list, m); err != nil {
		return err
	}
	if m.releases() {
		return unsell(ctx, t, list)
	}
	return nil
}

func (l *Ledger) logMoves(ctx context.Context, t tx, table int, list []*orderRow, m move) error {
	to := sale.TokenCommitted
	if m.releases() {
		to = sale.TokenReleased
	}
	values := make([]string, len(list))
	args := make([]any, 0, 13*len(list))
	now, trace := l.nowMS(), plainText(l.opt.TraceID(ctx), 64)
	for i, o := range list {
		values[i] = "(?,?,?,?,?,?,'committed',?,?,?,'',?,?,?,?)"
		args = append(args, o.RequestToken, o.Version, o.UserID, o.ActivityID, o.CommodityID, o.Quantity,
			string(to), m.to.Number(), plainText(m.reason, 32), l.opt.Role, l.opt.Node, trace, now)
	}
	return insertRows(ctx, t, "INSERT INTO "+logTable(table)+" ("+logColumns+") VALUES ", values, args)
}

// unsell takes the units of released orders out of sold_count.
func unsell(ctx context.Context, t tx, list []*orderRow) error {
	units := map[itemKey]int64{}
	for _, o := range list {
		units[itemKey{o.ActivityID, o.CommodityID}] += int64(o.Quantity)
	}
	for _, k := range sortedKeys(units) {
		n, err := affected(t.ExecContext(ctx, "UPDATE stock_table SET sold_count = sold_count - ? "+
			"WHERE activity_id = ? AND commodity_id = ? AND sold_count >= ?", units[k], k.activityID, k.commodityID, units[k]))
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("BUG: %s/%s has sold fewer than the %d units being released", k.activityID, k.commodityID, units[k])
		}
	}
	return nil
}

// sortedKeys is the order in which every transaction touches stock rows.
func sortedKeys(m map[itemKey]int64) []itemKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b itemKey) int {
		return cmp.Or(cmp.Compare(a.activityID, b.activityID), cmp.Compare(a.commodityID, b.commodityID))
	})
}

// CloseUnpaid closes orders whose pay deadline is at or before now, at most limit of them (and at most MaxList),
// each table in a transaction of its own, and returns them as they are now. On an error it also returns what was
// closed before it.
func (l *Ledger) CloseUnpaid(ctx context.Context, now time.Time, limit int) ([]sale.Order, error) {
	limit = min(limit, l.opt.MaxList)
	var closed []sale.Order
	m := move{to: sale.StatusClosed, reason: string(sale.ReasonExpired), at: l.opt.Now()}
	for table := 0; table < sale.Tables && len(closed) < limit; table++ {
		var rows []*orderRow
		err := l.retryTx(ctx, func(ctx context.Context, t tx) (err error) {
			rows, err = l.lockUnpaid(ctx, t, table, now, limit-len(closed))
			if err != nil || len(rows) == 0 {
				return err
			}
			return l.moveRows(ctx, t, table, rows, m)
		})
		if err != nil {
			return closed, fmt.Errorf("close unpaid orders: %w", err)
		}
		for _, o := range rows {
			closed = append(closed, o.Order)
		}
	}
	return closed, nil
}

// lockUnpaid finds overdue orders without locks, then locks them by their numbers, in order, and keeps those that
// are still unpaid. To lock while scanning the deadline index would cross with a payment, which goes from the row
// to that index.
func (l *Ledger) lockUnpaid(ctx context.Context, t tx, table int, now time.Time, limit int) ([]*orderRow, error) {
	var numbers []any
	err := l.query(ctx, t, func(r *sql.Rows) error {
		var no string
		err := r.Scan(&no)
		numbers = append(numbers, no)
		return err
	}, "SELECT order_no FROM "+orderTable(table)+" WHERE status = 0 AND pay_before <= ? ORDER BY pay_before LIMIT ?",
		now.UnixMilli(), min(limit, l.opt.MaxRows))
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	var rows []*orderRow
	err = l.query(ctx, t, func(r *sql.Rows) error {
		o, err := scanOrder(r)
		if err == nil && o.Status == sale.StatusPendingPayment {
			rows = append(rows, o)
		}
		return err
	}, "SELECT "+orderColumns+" FROM "+orderTable(table)+" WHERE order_no IN ("+marks(len(numbers))+") ORDER BY order_no"+l.d.forUpdate,
		numbers...)
	return rows, err
}
