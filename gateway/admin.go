package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// adminRoutes are the operators' routes, behind the admin token.
func (g *Gateway) adminRoutes() []routeDef {
	only := func(h handler) handler {
		return func(ctx *fasthttp.RequestCtx, r request) error {
			if !g.admin(bearer(ctx)) {
				return refuse(sale.CodeUnauthenticated, "a valid admin token is required")
			}
			return h(ctx, r)
		}
	}
	post := func(h handler) map[string]handler { return map[string]handler{"POST": only(h)} }
	list := map[string]handler{"PUT": only(g.putUserList), "DELETE": only(g.deleteUserList)}
	return append([]routeDef{
		{"admin_activities", split("/admin/v1/activities"), map[string]handler{"POST": only(g.createActivity), "GET": only(g.adminList)}},
		{"admin_activity", split("/admin/v1/activities/*"), map[string]handler{"GET": only(g.adminGet)}},
		{"admin_warm_up", split("/admin/v1/activities/*/warm-up"), post(g.warmUp)},
		{"admin_open", split("/admin/v1/activities/*/open"), post(g.openActivity)},
		{"admin_pause", split("/admin/v1/activities/*/pause"), post(g.pauseActivity)},
		{"admin_resume", split("/admin/v1/activities/*/resume"), post(g.resumeActivity)},
		{"admin_end", split("/admin/v1/activities/*/end"), post(g.endActivity)},
		{"admin_blocked", split("/admin/v1/activities/*/blocked/*"), list},
		{"admin_eligible", split("/admin/v1/activities/*/eligible/*"), list},
	}, g.toolRoutes(only)...)
}

// createBody is the body of an activity's creation, the same as sale.yaml.
type createBody struct {
	ActivityID    string           `json:"activityId"`
	Title         string           `json:"title"`
	StartsAt      jsontext.Value   `json:"startsAt"`
	EndsAt        jsontext.Value   `json:"endsAt"`
	PayWithin     string           `json:"payWithin"`
	CloseGrace    string           `json:"closeGrace"`
	WaitlistUntil jsontext.Value   `json:"waitlistUntil"`
	AllowList     bool             `json:"allowList"`
	Items         []createItemBody `json:"items"`
}

type createItemBody struct {
	CommodityID string         `json:"commodityId"`
	Title       string         `json:"title"`
	Price       jsontext.Value `json:"price"`
	Total       int64          `json:"total"`
	MaxPerUser  *int           `json:"maxPerUser"`
}

// ParseActivity reads the JSON body of an activity's creation and checks it. It is exported for the command line,
// which turns sale.yaml into the same JSON.
func ParseActivity(body []byte, newID func() string) (*sale.Activity, error) {
	var b createBody
	if err := decodeStrict(body, &b); err != nil {
		return nil, err
	}
	if b.ActivityID == "" {
		b.ActivityID = newID()
	}
	a := &sale.Activity{ID: b.ActivityID, Title: b.Title, AllowList: b.AllowList, State: sale.StateDraft}
	var err error
	invalid := func(err error) error { return refuse(sale.CodeInvalidRequest, err.Error()) }
	if a.StartsAt, err = parseInstant("startsAt", b.StartsAt); err != nil {
		return nil, invalid(err)
	}
	if a.EndsAt, err = parseInstant("endsAt", b.EndsAt); err != nil {
		return nil, invalid(err)
	}
	if a.PayWithin, err = parseSpan("payWithin", b.PayWithin, sale.DefaultPayWithin); err != nil {
		return nil, invalid(err)
	}
	if a.CloseGrace, err = parseSpan("closeGrace", b.CloseGrace, sale.DefaultCloseGrace); err != nil {
		return nil, invalid(err)
	}
	a.WaitlistUntil = a.EndsAt.Add(sale.DefaultWaitlistAfterEnd)
	if len(b.WaitlistUntil) > 0 {
		if a.WaitlistUntil, err = parseInstant("waitlistUntil", b.WaitlistUntil); err != nil {
			return nil, invalid(err)
		}
	}
	for i, it := range b.Items {
		price, err := sale.ParseMoney(string(bytes.Trim(it.Price, `"`)))
		if err != nil {
			return nil, invalid(fmt.Errorf("items[%d].price: %w", i, sale.ErrBadMoney))
		}
		limit := 1
		if it.MaxPerUser != nil {
			limit = *it.MaxPerUser
		}
		a.Items = append(a.Items, sale.Item{CommodityID: it.CommodityID, Title: it.Title, Price: price, Total: it.Total, MaxPerUser: limit})
	}
	if err := a.Validate(); err != nil {
		return nil, invalid(err)
	}
	return a, nil
}

