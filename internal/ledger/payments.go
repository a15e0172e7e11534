package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// ErrOtherPayment is returned for a payment id that was recorded with another order or amount.
// It is a sale.ErrConflict.
var ErrOtherPayment = fmt.Errorf("payment id was used for another order or amount: %w", sale.ErrConflict)

// RecordPayment records a callback once and lets it pay its order, in one transaction (S37). The same callback again
// gives the same outcome. A payment that comes after the order was cancelled or closed, or has another amount, is
// recorded as refund_due and changes nothing. It returns the order as it is now, and whether this call paid it.
// sale.ErrNotFound: no such order, and nothing is recorded; ErrOtherPayment: see there.
func (l *Ledger) RecordPayment(ctx context.Context, p sale.Payment) (outcome sale.PaymentOutcome, order *sale.Order, changed bool, err error) {
	table, err := sale.TableOfOrderNo(p.OrderNo)
	if err != nil {
		return "", nil, false, fmt.Errorf("record payment: %w", sale.ErrNotFound)
	}
	for range 2 { // the second time after a repeat has recorded it side by side
		outcome, order, changed, err = l.recordPayment(ctx, table, p)
		if !errors.Is(err, errDuplicate) {
			break
		}
	}
	if err != nil {
		return "", nil, false, fmt.Errorf("record payment %.64q: %w", p.ID, err)
	}
	return outcome, order, changed, nil
}

func (l *Ledger) recordPayment(ctx context.Context, table int, p sale.Payment) (outcome sale.PaymentOutcome, order *sale.Order, changed bool, err error) {
	err = l.retryTx(ctx, func(ctx context.Context, t tx) error {
		changed = false
		o, err := l.oneOrder(ctx, t, table, "order_no = ?"+l.d.forUpdate, p.OrderNo)
		if err != nil {
			return err
		}
		order = &o.Order
		if outcome, err = l.recorded(ctx, t, p); !errors.Is(err, sale.ErrNotFound) {
			return err
		}
		due, err := decimal.NewFromString(o.PayAmount)
		if err != nil {
			return fmt.Errorf("amount of order %s: %w", p.OrderNo, err)
		}
		switch {
		case !due.Equal(p.Amount):
			outcome = sale.PaymentRefundDue
		case o.Status == sale.StatusPendingPayment:
			outcome, changed = sale.PaymentPaid, true
		case o.Status == sale.StatusPaid:
			outcome = sale.PaymentAlreadyPaid
		default:
			outcome = sale.PaymentRefundDue
		}
		_, err = t.ExecContext(ctx, "INSERT INTO payment (payment_id, order_no, amount, outcome, paid_at, received_at) VALUES (?,?,?,?,?,?)",
			p.ID, p.OrderNo, sale.FormatMoney(p.Amount), string(outcome), p.PaidAt.UnixMilli(), l.nowMS())
		if err != nil || !changed {
			return err
		}
		return l.moveRows(ctx, t, table, []*orderRow{o}, move{to: sale.StatusPaid, reason: "payment", at: p.PaidAt})
	})
	return outcome, order, changed, err
}

// recorded returns the outcome of a callback that came before, or sale.ErrNotFound.
func (l *Ledger) recorded(ctx context.Context, t tx, p sale.Payment) (sale.PaymentOutcome, error) {
	var orderNo, amount, outcome string
	err := t.QueryRowContext(ctx, "SELECT order_no, amount, outcome FROM payment WHERE payment_id = ?", p.ID).Scan(&orderNo, &amount, &outcome)
	if errors.Is(err, sql.ErrNoRows) {
		return "", sale.ErrNotFound
	}
	if err != nil {
		return "", err
	}
	before, err := decimal.NewFromString(amount)
	if err != nil || orderNo != p.OrderNo || !before.Equal(p.Amount) {
		return "", ErrOtherPayment
	}
	return sale.PaymentOutcome(outcome), nil
}

// RefundsDue lists payments to give back, the oldest first, at most limit.
func (l *Ledger) RefundsDue(ctx context.Context, limit int) ([]sale.RecordedPayment, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var list []sale.RecordedPayment
	err := l.query(ctx, l.read, func(r *sql.Rows) error {
		var p sale.RecordedPayment
		var amount, outcome string
		var paid, received int64
		if err := r.Scan(&p.ID, &p.OrderNo, &amount, &outcome, &paid, &received); err != nil {
			return err
		}
		var err error
		p.Amount, err = decimal.NewFromString(amount)
		p.Outcome, p.PaidAt, p.ReceivedAt = sale.PaymentOutcome(outcome), timeOf(paid), timeOf(received)
		list = append(list, p)
		return err
	}, "SELECT payment_id, order_no, amount, outcome, paid_at, received_at FROM payment WHERE outcome = ? ORDER BY received_at, payment_id LIMIT ?",
		string(sale.PaymentRefundDue), min(max(limit, 1), l.opt.MaxList))
	if err != nil {
		return nil, fmt.Errorf("refunds due: %w", err)
	}
	return list, nil
}
