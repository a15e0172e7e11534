package gateway

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// paymentBody is the body of a payment callback.
type paymentBody struct {
	PaymentID string         `json:"paymentId"`
	OrderNo   string         `json:"orderNo"`
	Amount    string         `json:"amount"`
	PaidAt    jsontext.Value `json:"paidAt"`
}

func (b *paymentBody) payment() (sale.Payment, error) {
	p := sale.Payment{ID: b.PaymentID, OrderNo: b.OrderNo}
	if p.ID == "" || len(p.ID) > sale.MaxPaymentIDLength || !printable(p.ID) {
		return p, refuse(sale.CodeInvalidRequest, "paymentId: must be 1 to 64 printable ASCII characters")
	}
	var err error
	if p.Amount, err = sale.ParseMoney(b.Amount); err != nil {
		return p, refuse(sale.CodeInvalidRequest, "amount: must be a decimal string with at most two places")
	}
	if p.PaidAt, err = parseInstant("paidAt", b.PaidAt); err != nil {
		return p, refuse(sale.CodeInvalidRequest, err.Error())
	}
	return p, nil
}

func printable(s string) bool {
	return bytes.IndexFunc([]byte(s), func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// paymentCallback takes a signed callback of the payment service (S37). The signature is checked before the body is
// looked at; each callback is recorded once, and a repeat gets the same answer.
func (g *Gateway) paymentCallback(ctx *fasthttp.RequestCtx, r request) error {
	if g.payments == nil {
		return refuse(sale.CodeNotFound, "payment callbacks are off here")
	}
	header := func(name string) string { return string(ctx.Request.Header.Peek(name)) }
	if err := g.payments(header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"), ctx.PostBody()); err != nil {
		g.log.Warn("gateway: payment callback refused", "err", err, "traceId", r.trace)
		return refuse(sale.CodeUnauthenticated, "the callback's signature is missing, wrong or too old")
	}
	var body paymentBody
	if err := parseBody(ctx, &body); err != nil {
		return err
	}
	p, err := body.payment()
	if err != nil {
		return err
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	outcome, o, changed, err := g.ledger.RecordPayment(sale.WithTrace(sctx, r.trace), p)
	if errors.Is(err, sale.ErrConflict) {
		return refuse(sale.CodeInvalidRequest, "paymentId: was used for another order or amount")
	}
	if err != nil {
		return err
	}
	if changed {
		g.tell(sctx, o)
	}
	if outcome == sale.PaymentRefundDue {
		g.log.Warn("gateway: refund due", "paymentId", p.ID, "orderNo", p.OrderNo, "status", o.Status, "traceId", r.trace)
	}
	return answer(ctx, fasthttp.StatusOK, struct {
		Outcome sale.PaymentOutcome `json:"outcome"`
	}{outcome})
}