// parseInstant reads RFC 3339 text, whatever its zone, or epoch milliseconds (FS-034).
func parseInstant(field string, v jsontext.Value) (time.Time, error) {
	bad := fmt.Errorf("%s: must be RFC 3339 text or epoch milliseconds", field)
	if len(v) == 0 {
		return time.Time{}, fmt.Errorf("%s: is required", field)
	}
	if v.Kind() == '"' {
		var s string
		if err := json.Unmarshal(v, &s); err != nil {
			return time.Time{}, bad
		}
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return time.Time{}, bad
		}
		return t.UTC().Truncate(time.Millisecond), nil
	}
	var ms int64
	if err := json.Unmarshal(v, &ms); err != nil || ms <= 0 || ms > 253_402_300_799_999 {
		return time.Time{}, bad
	}
	return time.UnixMilli(ms).UTC(), nil
}

func parseSpan(field, s string, fallback time.Duration) (time.Duration, error) {
	if s == "" {
		return fallback, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s: must be a duration such as 15m", field)
	}
	return d.Truncate(time.Millisecond), nil
}

func (g *Gateway) createActivity(ctx *fasthttp.RequestCtx, r request) error {
	ct := string(ctx.Request.Header.ContentType())
	if !bytes.HasPrefix([]byte(ct), []byte("application/json")) {
		return refuse(sale.CodeUnsupportedMediaType, "the body must be application/json")
	}
	a, err := ParseActivity(ctx.PostBody(), func() string { return "ACT" + newTraceID()[:12] })
	if err != nil {
		return err
	}
	if !a.EndsAt.After(g.now()) {
		return refuse(sale.CodeInvalidRequest, "endsAt: is in the past")
	}
	sctx, cancel := g.storeContext()
	defer cancel()
	if err := g.ledger.CreateActivity(sctx, a); errors.Is(err, sale.ErrExists) {
		return refuse(sale.CodeInvalidRequest, "activityId: is taken")
	} else if err != nil {
		return err
	}
	g.note(sctx, "create", a.ID, r.trace)
	e, err := g.catalog.fetch(sctx, a.ID)
	if err != nil {
		return err
	}
	return answer(ctx, fasthttp.StatusCreated, g.activityJSON(e, g.now()))
}

func (g *Gateway) adminList(ctx *fasthttp.RequestCtx, _ request) error {
	now := g.now()
	out := struct {
		Activities []activityJSON `json:"activities"`
		ServerTime int64          `json:"serverTime"`
	}{Activities: []activityJSON{}, ServerTime: now.UnixMilli()}
	for _, e := range g.catalog.list() {
		out.Activities = append(out.Activities, g.activityJSON(e, now))
	}
	return answer(ctx, fasthttp.StatusOK, out)
}

func (g *Gateway) adminGet(ctx *fasthttp.RequestCtx, r request) error {
	sctx, cancel := g.storeContext()
	defer cancel()
	e, err := g.catalog.fetch(sctx, r.params[0])
	if err != nil {
		return err
	}
	return answer(ctx, fasthttp.StatusOK, g.activityJSON(e, g.now()))
}

// note writes the admin log; the command itself has been done.
func (g *Gateway) note(ctx context.Context, what, activityID, detail string) {
	if err := g.ledger.AdminLog(ctx, "admin", what, activityID, detail); err != nil {
		g.log.Warn("gateway: admin log", "what", what, "activity", activityID, "err", err)
	}
}

// warmUp schedules a draft and waits until the reconciler has built its stock in Redis.
func (g *Gateway) warmUp(ctx *fasthttp.RequestCtx, r request) error {
	return g.command(ctx, r, "warm-up", func(sctx context.Context, e *entry) error {
		return g.schedule(sctx, e)
	})
}

// schedule moves a draft to scheduled; one that is scheduled already stays so.
func (g *Gateway) schedule(ctx context.Context, e *entry) error {
	if e.State == sale.StateScheduled {
		return nil
	}
	return g.ledger.SetActivityState(ctx, e.ID, []sale.State{sale.StateDraft}, sale.StateScheduled)
}

// openActivity starts a sale now, warming it up first if need be.
func (g *Gateway) openActivity(ctx *fasthttp.RequestCtx, r request) error {
	return g.command(ctx, r, "open", func(sctx context.Context, e *entry) error {
		now := g.now().Truncate(time.Millisecond)
		if !now.Before(e.EndsAt) {
			return sale.ErrConflict
		}
		if now.Before(e.StartsAt) {
			if err := g.ledger.Reschedule(sctx, e.ID, now, e.EndsAt); err != nil {
				return err
			}
		}
		return g.schedule(sctx, e)
	})
}

