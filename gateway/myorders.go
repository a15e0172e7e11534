package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// orderJSON is an Order of API.md.
type orderJSON struct {
	OrderNo      string `json:"orderNo"`
	RequestToken string `json:"requestToken"`
	ActivityID   string `json:"activityId"`
	CommodityID  string `json:"commodityId"`
	Quantity     int    `json:"quantity"`
	PayAmount    string `json:"payAmount"`
	Status       string `json:"status"`
	Version      int64  `json:"version"`
	CreatedAt    int64  `json:"createdAt"`
	PayBefore    int64  `json:"payBefore"`
	PaidAt       int64  `json:"paidAt,omitzero"`
	ClosedAt     int64  `json:"closedAt,omitzero"`
	PayURL       string `json:"payUrl,omitzero"`
}

func (g *Gateway) orderJSON(o *sale.Order) orderJSON {
	j := orderJSON{
		OrderNo: o.OrderNo, RequestToken: o.RequestToken, ActivityID: o.ActivityID, CommodityID: o.CommodityID,
		Quantity: o.Quantity, PayAmount: o.PayAmount, Status: string(o.Status), Version: o.Version,
		CreatedAt: sale.Millis(o.CreatedAt), PayBefore: sale.Millis(o.PayBefore),
		PaidAt: sale.Millis(o.PaidAt), ClosedAt: sale.Millis(o.ClosedAt),
	}
	if o.Status == sale.StatusPendingPayment && g.cfg.PayURL != "" && g.demoLogin == nil {
		j.PayURL = strings.ReplaceAll(g.cfg.PayURL, "{orderNo}", o.OrderNo)
	}
	return j
}

// Bounds of a page of orders.
const (
	defaultOrders = 20
	maxOrders     = 100
)

// listOrders answers the user's own orders, newest first, from one table (S17).
func (g *Gateway) listOrders(ctx *fasthttp.RequestCtx, _ request) error {
	user, err := g.reader(ctx)
	if err != nil {
		return err
	}
	limit := defaultOrders
	if s := string(ctx.QueryArgs().Peek("limit")); s != "" {
		limit, err = strconv.Atoi(s)
		if err != nil || limit < 1 || limit > maxOrders {
			return refuse(sale.CodeInvalidRequest, fmt.Sprintf("limit: must be between 1 and %d", maxOrders))
		}
	}
	cursor := string(ctx.QueryArgs().Peek("cursor"))
	sctx, cancel := g.storeContext()
	defer cancel()
	orders, next, err := g.ledger.OrdersOfUser(sctx, user, limit, cursor)
	if err != nil {
		return err
	}
	out := struct {
		Orders     []orderJSON `json:"orders"`
		NextCursor string      `json:"nextCursor"`
	}{Orders: make([]orderJSON, 0, len(orders)), NextCursor: next}
	for i := range orders {
		out.Orders = append(out.Orders, g.orderJSON(&orders[i]))
	}
	return answer(ctx, fasthttp.StatusOK, out)
}

// getOrder answers one order of the user.
func (g *Gateway) getOrder(ctx *fasthttp.RequestCtx, r request) error {
	user, err := g.reader(ctx)
	if err != nil {
		return err
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	o, err := g.ownOrder(sctx, r.params[0], user)
	if err != nil {
		return err
	}
	return answer(ctx, fasthttp.StatusOK, g.orderJSON(o))
}

// ownOrder reads an order; what is another's is not found (FS-076).
func (g *Gateway) ownOrder(ctx context.Context, orderNo string, user int64) (*sale.Order, error) {
	if table, err := sale.TableOfOrderNo(orderNo); err != nil || table != sale.TableOf(user) {
		return nil, fmt.Errorf("order: %w", sale.ErrNotFound)
	}
	o, err := g.ledger.OrderByNo(ctx, orderNo)
	if err != nil {
		return nil, err
	}
	if o.UserID != user {
		return nil, fmt.Errorf("order: %w", sale.ErrNotFound)
	}
	return o, nil
}

// payOrder is the demo payment; it is off outside the embedded default, where payUrl leads to the shop's own page.
func (g *Gateway) payOrder(ctx *fasthttp.RequestCtx, r request) error {
	if g.demoLogin == nil {
		return refuse(sale.CodeNotFound, "the demo payment is off here; see the order's payUrl")
	}
	return g.changeOrder(ctx, r, func(ctx context.Context, orderNo string, user int64) (*sale.Order, bool, error) {
		return g.ledger.Pay(ctx, orderNo, user, g.now(), "demo payment")
	})
}

// cancelOrder cancels an unpaid order; its unit is returned by the reconciler.
func (g *Gateway) cancelOrder(ctx *fasthttp.RequestCtx, r request) error {
	return g.changeOrder(ctx, r, g.ledger.Cancel)
}

type orderChange func(ctx context.Context, orderNo string, userID int64) (*sale.Order, bool, error)

func (g *Gateway) changeOrder(ctx *fasthttp.RequestCtx, r request, change orderChange) error {
	user, err := g.reader(ctx)
	if err != nil {
		return err
	}
	if err := noBody(ctx); err != nil {
		return err
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	if _, err := g.ownOrder(sctx, r.params[0], user); err != nil {
		return err
	}
	o, changed, err := change(sale.WithTrace(sctx, r.trace), r.params[0], user)
	if errors.Is(err, sale.ErrWrongState) {
		p := refuse(sale.CodeWrongStatus, "the order is in another state")
		if o != nil {
			p.Detail, p.OrderStatus = "the order is "+string(o.Status), o.Status
		}
		return p
	}
	if err != nil {
		return err
	}
	if changed {
		g.tell(sctx, o)
	}
	return answer(ctx, fasthttp.StatusOK, g.orderJSON(o))
}

// tell writes the new status to Redis and announces it. The database has decided already; whatever fails here is
// made good by the reconciler, because told_version stays behind (R8).
func (g *Gateway) tell(ctx context.Context, o *sale.Order) {
	rs := []sale.UserResult{{UserID: o.UserID, Result: o.Result()}}
	settled, err := g.stock.SetStatus(ctx, rs)
	if err == nil {
		err = g.announcer.Results(ctx, rs)
	}
	if err == nil && settled[0] != sale.SettleNotYet {
		err = g.ledger.MarkTold(ctx, o.RequestToken, o.UserID, o.Version)
	}
	if err != nil {
		g.log.Warn("gateway: telling a status, left to the reconciler", "orderNo", o.OrderNo, "err", err)
	}
}
