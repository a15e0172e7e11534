package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// toolRoutes are the operators' routes beside a sale's life: dead letters, refunds, one reservation's story.
func (g *Gateway) toolRoutes(only func(handler) handler) []routeDef {
	get := func(h handler) map[string]handler { return map[string]handler{"GET": only(h)} }
	post := func(h handler) map[string]handler { return map[string]handler{"POST": only(h)} }
	return []routeDef{
		{"admin_reservation", split("/admin/v1/reservations/*"), get(g.adminReservation)},
		{"admin_dead_letters", split("/admin/v1/dead-letters"), get(g.listDeadLetters)},
		{"admin_dead_letter", split("/admin/v1/dead-letters/*"), get(g.getDeadLetter)},
		{"admin_dead_replay", split("/admin/v1/dead-letters/*/replay"), post(g.replayDeadLetter)},
		{"admin_dead_discard", split("/admin/v1/dead-letters/*/discard"), post(g.discardDeadLetter)},
		{"admin_presence", split("/admin/v1/presence"), get(g.presence)},
		{"admin_refunds", split("/admin/v1/refunds"), get(g.listRefunds)},
		{"admin_stock", split("/admin/v1/activities/*/stock"), post(g.changeStock)},
		{"admin_audit", split("/admin/v1/activities/*/audit"), post(g.auditOnly)},
		{"admin_reconcile", split("/admin/v1/activities/*/reconcile"), post(g.reconcile)},
	}
}

// deadLetterJSON is a dead letter for operators. The message is text where it is valid UTF-8, else its bytes in Go's
// quoted form, so that the answer is always valid JSON.
type deadLetterJSON struct {
	ID        string `json:"id"`
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    string `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail"`
	State     string `json:"state"`
	Replays   int    `json:"replays"`
	At        int64  `json:"at"`
}

func deadJSON(d *sale.DeadLetter) deadLetterJSON {
	return deadLetterJSON{
		ID: strconv.FormatInt(d.ID, 10), Topic: d.Topic, Partition: d.Partition, Offset: strconv.FormatInt(d.Offset, 10),
		Key: textOf(d.Key), Value: textOf(d.Value), Reason: d.Reason, Detail: d.Detail, State: string(d.State),
		Replays: d.Replays, At: sale.Millis(d.At),
	}
}

func textOf(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strconv.Quote(string(b))
}

// maxListed is how many rows an operators' list has at most.
const maxListed = 100

