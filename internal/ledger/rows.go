package ledger

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

const orderColumns = "order_no, request_token, user_id, activity_id, commodity_id, quantity, pay_amount, status, version, " +
	"created_at, pay_before, paid_at, closed_at, stock_returned, told_version"

// orderRow is one row of an order table.
type orderRow struct {
	sale.Order
	returned int8 // -1 for NULL
}

func scanOrder(r interface{ Scan(...any) error }) (*orderRow, error) {
	var o orderRow
	var status int
	var created, before int64
	var paid, closed, returned sql.NullInt64
	err := r.Scan(&o.OrderNo, &o.RequestToken, &o.UserID, &o.ActivityID, &o.CommodityID, &o.Quantity, &o.PayAmount,
		&status, &o.Version, &created, &before, &paid, &closed, &returned, &o.ToldVersion)
	if err != nil {
		return nil, err
	}
	var ok bool
	if o.Status, ok = sale.OrderStatus(status); !ok {
		return nil, fmt.Errorf("order %s has unknown status %d", o.OrderNo, status)
	}
	o.CreatedAt, o.PayBefore = timeOf(created), timeOf(before)
	o.PaidAt, o.ClosedAt = timeOrZero(paid), timeOrZero(closed)
	o.returned = -1
	if returned.Valid {
		o.returned = int8(returned.Int64)
	}
	return &o, nil
}

// decision is what this order means for its token. Price is the amount by quantity, which is exact; At is when
// the order was made.
func (o *orderRow) decision() (sale.Decision, error) {
	amount, err := decimal.NewFromString(o.PayAmount)
	if err != nil {
		return sale.Decision{}, fmt.Errorf("order %s has amount %q: %w", o.OrderNo, o.PayAmount, err)
	}
	if o.Quantity <= 0 {
		return sale.Decision{}, fmt.Errorf("order %s has quantity %d", o.OrderNo, o.Quantity)
	}
	return sale.Decision{
		Reservation: sale.Reservation{
			Token: o.RequestToken, UserID: o.UserID, ActivityID: o.ActivityID, CommodityID: o.CommodityID,
			Price: amount.DivRound(decimal.NewFromInt(int64(o.Quantity)), 2), Quantity: o.Quantity, At: o.CreatedAt,
		},
		Ordered: true, Reason: o.Result().Reason, OrderNo: o.OrderNo, Status: o.Status, Version: o.Version, PayBefore: o.PayBefore,
	}, nil
}

// Values of stock_token_log.status beyond those of an order.
const (
	logSoldOut = 4
	logFailed  = 5
)

func logStatus(n sql.NullInt64) sale.Status {
	switch {
	case !n.Valid:
		return sale.StatusProcessing
	case n.Int64 == logSoldOut:
		return sale.StatusSoldOut
	case n.Int64 == logFailed:
		return sale.StatusFailed
	}
	s, _ := sale.OrderStatus(int(n.Int64))
	return s
}

// LogRow is one row of a token log: a transition of a reservation, when, by whom and why (S9).
type LogRow struct {
	Token       string
	Version     int64
	UserID      int64
	ActivityID  string
	CommodityID string
	Quantity    int
	From, To    sale.TokenState
	Status      sale.Status // the user's status since then; processing for version 0
	Reason      string
	FirstToken  string // of a refusal as already_participated
	Role        string
	Node        string
	TraceID     string
	At          time.Time
}

const logColumns = "token, version, user_id, activity_id, commodity_id, quantity, from_state, to_state, status, reason, " +
	"first_token, role, node, trace_id, at"

func scanLog(r interface{ Scan(...any) error }) (*LogRow, error) {
	var g LogRow
	var status sql.NullInt64
	var from, to string
	var at int64
	err := r.Scan(&g.Token, &g.Version, &g.UserID, &g.ActivityID, &g.CommodityID, &g.Quantity, &from, &to, &status,
		&g.Reason, &g.FirstToken, &g.Role, &g.Node, &g.TraceID, &at)
	if err != nil {
		return nil, err
	}
	g.From, g.To = sale.TokenState(from), sale.TokenState(to)
	g.Status, g.At = logStatus(status), timeOf(at)
	return &g, nil
}

// refusal is the decision that a log row of version 1 without an order stands for. Price and epoch are not kept.
func (g *LogRow) refusal() sale.Decision {
	return sale.Decision{
		Reservation: sale.Reservation{
			Token: g.Token, UserID: g.UserID, ActivityID: g.ActivityID, CommodityID: g.CommodityID, Quantity: g.Quantity, At: g.At,
		},
		Reason: sale.Reason(g.Reason), SoldOut: g.Status == sale.StatusSoldOut, FirstToken: g.FirstToken,
		Status: g.Status, Version: g.Version,
	}
}

func (g *LogRow) refused() bool {
	return g.Status == sale.StatusSoldOut || g.Status == sale.StatusFailed
}
