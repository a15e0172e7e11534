package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"seckill/internal/sale"
)

// Gateway is one gateway process.
type Gateway struct {
	cfg       Config
	stock     Stock
	queue     Queue
	ledger    Ledger
	announcer Announcer
	users     Users
	tokens    Tokens
	demoLogin func(userID int64, expires time.Time) (string, error)
	admin     func(token string) bool
	audit     func(ctx context.Context, activityID string, repair bool) (*sale.AuditReport, error)
	payments  func(id, timestamp, signature string, body []byte) error
	checks    map[string]func(context.Context) error
	openAPI   []byte
	now       func() time.Time
	log       *slog.Logger
	step      func(name string)

	metrics    *metrics
	scrape     fasthttp.RequestHandler
	server     *fasthttp.Server
	catalog    *catalog
	soldOut    *soldOut
	quota      *quota
	reads      *readLimiter
	batchers   batchers
	assets     map[string]asset
	table      []routeDef
	waiters    atomic.Int64
	stopping   chan struct{} // closed when no request is left
	draining   atomic.Bool   // readyz is false, new orders are refused
	background sync.WaitGroup
}

// New builds a gateway; Run serves it.
func New(cfg Config, d Deps) (*Gateway, error) {
	cfg = cfg.WithDefaults()
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.Step == nil {
		d.Step = func(string) {}
	}
	g := &Gateway{
		cfg: cfg, stock: d.Stock, queue: d.Queue, ledger: d.Ledger, announcer: d.Announcer, users: d.Users, tokens: d.Tokens,
		demoLogin: d.DemoLogin, admin: d.Admin, payments: d.Payments, audit: d.Audit, checks: d.Checks, openAPI: d.OpenAPI, now: d.Now, log: d.Log, step: d.Step,
		metrics:  newMetrics(d.Metrics),
		scrape:   fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(d.Metrics, promhttp.HandlerOpts{})),
		batchers: batchers{of: map[string]*batcher{}},
		stopping: make(chan struct{}),
	}
	var err error
	if g.assets, err = loadAssets(cfg.PushURL); err != nil {
		return nil, fmt.Errorf("load page: %w", err)
	}
	if g.reads, err = newReadLimiter(cfg.ReadsPerSecond, d.Now); err != nil {
		return nil, err
	}
	g.soldOut = &soldOut{
		sales: map[string]*saleFilter{}, stock: d.Stock, now: d.Now, spawn: g.background.Go,
		failed: func(err error) { g.log.Warn("gateway: sold-out flag", "err", err) },
	}
	g.catalog = newCatalog(d.Ledger, d.Stock, d.Now, cfg.StoreTimeout, func(e *entry) { g.soldOut.refreshed(e.live) })
	g.quota = &quota{stock: d.Stock, now: d.Now, chunk: cfg.SystemChunk}
	g.table = g.routes()
	g.server = &fasthttp.Server{
		Name:                  "seckill",
		Handler:               g.serve,
		ErrorHandler:          g.protocolError,
		MaxRequestBodySize:    cfg.MaxBodyBytes,
		ReadBufferSize:        cfg.MaxHeaderBytes,
		ReadTimeout:           cfg.ReadTimeout,
		WriteTimeout:          cfg.WriteTimeout,
		IdleTimeout:           cfg.IdleTimeout,
		Concurrency:           cfg.MaxConnections,
		NoDefaultServerHeader: true,
		NoDefaultDate:         false,
		CloseOnShutdown:       true,
		Logger:                quiet{g.log},
	}
	return g, nil
}

// Run serves the listener until ctx ends, then stops in order: not ready, no new connections, requests in flight
// finished within grace, batches and publishes finished. It returns nil after a clean stop.
func (g *Gateway) Run(ctx context.Context, ln net.Listener, grace time.Duration) error {
	bg, stopBackground := context.WithCancel(context.Background())
	g.background.Go(func() {
		g.catalog.run(bg, g.cfg.CatalogRefresh, g.cfg.CatalogReload, g.cfg.CountRefresh, func(err error) { g.log.Warn("gateway: catalog", "err", err) })
	})
	served := make(chan error, 1)
	go func() { served <- g.server.Serve(ln) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		g.draining.Store(true)
		stopCtx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if err = g.server.ShutdownWithContext(stopCtx); errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("gateway: requests were still in flight after %v", grace)
		}
	}
	stopBackground()
	close(g.stopping)
	g.background.Wait()
	return err
}

// quiet passes fasthttp's own log lines on at debug level: they are about single connections.
type quiet struct{ log *slog.Logger }

func (q quiet) Printf(format string, args ...any) {
	q.log.Debug("gateway: " + fmt.Sprintf(format, args...))
}

// protocolError answers what fasthttp refuses before a handler runs.
func (g *Gateway) protocolError(ctx *fasthttp.RequestCtx, err error) {
	p := refuse(sale.CodeInvalidRequest, "the request could not be read")
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
	case errors.As(err, &small):
		p = refuse(sale.CodeHeadersTooLarge, fmt.Sprintf("the headers are longer than %d bytes", g.cfg.MaxHeaderBytes))
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		p = refuse(sale.CodeBodyTooLarge, fmt.Sprintf("the body is longer than %d bytes", g.cfg.MaxBodyBytes))
	case errors.As(err, &netErr) && netErr.Timeout():
		if len(ctx.Request.Header.Host()) == 0 {
			// No header came: most likely a connection that a client opened ahead. It is closed without a word, since
			// an answer to no question confuses clients.
			_ = ctx.Conn().Close()
		}
		p = refuse(sale.CodeInvalidRequest, "the request took too long to come in")
	}
	trace := newTraceID()
	g.writeProblem(ctx, p, trace)
	g.metrics.requests.WithLabelValues("unread", statusLabel(ctx.Response.StatusCode())).Inc()
	ctx.SetConnectionClose()
}

// serve is the one handler: it gives the request a trace id, routes it, turns errors into problems, counts, and
// keeps a panic from taking the process down (FS-029).
func (g *Gateway) serve(ctx *fasthttp.RequestCtx) {
	trace := traceIDOf(ctx)
	route := "unknown"
	defer func() {
		if v := recover(); v != nil {
			g.log.Error("gateway: panic", "route", route, "panic", fmt.Sprint(v), "traceId", trace, "stack", string(debug.Stack()))
			ctx.Response.Reset()
			g.writeProblem(ctx, refuse(sale.CodeInternal, "something went wrong here; the trace id names it in our log"), trace)
		}
		g.metrics.requests.WithLabelValues(route, statusLabel(ctx.Response.StatusCode())).Inc()
	}()
	g.securityHeaders(ctx)
	h, name, params, err := g.route(ctx)
	route = name
	if err == nil {
		if err = g.checkOrigin(ctx); err == nil && h != nil {
			err = h(ctx, request{params: params, trace: trace})
		}
	}
	if err != nil {
		g.writeProblem(ctx, g.asProblem(err, trace), trace)
	}
}

// pollAfter is how long to tell a client to wait: the configured time, longer the more reservations of the sale are
// undecided, spread by 20 % so that a crowd does not come back in step (S30).
func (g *Gateway) pollAfter(activityID string) time.Duration {
	backlog := float64(g.catalog.queuedOf(activityID)) / float64(g.cfg.PollBacklog)
	base := float64(g.cfg.PollAfter) * min(10, 1+backlog)
	return time.Duration(base * (0.8 + 0.4*rand.Float64())).Truncate(time.Millisecond)
}
