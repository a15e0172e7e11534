package gateway

import (
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// requestToken gives a request token for a sale (S3). It shares the per-user window with orders, and is given before
// the start too, so that the crowd does not come for it in the first second.
func (g *Gateway) requestToken(ctx *fasthttp.RequestCtx, r request) error {
	user, err := g.user(ctx)
	if err != nil {
		return err
	}
	if err := noBody(ctx); err != nil {
		return err
	}
	e, err := g.activity(r.params[0])
	if err != nil {
		return err
	}
	switch e.state(g.now()) {
	case sale.StateEnded, sale.StateSettled:
		return refuse(sale.CodeEnded, "this sale is over")
	case sale.StateDraft:
		return retryLater(sale.CodeNotReady, "this sale is not prepared yet", 2*time.Second)
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	ok, after, err := g.stock.Limit(sctx, e.ID, user, g.now())
	if err != nil {
		return g.storeError("limit", err)
	}
	if !ok {
		return retryLater(sale.CodeRateLimited, "you are asking too often", after)
	}
	token, expires := g.tokens.Issue(user, e.ID)
	b := append(ctx.Response.Body()[:0], `{"requestToken":"`...)
	b = append(b, token...)
	b = append(b, `","expiresAt":`...)
	b = strconv.AppendInt(b, expires.UnixMilli(), 10)
	writeJSON(ctx, fasthttp.StatusOK, append(b, '}'))
	return nil
}

// createOrder admits an order request: checks that need no back end, the local sold-out answer, then one place in a
// batch of the pre-deduct script, then the broker's acknowledgement (S1, S6, S7).
func (g *Gateway) createOrder(ctx *fasthttp.RequestCtx, r request) error {
	user, err := g.user(ctx)
	if err != nil {
		return err
	}
	order, err := parseOrder(ctx)
	if err != nil {
		return err
	}
	activityID, expired, err := g.tokens.Verify(order.RequestToken, user)
	if err != nil {
		return refuse(sale.CodeInvalidToken, "the request token is malformed, forged or for another user")
	}
	if activityID != r.params[0] {
		return refuse(sale.CodeInvalidToken, "the request token is for another sale")
	}
	e, err := g.activity(activityID)
	if err != nil {
		return err
	}
	if expired {
		// Used in time or not: only a repeat of an order that was accepted is answered past the token's life.
		return g.repeatOnly(ctx, user, order, activityID)
	}
	item := e.Item(order.CommodityID)
	switch {
	case item == nil:
		return refuse(sale.CodeNotFound, "this sale has no such commodity")
	case order.Quantity > item.MaxPerUser:
		return refuse(sale.CodeInvalidRequest, "quantity: at most "+strconv.Itoa(item.MaxPerUser)+" for each user")
	case e.StateAt(g.now()) == sale.StateScheduled:
		return &problem{Code: sale.CodeNotStarted, Detail: "this sale has not started", StartsAt: e.StartsAt}
	case e.State == sale.StateDraft:
		return retryLater(sale.CodeNotReady, "this sale is not prepared yet", 2*time.Second)
	case g.soldOut.answers(activityID, order.CommodityID, user):
		return soldOutProblem()
	case e.queued >= int64(g.cfg.MaxQueued):
		// Back-pressure: said before stock is touched, since what is accepted must be decided (S18). A repeat of an
		// accepted order is answered by its result all the same.
		return retryLater(sale.CodeOverloaded, "too many requests wait for their decision, please try again", g.pollAfter(e.ID))
	case g.draining.Load():
		return retryLater(sale.CodeOverloaded, "this server is stopping, please try again", time.Second)
	}
	a := g.batcherOf(activityID).admit(sale.ReserveRequest{
		Token: order.RequestToken, UserID: user, CommodityID: order.CommodityID, Quantity: order.Quantity,
	}, r.trace)
	if a.err != nil {
		if errors.Is(a.err, sale.ErrUncertain) {
			return g.pending(e.ID, order.RequestToken)
		}
		return a.err
	}
	return g.answerAdmission(ctx, e, order, user, a)
}

func soldOutProblem() *problem { return refuse(sale.CodeSoldOut, "sold out") }

// pending is the answer to an order whose reservation or publish is uncertain: never a failure (R9).
func (g *Gateway) pending(activityID, token string) *problem {
	after := g.pollAfter(activityID)
	return &problem{
		Code: sale.CodePending, Detail: "your request is held but its place in the queue is not confirmed yet; ask again",
		RequestToken: token, RetryAfter: after, PollAfter: after,
	}
}

// answerAdmission turns what the script and the broker said into the answer.
func (g *Gateway) answerAdmission(ctx *fasthttp.RequestCtx, e *entry, order orderBody, user int64, a admission) error {
	r := a.reply
	switch r.Outcome {
	case sale.ReserveAccepted:
		g.soldOut.joined(e.ID, user)
		if !a.published {
			return g.pending(e.ID, order.RequestToken)
		}
		return g.accepted(ctx, r.Result)
	case sale.ReserveRepeat:
		if r.Result.Status != sale.StatusProcessing {
			return g.writeResult(ctx, fasthttp.StatusOK, r.Result)
		}
		if toPublish(&r) && !a.published {
			return g.pending(e.ID, order.RequestToken)
		}
		return g.accepted(ctx, r.Result)
	case sale.ReserveMismatch:
		return refuse(sale.CodeTokenMismatch, "this request token was used for another commodity or quantity")
	case sale.ReserveForeignHolder:
		return refuse(sale.CodeInvalidToken, "the request token is malformed, forged or for another user")
	case sale.ReserveParticipated:
		if r.FirstToken == order.RequestToken {
			// The mark names this very token, whose state Redis has lost: the database knows it.
			return g.repeatOnly(ctx, user, order, e.ID)
		}
		return &problem{
			Code: sale.CodeAlreadyParticipated, Detail: "you take part in this sale already, under the request token given",
			RequestToken: r.FirstToken,
		}
	case sale.ReserveSoldOut:
		g.soldOut.load(e.ID)
		return soldOutProblem()
	case sale.ReserveNotStarted:
		return &problem{Code: sale.CodeNotStarted, Detail: "this sale has not started", StartsAt: e.StartsAt}
	case sale.ReserveEnded:
		return refuse(sale.CodeEnded, "this sale is over")
	case sale.ReservePaused:
		return refuse(sale.CodePaused, "this sale is paused")
	case sale.ReserveNotReady:
		return retryLater(sale.CodeNotReady, "the stock of this sale is being prepared", time.Second)
	case sale.ReserveUnknownItem:
		return refuse(sale.CodeNotFound, "this sale has no such commodity")
	case sale.ReserveBadQuantity:
		return refuse(sale.CodeInvalidRequest, "quantity: more than one user may have")
	case sale.ReserveBlocked:
		return refuse(sale.CodeBlocked, "you may not take part in this sale")
	case sale.ReserveNotEligible:
		return refuse(sale.CodeNotEligible, "this sale is for invited users")
	case sale.ReserveRateLimited:
		return retryLater(sale.CodeRateLimited, "you are asking too often", r.RetryAfter)
	case sale.ReserveSaleLimited:
		return retryLater(sale.CodeRateLimited, "this sale is at its limit, please try again", r.RetryAfter)
	}
	panic("BUG: reserve outcome without an answer: " + string(r.Outcome))
}

// accepted answers 202: the request is in the queue, which is not yet an order (S7).
func (g *Gateway) accepted(ctx *fasthttp.RequestCtx, r sale.Result) error {
	r.PollAfter = g.pollAfter(r.ActivityID)
	b := append(ctx.Response.Body()[:0], '{')
	b = r.AppendFields(b)
	b = append(b, `,"resultUrl":"`...)
	b = append(b, resultURL(r.RequestToken)...)
	writeJSON(ctx, fasthttp.StatusAccepted, append(b, `"}`...))
	return nil
}

// writeResult answers with a result; one still processing says when to ask again.
func (g *Gateway) writeResult(ctx *fasthttp.RequestCtx, status int, r sale.Result) error {
	if r.Status == sale.StatusProcessing {
		r.PollAfter = g.pollAfter(r.ActivityID)
	}
	b := append(ctx.Response.Body()[:0], '{')
	writeJSON(ctx, status, append(r.AppendFields(b), '}'))
	return nil
}

// repeatOnly answers an order request whose token is past its life: with the state of the order it made, if it made
// one, else invalid_token.
func (g *Gateway) repeatOnly(ctx *fasthttp.RequestCtx, user int64, order orderBody, activityID string) error {
	r, err := g.findResult(activityID, order.RequestToken, user)
	if errors.Is(err, sale.ErrNotFound) {
		return refuse(sale.CodeInvalidToken, "the request token is expired; get a new one")
	}
	if err != nil {
		return err
	}
	if r.CommodityID != order.CommodityID || r.Quantity != order.Quantity {
		return refuse(sale.CodeTokenMismatch, "this request token was used for another commodity or quantity")
	}
	if r.Status == sale.StatusProcessing {
		return g.accepted(ctx, r)
	}
	return g.writeResult(ctx, fasthttp.StatusOK, r)
}
