package gateway

import (
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// joinWaitlist puts the user at the end of the line for one commodity: a unit that comes back goes to its head (S24).
// The database keeps the line, Redis serves it. One who waits already is told so, one who takes part cannot wait.
func (g *Gateway) joinWaitlist(ctx *fasthttp.RequestCtx, r request) error {
	user, err := g.user(ctx)
	if err != nil {
		return err
	}
	var body struct {
		CommodityID string `json:"commodityId"`
	}
	if err := parseBody(ctx, &body); err != nil {
		return err
	}
	e, err := g.activity(r.params[0])
	if err != nil {
		return err
	}
	if e.Item(body.CommodityID) == nil {
		return refuse(sale.CodeNotFound, "this sale has no such commodity")
	}
	if err := g.mayWait(e); err != nil {
		return err
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
	token, takesPart, err := g.stock.Mark(sctx, e.ID, user)
	if err != nil {
		return g.storeError("mark", err)
	}
	if takesPart {
		return &problem{Code: sale.CodeAlreadyParticipated, Detail: "you take part in this sale already, under the request token given", RequestToken: token}
	}
	joined, err := g.ledger.JoinWaitlist(sctx, e.ID, body.CommodityID, user)
	waits := errors.Is(err, sale.ErrExists)
	if errors.Is(err, sale.ErrWrongState) {
		return refuse(sale.CodeAlreadyParticipated, "a unit came to you from this waitlist already")
	}
	if err != nil && !waits {
		return err
	}
	// Written again for one who waits: the first time may have failed in between.
	if err := g.stock.JoinWaitlist(sctx, e.ID, body.CommodityID, []sale.Waiter{{UserID: user, JoinedAt: joined}}); err != nil {
		return g.storeError("join waitlist", err)
	}
	if waits {
		return refuse(sale.CodeAlreadyWaiting, "you are in this waitlist already")
	}
	position, _, err := g.stock.WaitPosition(sctx, e.ID, body.CommodityID, user)
	if err != nil {
		return g.storeError("place in waitlist", err)
	}
	writeJSON(ctx, fasthttp.StatusOK, append(strconv.AppendInt([]byte(`{"position":`), position, 10), '}'))
	return nil
}

// mayWait: from the start of a sale until its promotion ends, unless it is not ready.
func (g *Gateway) mayWait(e *entry) error {
	now := g.now()
	switch e.state(now) {
	case sale.StateScheduled:
		return &problem{Code: sale.CodeNotStarted, Detail: "this sale has not started", StartsAt: e.StartsAt}
	case sale.StateDraft, sale.StateNotReady:
		return retryLater(sale.CodeNotReady, "this sale is being prepared", time.Second)
	case sale.StateSettled:
		return refuse(sale.CodeWaitlistClosed, "the waitlist of this sale is closed")
	}
	if !now.Before(e.WaitlistUntil) {
		return refuse(sale.CodeWaitlistClosed, "the waitlist of this sale is closed")
	}
	return nil
}

// leaveWaitlist takes the user out of every line of the sale; a repeat is answered the same.
func (g *Gateway) leaveWaitlist(ctx *fasthttp.RequestCtx, r request) error {
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
	sctx, cancel := g.storeContext()
	defer cancel()
	if _, err := g.ledger.LeaveWaitlist(sctx, e.ID, user); err != nil {
		return err
	}
	for _, it := range e.Items {
		if err := g.stock.LeaveWaitlist(sctx, e.ID, it.CommodityID, user); err != nil && !errors.Is(err, sale.ErrNotReady) {
			return g.storeError("leave waitlist", err)
		}
	}
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}

// appendPlace adds the user's place in the sale's waitlist to the answer of /me, if there is one.
func (g *Gateway) appendPlace(b []byte, e *entry, user int64) []byte {
	ctx, cancel := g.storeContext()
	defer cancel()
	for _, it := range e.Items {
		position, joined, err := g.stock.WaitPosition(ctx, e.ID, it.CommodityID, user)
		if err != nil {
			g.log.Warn("gateway: place in waitlist", "err", err)
			return b
		}
		if position > 0 {
			b = append(b, `,"waitlist":{"commodityId":"`...)
			b = append(b, it.CommodityID...)
			b = append(b, `","position":`...)
			b = append(strconv.AppendInt(b, position, 10), `,"joinedAt":`...)
			return append(strconv.AppendInt(b, joined.UnixMilli(), 10), '}')
		}
	}
	return b
}
