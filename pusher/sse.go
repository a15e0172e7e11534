package pusher

import (
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"seckill/hub"
	"seckill/internal/sale"
)

// serveEvents is GET /v1/sse: the frames of a socket as an event stream, for where WebSockets are blocked. It is read by
// fetch, which can set the Authorization header, so a page of another origin asks first by OPTIONS.
func (p *Pusher) serveEvents(w http.ResponseWriter, r *http.Request) {
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Add("Vary", "Origin")
		if p.origins.allow(r) {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		}
	}
	if r.Method == http.MethodOptions {
		if !p.origins.allow(r) {
			p.writeProblem(w, r, refuse(http.StatusForbidden, sale.CodeForbiddenOrigin, "this origin may not open a stream"))
			return
		}
		w.Header().Set("Access-Control-Allow-Methods", http.MethodGet)
		w.Header().Set("Access-Control-Allow-Headers", "Authorization")
		w.Header().Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	p.accept(w, r, p.openStream)
}

// openStream answers the request with the head of a stream that ends with its connection, and takes the connection.
func (p *Pusher) openStream(w http.ResponseWriter, r *http.Request, v *visitor) (*wire, *websocket.Conn, error) {
	if p.hub.Full(v.user) { // another moment's answer than Register's, which stands; but most get a status
		err := retryLater(http.StatusTooManyRequests, sale.CodeRateLimited, hub.ErrTooMany.Error(), 5*time.Second)
		p.writeProblem(w, r, err)
		return nil, nil, err
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that collects bytes would hold the events back
	h.Set("Connection", "close")
	control := http.NewResponseController(w)
	conn, _, err := control.Hijack()
	if err != nil {
		p.writeProblem(w, r, err)
		return nil, nil, err
	}
	wire := conn.(*wire) //nolint:forcetypeassert // the listener makes no others
	p.limitSendBuffer(wire)
	wire.out = append(wire.out, "HTTP/1.1 200 OK\r\n"...)
	for name, values := range h {
		for _, value := range values {
			wire.out = append(append(append(append(wire.out, name...), ": "...), value...), "\r\n"...)
		}
	}
	wire.out = append(wire.out, "\r\n:\n\n"...) // a first line, so that fetch answers at once
	return wire, nil, nil
}
