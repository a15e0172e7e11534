package gateway

import (
	"time"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// activityJSON is an Activity of API.md.
type activityJSON struct {
	ActivityID  string     `json:"activityId"`
	Title       string     `json:"title"`
	State       sale.State `json:"state"`
	StartsAt    int64      `json:"startsAt"`
	EndsAt      int64      `json:"endsAt"`
	ServerTime  int64      `json:"serverTime"`
	PayWithinMs int64      `json:"payWithinMs"`
	PushURL     string     `json:"pushUrl,omitzero"`
	Items       []itemJSON `json:"items"`
}

type itemJSON struct {
	CommodityID string `json:"commodityId"`
	Title       string `json:"title"`
	Price       string `json:"price"`
	Total       int64  `json:"total"`
	Remaining   int64  `json:"remaining"`
	MaxPerUser  int    `json:"maxPerUser"`
}

func (g *Gateway) activityJSON(e *entry, now time.Time) activityJSON {
	a := activityJSON{
		ActivityID: e.ID, Title: e.Title, State: e.state(now), StartsAt: e.StartsAt.UnixMilli(), EndsAt: e.EndsAt.UnixMilli(),
		ServerTime: now.UnixMilli(), PayWithinMs: e.PayWithin.Milliseconds(), PushURL: g.cfg.PushURL,
		Items: make([]itemJSON, 0, len(e.Items)),
	}
	for _, it := range e.Items {
		// What Redis shows is what can be bought; without it, what the database has not sold.
		left := max(0, it.Total-it.Sold)
		if units, ok := e.live.Units(it.CommodityID); ok {
			left = max(0, units)
		}
		a.Items = append(a.Items, itemJSON{
			CommodityID: it.CommodityID, Title: it.Title, Price: sale.FormatMoney(it.Price), Total: it.Total,
			Remaining: left, MaxPerUser: it.MaxPerUser,
		})
	}
	return a
}

// listActivities answers every activity that is not a draft.
func (g *Gateway) listActivities(ctx *fasthttp.RequestCtx, _ request) error {
	now := g.now()
	out := struct {
		Activities []activityJSON `json:"activities"`
		ServerTime int64          `json:"serverTime"`
	}{Activities: []activityJSON{}, ServerTime: now.UnixMilli()}
	for _, e := range g.catalog.list() {
		if e.State != sale.StateDraft {
			out.Activities = append(out.Activities, g.activityJSON(e, now))
		}
	}
	return answer(ctx, fasthttp.StatusOK, out)
}

// getActivity answers one activity.
func (g *Gateway) getActivity(ctx *fasthttp.RequestCtx, r request) error {
	e, err := g.activity(r.params[0])
	if err != nil {
		return err
	}
	return answer(ctx, fasthttp.StatusOK, g.activityJSON(e, g.now()))
}