func (g *Gateway) listDeadLetters(ctx *fasthttp.RequestCtx, _ request) error {
	args := ctx.QueryArgs()
	state := sale.DeadLetterState(args.Peek("state"))
	switch state {
	case "", sale.DeadParked, sale.DeadReplayed, sale.DeadDiscarded:
	default:
		return refuse(sale.CodeInvalidRequest, "state: must be parked, replayed or discarded")
	}
	after := int64(0)
	if s := string(args.Peek("cursor")); s != "" {
		var err error
		if after, err = strconv.ParseInt(s, 10, 64); err != nil || after < 0 {
			return refuse(sale.CodeInvalidRequest, "cursor: is not one of ours")
		}
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	list, err := g.ledger.DeadLetters(sctx, state, after, maxListed)
	if err != nil {
		return err
	}
	out := struct {
		DeadLetters []deadLetterJSON `json:"deadLetters"`
		NextCursor  string           `json:"nextCursor"`
	}{DeadLetters: make([]deadLetterJSON, 0, len(list))}
	for i := range list {
		out.DeadLetters = append(out.DeadLetters, deadJSON(&list[i]))
	}
	if len(list) == maxListed {
		out.NextCursor = strconv.FormatInt(list[len(list)-1].ID, 10)
	}
	return answer(ctx, fasthttp.StatusOK, out)
}

// deadLetter reads the one named in the path.
func (g *Gateway) deadLetter(r request) (*sale.DeadLetter, error) {
	id, err := strconv.ParseInt(r.params[0], 10, 64)
	if err != nil || id <= 0 {
		return nil, fmt.Errorf("dead letter: %w", sale.ErrNotFound)
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	return g.ledger.DeadLetter(sctx, id)
}

func (g *Gateway) getDeadLetter(ctx *fasthttp.RequestCtx, r request) error {
	d, err := g.deadLetter(r)
	if err != nil {
		return err
	}
	return answer(ctx, fasthttp.StatusOK, deadJSON(d))
}

// replayDeadLetter puts the message back into the queue as it was. The consumer decides each token once, so a replay
// of a decided one repeats its decision (S11, R18).
func (g *Gateway) replayDeadLetter(ctx *fasthttp.RequestCtx, r request) error {
	d, err := g.deadLetter(r)
	if err != nil {
		return err
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	if err := g.queue.Replay(sctx, d.Key, d.Value); err != nil {
		g.log.Warn("gateway: replay", "id", d.ID, "err", err)
		return retryLater(sale.CodeOverloaded, "the queue did not confirm the message; replaying again is harmless", 0)
	}
	return g.markDeadLetter(ctx, r, d.ID, sale.DeadReplayed)
}

func (g *Gateway) discardDeadLetter(ctx *fasthttp.RequestCtx, r request) error {
	d, err := g.deadLetter(r)
	if err != nil {
		return err
	}
	return g.markDeadLetter(ctx, r, d.ID, sale.DeadDiscarded)
}

func (g *Gateway) markDeadLetter(ctx *fasthttp.RequestCtx, r request, id int64, to sale.DeadLetterState) error {
	sctx, cancel := g.storeContext()
	defer cancel()
	if err := g.ledger.MarkDeadLetter(sctx, id, to); err != nil {
		return err
	}
	g.note(sctx, "dead-letter "+string(to), "", fmt.Sprintf("id %d %s", id, r.trace))
	d, err := g.ledger.DeadLetter(sctx, id)
	if err != nil {
		return err
	}
	return answer(ctx, fasthttp.StatusOK, deadJSON(d))
}

func (g *Gateway) listRefunds(ctx *fasthttp.RequestCtx, _ request) error {
	sctx, cancel := g.storeContext()
	defer cancel()
	list, err := g.ledger.RefundsDue(sctx, maxListed)
	if err != nil {
		return err
	}
	type refund struct {
		PaymentID  string `json:"paymentId"`
		OrderNo    string `json:"orderNo"`
		Amount     string `json:"amount"`
		PaidAt     int64  `json:"paidAt"`
		ReceivedAt int64  `json:"receivedAt"`
	}
	out := struct {
		Refunds []refund `json:"refunds"`
	}{Refunds: make([]refund, 0, len(list))}
	for _, p := range list {
		out.Refunds = append(out.Refunds, refund{p.ID, p.OrderNo, sale.FormatMoney(p.Amount), p.PaidAt.UnixMilli(), p.ReceivedAt.UnixMilli()})
	}
	return answer(ctx, fasthttp.StatusOK, out)
}

// adminReservation tells one reservation's story: what Redis holds of it, and every row of its log (S9).
func (g *Gateway) adminReservation(ctx *fasthttp.RequestCtx, r request) error {
	token := r.params[0]
	activityID, err := g.tokens.ActivityOf(token)
	if err != nil {
		return fmt.Errorf("reservation: %w", sale.ErrNotFound)
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	steps, err := g.ledger.StoryOf(sctx, token)
	if err != nil {
		return err
	}
	res, ok, err := g.stock.Result(sctx, activityID, token)
	if err != nil && len(steps) == 0 {
		return g.storeError("result", err)
	}
	ok = ok && err == nil // the story is the database's, whether Redis answers or not (S9)
	if !ok && len(steps) == 0 {
		return fmt.Errorf("reservation: %w", sale.ErrNotFound)
	}
	out := struct {
		RequestToken string       `json:"requestToken"`
		ActivityID   string       `json:"activityId"`
		UserID       string       `json:"userId,omitempty"`
		Redis        *resultJSON  `json:"redis,omitempty"`
		Log          []logRowJSON `json:"log"`
	}{RequestToken: token, ActivityID: activityID, Log: make([]logRowJSON, 0, len(steps))}
	if ok {
		out.UserID = strconv.FormatInt(res.UserID, 10)
		out.Redis = &resultJSON{res.CommodityID, res.Quantity, string(res.Status), string(res.Reason), res.OrderNo, res.Version}
	}
	for _, s := range steps {
		out.UserID = strconv.FormatInt(s.UserID, 10)
		out.Log = append(out.Log, logRowJSON{
			Version: s.Version, From: string(s.From), To: string(s.To), Status: string(s.Status), Reason: s.Reason,
			Role: s.Role, Node: s.Node, TraceID: s.TraceID, At: s.At.UnixMilli(),
		})
	}
	return answer(ctx, fasthttp.StatusOK, out)
}

type resultJSON struct {
	CommodityID string `json:"commodityId"`
	Quantity    int    `json:"quantity"`
	Status      string `json:"status"`
	Reason      string `json:"reason,omitempty"`
	OrderNo     string `json:"orderNo,omitempty"`
	Version     int64  `json:"version"`
}

type logRowJSON struct {
	Version int64  `json:"version"`
	From    string `json:"from"`
	To      string `json:"to"`
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Role    string `json:"role"`
	Node    string `json:"node"`
	TraceID string `json:"traceId,omitempty"`
	At      int64  `json:"at"`
}

func (g *Gateway) auditOnly(ctx *fasthttp.RequestCtx, r request) error {
	return g.runAudit(ctx, r, false)
}

func (g *Gateway) reconcile(ctx *fasthttp.RequestCtx, r request) error {
	return g.runAudit(ctx, r, true)
}

type auditItemJSON struct {
	CommodityID string `json:"commodityId"`
	Total       int64  `json:"total"`
	RedisStock  int64  `json:"redisStock"`
	Occupied    int64  `json:"occupied"`
	Returning   int64  `json:"returning"`
	Sold        int64  `json:"sold"`
	Orders      int64  `json:"orders"`
}

type differenceJSON struct {
	Kind     string `json:"kind"`
	ID       string `json:"id"`
	Detail   string `json:"detail"`
	Repaired bool   `json:"repaired"`
}

// runAudit compares Redis with the database, and mends Redis when asked to (S25).
func (g *Gateway) runAudit(ctx *fasthttp.RequestCtx, r request, repair bool) error {
	if err := noBody(ctx); err != nil {
		return err
	}
	e, err := g.activity(r.params[0])
	if err != nil {
		return err
	}
	actx, cancel := context.WithTimeout(context.Background(), g.cfg.AuditTimeout)
	defer cancel()
	rep, err := g.audit(actx, e.ID, repair)
	if errors.Is(err, sale.ErrConflict) {
		return retryLater(sale.CodeOverloaded, "the sale is moving too fast to be audited now", 2*time.Second)
	}
	if err != nil {
		return err
	}
	if repair {
		g.note(actx, "reconcile", e.ID, fmt.Sprintf("%d differences %s", len(rep.Differences), r.trace))
	}
	out := struct {
		OK          bool             `json:"ok"`
		Items       []auditItemJSON  `json:"items"`
		Differences []differenceJSON `json:"differences"`
	}{rep.OK(), make([]auditItemJSON, 0, len(rep.Items)), make([]differenceJSON, 0, len(rep.Differences))}
	for _, it := range rep.Items {
		out.Items = append(out.Items, auditItemJSON(it))
	}
	for _, d := range rep.Differences {
		out.Differences = append(out.Differences, differenceJSON(d))
	}
	return answer(ctx, fasthttp.StatusOK, out)
}

// changeStock adds units to an item, or takes unsold ones back (S39). Units are taken from Redis first, so that none of
// them can be sold meanwhile; they are added to the database first. Whatever crashes in between, the database's total
// stands and the audit makes Redis follow it.
func (g *Gateway) changeStock(ctx *fasthttp.RequestCtx, r request) error {
	var body struct {
		CommodityID string `json:"commodityId"`
		Delta       int64  `json:"delta"`
	}
	if err := parseBody(ctx, &body); err != nil {
		return err
	}
	if body.Delta == 0 || body.Delta > sale.MaxStock || body.Delta < -sale.MaxStock {
		return refuse(sale.CodeInvalidRequest, "delta: must be a number of units other than 0")
	}
	sctx, cancel := context.WithTimeout(context.Background(), g.cfg.AuditTimeout)
	defer cancel()
	e, err := g.catalog.fetch(sctx, r.params[0])
	if err != nil {
		return err
	}
	if e.Item(body.CommodityID) == nil {
		return refuse(sale.CodeNotFound, "this sale has no such commodity")
	}
	inRedis := e.State != sale.StateDraft
	if inRedis && body.Delta < 0 {
		err := g.stock.TakeBack(sctx, e.ID, body.CommodityID, -body.Delta)
		if errors.Is(err, sale.ErrConflict) {
			return refuse(sale.CodeWrongStatus, "fewer units than that are unsold")
		}
		if err != nil {
			return err
		}
	}
	_, err = g.ledger.ChangeStock(sctx, e.ID, body.CommodityID, body.Delta)
	if inRedis {
		// Also after a refusal: what was taken from Redis goes back.
		if _, aerr := g.audit(sctx, e.ID, true); aerr != nil {
			g.log.Warn("gateway: stock changed, redis follows with the next audit", "activity", e.ID, "err", aerr)
		}
	}
	switch {
	case errors.Is(err, sale.ErrConflict):
		return refuse(sale.CodeWrongStatus, "the total would fall below what is sold, or be too large")
	case errors.Is(err, sale.ErrWrongState):
		return refuse(sale.CodeWrongStatus, "the sale is settled")
	case err != nil:
		return err
	}
	g.note(sctx, "stock", e.ID, fmt.Sprintf("%s %+d %s", body.CommodityID, body.Delta, r.trace))
	if e, err = g.catalog.fetch(sctx, e.ID); err != nil {
		return err
	}
	if inRedis {
		if err := g.stock.SetMeta(sctx, &e.Activity); err != nil && !errors.Is(err, sale.ErrNotReady) {
			g.log.Warn("gateway: meta after a change of stock", "activity", e.ID, "err", err)
		}
	}
	return answer(ctx, fasthttp.StatusOK, g.activityJSON(e, g.now()))
}
