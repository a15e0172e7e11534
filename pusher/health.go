package pusher

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"seckill/internal/sale"
)

// routes is everything the pusher serves.
func (p *Pusher) routes(reg *prometheus.Registry) http.Handler {
	scrape := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	gets := map[string]http.HandlerFunc{"/healthz": p.healthz, "/readyz": p.readyz, "/metrics": scrape.ServeHTTP}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/ws":
			p.serveSocket(w, r)
			return
		case "/v1/sse":
			p.serveEvents(w, r)
			return
		}
		serve, ok := gets[r.URL.Path]
		switch {
		case !ok:
			p.writeProblem(w, r, refuse(http.StatusNotFound, sale.CodeNotFound, "there is nothing at this address"))
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			p.writeProblem(w, r, &problem{
				Status: http.StatusMethodNotAllowed, Code: sale.CodeMethodNotAllowed, Detail: "GET only", Allow: http.MethodGet,
			})
		default:
			w.Header().Set("Cache-Control", "no-store")
			serve(w, r)
		}
	})
}

// healthz says that the process lives.
func (p *Pusher) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"alive":true}`))
}

// readyz says whether this pusher may get sockets: not while it drains, and not while a shard that has clients is not
// subscribed.
func (p *Pusher) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), p.cfg.StoreTimeout)
	defer cancel()
	checks := p.runChecks(ctx)
	if n := p.subs.missing(); n > 0 {
		checks["subscriptions"] = fmt.Sprintf("%d shards with clients are not subscribed", n)
	} else {
		checks["subscriptions"] = "ok"
	}
	if !p.catalog.loaded() {
		checks["catalog"] = "not loaded yet"
	} else {
		checks["catalog"] = "ok"
	}
	ready := !p.isDraining()
	for _, verdict := range checks {
		ready = ready && verdict == "ok"
	}
	body, err := json.Marshal(struct {
		Ready  bool              `json:"ready"`
		Checks map[string]string `json:"checks"`
	}{ready, checks})
	if err != nil {
		panic("BUG: readiness has no JSON form: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(body)
}

// runChecks asks the back ends, side by side.
func (p *Pusher) runChecks(ctx context.Context) map[string]string {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[string]string, len(p.checks)+2)
	for name, check := range p.checks {
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