func (g *Gateway) pauseActivity(ctx *fasthttp.RequestCtx, r request) error {
	return g.command(ctx, r, "pause", func(sctx context.Context, e *entry) error {
		return g.ledger.SetActivityState(sctx, e.ID, []sale.State{sale.StateScheduled, sale.StatePaused}, sale.StatePaused)
	})
}

func (g *Gateway) resumeActivity(ctx *fasthttp.RequestCtx, r request) error {
	return g.command(ctx, r, "resume", func(sctx context.Context, e *entry) error {
		return g.ledger.SetActivityState(sctx, e.ID, []sale.State{sale.StateScheduled, sale.StatePaused}, sale.StateScheduled)
	})
}

func (g *Gateway) endActivity(ctx *fasthttp.RequestCtx, r request) error {
	return g.command(ctx, r, "end", func(sctx context.Context, e *entry) error {
		now := g.now().Truncate(time.Millisecond)
		if now.Before(e.EndsAt) {
			starts := e.StartsAt
			if !starts.Before(now) {
				starts = now.Add(-time.Millisecond)
			}
			if err := g.ledger.Reschedule(sctx, e.ID, starts, now); err != nil {
				return err
			}
		}
		return g.ledger.SetActivityState(sctx, e.ID, []sale.State{sale.StateDraft, sale.StateScheduled, sale.StatePaused, sale.StateEnded}, sale.StateEnded)
	})
}

// command runs an operator's command: the database first, then Redis, then it waits until Redis shows it. If Redis
// cannot be told now, the reconciler tells it within a second.
func (g *Gateway) command(ctx *fasthttp.RequestCtx, r request, what string, do func(context.Context, *entry) error) error {
	if err := noBody(ctx); err != nil {
		return err
	}
	sctx, cancel := context.WithTimeout(context.Background(), g.cfg.WarmUpTimeout)
	defer cancel()
	e, err := g.catalog.fetch(sctx, r.params[0])
	if err != nil {
		return err
	}
	if err := do(sctx, e); errors.Is(err, sale.ErrConflict) || errors.Is(err, sale.ErrWrongState) {
		return refuse(sale.CodeWrongStatus, fmt.Sprintf("cannot %s an activity that is %s", what, e.state(g.now())))
	} else if err != nil {
		return err
	}
	g.note(sctx, what, e.ID, r.trace)
	for {
		if e, err = g.catalog.fetch(sctx, r.params[0]); err != nil {
			return err
		}
		if e.known && e.live.State != sale.StateNotReady {
			if err := g.stock.SetMeta(sctx, &e.Activity); err == nil {
				break
			}
		}
		if e.State == sale.StateEnded {
			break
		}
		select {
		case <-sctx.Done():
			return retryLater(sale.CodeNotReady, "the command is recorded, but Redis is not ready yet; see readyz of the reconciler", 2*time.Second)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if e, err = g.catalog.fetch(sctx, r.params[0]); err != nil {
		return err
	}
	return answer(ctx, fasthttp.StatusOK, g.activityJSON(e, g.now()))
}

func (g *Gateway) putUserList(ctx *fasthttp.RequestCtx, r request) error {
	return g.setUserList(ctx, r, true)
}

func (g *Gateway) deleteUserList(ctx *fasthttp.RequestCtx, r request) error {
	return g.setUserList(ctx, r, false)
}

// setUserList puts a user on or off the blocked or eligible list, in the database and then in Redis (S1).
func (g *Gateway) setUserList(ctx *fasthttp.RequestCtx, r request, on bool) error {
	user, err := sale.ParseUserID(r.params[1])
	if err != nil {
		return refuse(sale.CodeInvalidRequest, "user id: must be a positive decimal number")
	}
	list := split(string(ctx.Path()))[4]
	sctx, cancel := g.storeContext()
	defer cancel()
	e, err := g.catalog.fetch(sctx, r.params[0])
	if err != nil {
		return err
	}
	if err := g.ledger.SetUserList(sctx, e.ID, list, user, on); err != nil {
		return err
	}
	if e.State != sale.StateDraft {
		if err := g.stock.SetUserList(sctx, e.ID, list, user, on); err != nil {
			return g.storeError("user list", err)
		}
	}
	g.note(sctx, list, e.ID, fmt.Sprintf("user %d on=%v %s", user, on, r.trace))
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}
