package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// request is what a handler gets beside the RequestCtx.
type request struct {
	params [2]string // path parameters, copied
	trace  string
}

type handler func(ctx *fasthttp.RequestCtx, r request) error

// routeDef is one path with its methods. A * in the pattern is a parameter.
type routeDef struct {
	name    string
	pattern []string
	methods map[string]handler
}

// routes is the table of API.md, in the order it is searched.
func (g *Gateway) routes() []routeDef {
	get := func(h handler) map[string]handler { return map[string]handler{"GET": h, "HEAD": h} }
	post := func(h handler) map[string]handler { return map[string]handler{"POST": h} }
	table := []routeDef{
		{"activities", split("/v1/activities"), get(g.listActivities)},
		{"activity", split("/v1/activities/*"), get(g.getActivity)},
		{"request_token", split("/v1/activities/*/request-token"), post(g.requestToken)},
		{"order_create", split("/v1/activities/*/orders"), post(g.createOrder)},
		{"waitlist", split("/v1/activities/*/waitlist"), map[string]handler{"POST": g.joinWaitlist, "DELETE": g.leaveWaitlist}},
		{"me", split("/v1/activities/*/me"), get(g.me)},
		{"result", split("/v1/results/*"), get(g.getResult)},
		{"orders", split("/v1/orders"), get(g.listOrders)},
		{"order", split("/v1/orders/*"), get(g.getOrder)},
		{"order_pay", split("/v1/orders/*/pay"), post(g.payOrder)},
		{"order_cancel", split("/v1/orders/*/cancel"), post(g.cancelOrder)},
		{"payment_callback", split("/v1/payments/callback"), post(g.paymentCallback)},
		{"demo_login", split("/demo/login"), post(g.login)},
		{"healthz", split("/healthz"), get(g.healthz)},
		{"readyz", split("/readyz"), get(g.readyz)},
		{"metrics", split("/metrics"), get(g.serveMetrics)},
		{"openapi", split("/openapi.yaml"), get(g.serveOpenAPI)},
	}
	if g.admin != nil {
		table = append(table, g.adminRoutes()...)
	}
	return table
}

func split(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }

// route finds the handler of a request. A known path with another method is method_not_allowed, so a prefetching GET
// never reaches an order (FS-035).
func (g *Gateway) route(ctx *fasthttp.RequestCtx) (handler, string, [2]string, error) {
	method := string(ctx.Method())
	path := string(ctx.Path())
	if a, ok := g.assets[path]; ok {
		if method != "GET" && method != "HEAD" {
			ctx.Response.Header.Set("Allow", "GET, HEAD")
			return nil, "page", [2]string{}, refuse(sale.CodeMethodNotAllowed, "only GET is served here")
		}
		return a.serve, "page", [2]string{}, nil
	}
	segments := split(path)
	for i := range g.table {
		def := &g.table[i]
		params, ok := match(def.pattern, segments)
		if !ok {
			continue
		}
		h, ok := def.methods[method]
		if ok {
			return h, def.name, params, nil
		}
		if method == "OPTIONS" {
			return g.preflight(def), def.name, params, nil
		}
		ctx.Response.Header.Set("Allow", allowed(def))
		return nil, def.name, params, refuse(sale.CodeMethodNotAllowed, "this path takes "+allowed(def))
	}
	return nil, "unknown", [2]string{}, refuse(sale.CodeNotFound, "there is no such path")
}

func allowed(def *routeDef) string {
	var ms []string
	for m := range def.methods {
		ms = append(ms, m)
	}
	slices.Sort(ms)
	return strings.Join(ms, ", ")
}

func match(pattern, segments []string) (params [2]string, ok bool) {
	if len(pattern) != len(segments) {
		return params, false
	}
	n := 0
	for i, p := range pattern {
		if p == "*" {
			if segments[i] == "" || n == len(params) {
				return params, false
			}
			params[n] = segments[i]
			n++
		} else if p != segments[i] {
			return params, false
		}
	}
	return params, true
}

// traceIDOf takes the trace id of a W3C traceparent header, or makes one.
func traceIDOf(ctx *fasthttp.RequestCtx) string {
	parent := ctx.Request.Header.Peek("traceparent")
	if len(parent) == 55 && parent[2] == '-' && parent[35] == '-' {
		id := string(parent[3:35])
		if _, err := hex.DecodeString(id); err == nil {
			return id
		}
	}
	return newTraceID()
}

func newTraceID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// securityHeaders are the same on every answer; the page adds a content policy of its own.
func (g *Gateway) securityHeaders(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}

// checkOrigin refuses a state-changing request that a foreign page makes (FS-035), and lets configured origins read.
// A request without an Origin header comes from no browser page and is judged by its token alone.
func (g *Gateway) checkOrigin(ctx *fasthttp.RequestCtx) error {
	origin := string(ctx.Request.Header.Peek("Origin"))
	if origin == "" {
		return nil
	}
	own := sameHost(origin, string(ctx.Host()))
	if !own && slices.Contains(g.cfg.AllowedOrigins, origin) {
		h := &ctx.Response.Header
		h.Set("Access-Control-Allow-Origin", origin)
		h.Add("Vary", "Origin")
		h.Set("Access-Control-Expose-Headers", "Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset")
		return nil
	}
	if !own && !ctx.IsGet() && !ctx.IsHead() {
		return refuse(sale.CodeForbiddenOrigin, "this origin may not do that")
	}
	return nil
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// preflight answers a CORS preflight; checkOrigin has already refused foreign origins.
func (g *Gateway) preflight(def *routeDef) handler {
	methods := allowed(def)
	return func(ctx *fasthttp.RequestCtx, _ request) error {
		h := &ctx.Response.Header
		h.Set("Access-Control-Allow-Methods", methods)
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, traceparent")
		h.Set("Access-Control-Max-Age", "600")
		ctx.SetStatusCode(fasthttp.StatusNoContent)
		return nil
	}
}
