package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// healthz says that the process lives.
func (g *Gateway) healthz(ctx *fasthttp.RequestCtx, _ request) error {
	writeJSON(ctx, fasthttp.StatusOK, []byte(`{"alive":true}`))
	return nil
}

// readyz says whether this gateway can take orders: each back end is asked, side by side.
func (g *Gateway) readyz(ctx *fasthttp.RequestCtx, _ request) error {
	cctx, cancel := g.storeContext()
	defer cancel()
	results := runChecks(cctx, g.checks)
	ready := !g.draining.Load()
	for _, r := range results {
		ready = ready && r == "ok"
	}
	status := fasthttp.StatusOK
	if !ready {
		status = fasthttp.StatusServiceUnavailable
	}
	return answer(ctx, status, struct {
		Ready  bool              `json:"ready"`
		Checks map[string]string `json:"checks"`
	}{ready, results})
}

func runChecks(ctx context.Context, checks map[string]func(context.Context) error) map[string]string {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[string]string, len(checks))
	for name, check := range checks {
		wg.Go(func() {
			verdict := "ok"
			if err := check(ctx); err != nil {
				verdict = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			out[name] = verdict
		})
	}
	wg.Wait()
	return out
}

// serveMetrics answers the Prometheus scrape.
func (g *Gateway) serveMetrics(ctx *fasthttp.RequestCtx, _ request) error {
	g.scrape(ctx)
	return nil
}

// serveOpenAPI answers the contract.
func (g *Gateway) serveOpenAPI(ctx *fasthttp.RequestCtx, _ request) error {
	ctx.SetContentType("application/yaml")
	ctx.SetBody(g.openAPI)
	return nil
}

// login is the demo login: any user id gets a token. It exists only on the embedded default.
func (g *Gateway) login(ctx *fasthttp.RequestCtx, _ request) error {
	if g.demoLogin == nil {
		return refuse(sale.CodeNotFound, "demo login is off here")
	}
	var body struct {
		UserID string `json:"userId"`
	}
	if err := parseBody(ctx, &body); err != nil {
		return err
	}
	user, err := sale.ParseUserID(body.UserID)
	if err != nil {
		return refuse(sale.CodeInvalidRequest, "userId: must be a positive decimal number of at most 19 digits, as a string")
	}
	expires := g.now().Add(g.cfg.DemoTokenLife).Truncate(time.Second)
	token, err := g.demoLogin(user, expires)
	if err != nil {
		return fmt.Errorf("demo login: %w", err)
	}
	return answer(ctx, fasthttp.StatusOK, struct {
		Token     string `json:"token"`
		ExpiresAt int64  `json:"expiresAt"`
	}{token, expires.UnixMilli()})
}
