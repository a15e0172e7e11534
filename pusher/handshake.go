package pusher

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"seckill/internal/sale"
)

const (
	protocol     = "seckill.v1" // the subprotocol of this API
	bearerPrefix = "bearer."    // starts the subprotocol that carries the token of a browser
)

// visitor is who wants a socket, as far as the handshake has got.
type visitor struct {
	user     int64
	expires  time.Time
	activity string
	addr     netip.Addr
	protocol string // subprotocol to agree on, or ""
	browser  bool   // the token came as a subprotocol: refusals are close codes, since a browser cannot see a status
}

// serveSocket is GET /v1/ws.
func (p *Pusher) serveSocket(w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) && r.Method == http.MethodGet {
		p.writeProblem(w, r, refuse(http.StatusBadRequest, sale.CodeInvalidRequest, "this address takes WebSocket handshakes only"))
		return
	}
	p.accept(w, r, p.upgrade)
}

// opener makes an open connection of an admitted request, or answers it and returns an error.
type opener func(w http.ResponseWriter, r *http.Request, v *visitor) (*wire, *websocket.Conn, error)

// accept admits a request and makes a socket of it. The goroutine of net/http ends with it, and with that go its buffers
// and its grown stack.
func (p *Pusher) accept(w http.ResponseWriter, r *http.Request, open opener) {
	if !p.enter() {
		p.writeProblem(w, r, retryLater(http.StatusServiceUnavailable, sale.CodeNotReady, "the server restarts", time.Second))
		return
	}
	v := visitor{addr: p.addresses.of(r)}
	err := p.admit(r, &v)
	if err != nil {
		p.leave()
		p.refuse(w, r, &v, err)
		return
	}
	if !p.addresses.take(v.addr) {
		p.leave()
		p.refuse(w, r, &v, errTooManyHere)
		return
	}
	leave := func() { p.addresses.release(v.addr); p.leave() }
	conn, ws, err := open(w, r, &v)
	if err != nil {
		leave() // answered by open
		return
	}
	s := newSocket(p, conn, ws, &v)
	if s.client, err = p.hub.Register(v.user, v.activity, s); err == nil {
		if err = s.attach(); err != nil {
			p.hub.Unregister(s.client)
			p.log.Warn("pusher: a connection cannot be watched", "err", err)
		}
	}
	if err != nil {
		s.wire.framed = false
		s.sayWhy(err)
		p.metrics.closed(err)
		leave()
		return
	}
	if p.isDraining() { // it registered when drain had looked already
		s.client.Close(errRestart)
		return
	}
	p.reader.ask(s, false)
}

// admit checks a request in the order from cheap to dear, and fills in the visitor.
func (p *Pusher) admit(r *http.Request, v *visitor) error {
	if r.Method != http.MethodGet {
		return &problem{
			Status: http.StatusMethodNotAllowed, Code: sale.CodeMethodNotAllowed, Detail: "a socket is opened by GET", Allow: http.MethodGet,
		}
	}
	if !p.origins.allow(r) {
		return refuse(http.StatusForbidden, sale.CodeForbiddenOrigin, "this origin may not open a socket")
	}
	if p.hub.Sockets()+p.closing() >= p.maxSockets {
		return retryLater(http.StatusServiceUnavailable, sale.CodeOverloaded, "too many sockets here, please try again", 5*time.Second)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusBadRequest, sale.CodeInvalidRequest, "the query cannot be read")
	}
	if v.activity = query.Get("activity"); !sale.ValidID(v.activity) {
		return refuse(http.StatusBadRequest, sale.CodeInvalidRequest, "activity: must match [A-Za-z0-9_-]{1,32}")
	}
	if err := p.authenticate(r, v); err != nil {
		return err
	}
	if query.Has("u") {
		u, err := sale.ParseUserID(query.Get("u"))
		if err != nil {
			return refuse(http.StatusBadRequest, sale.CodeInvalidRequest, "u: must be a user id")
		}
		if u != v.user {
			return refuse(http.StatusForbidden, sale.CodeNotEligible, "u: is not the user of the token")
		}
	}
	v.activity = strings.Clone(v.activity) // the socket keeps it, and with it would go the whole address
	return p.exists(r.Context(), v.activity)
}

func (p *Pusher) exists(ctx context.Context, activityID string) error {
	err := p.catalog.find(ctx, activityID)
	if errors.Is(err, sale.ErrNotFound) {
		return refuse(http.StatusNotFound, sale.CodeNotFound, "there is no such activity")
	}
	if err != nil {
		p.log.Warn("pusher: activity cannot be read", "activity", activityID, "err", err)
		return retryLater(http.StatusServiceUnavailable, sale.CodeNotReady, "activities cannot be read now", time.Second)
	}
	return nil
}

// authenticate reads the token from the Authorization header or, for browsers, which cannot set one, from the offered
// subprotocols.
func (p *Pusher) authenticate(r *http.Request, v *visitor) error {
	offered := subprotocols(r)
	jwt := ""
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if strings.EqualFold(scheme, "Bearer") {
			jwt = strings.TrimSpace(token)
		}
	} else {
		for _, s := range offered {
			if token, ok := strings.CutPrefix(s, bearerPrefix); ok {
				jwt, v.browser = token, true
			}
		}
	}
	for _, s := range offered {
		if s == protocol {
			v.protocol = protocol
		}
	}
	if v.browser && v.protocol == "" {
		// A browser drops a socket whose subprotocols were all refused, and the one with the token is never agreed on.
		return refuse(http.StatusBadRequest, sale.CodeInvalidRequest, "the subprotocol "+protocol+" must be offered too")
	}
	var err error
	if v.user, v.expires, err = p.users.UserOf(jwt); err != nil {
		return errUnauthenticated
	}
	return nil
}

// subprotocols lists what the client offers.
func subprotocols(r *http.Request) []string {
	var out []string
	for _, line := range r.Header.Values("Sec-Websocket-Protocol") {
		for _, s := range strings.Split(line, ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

// refuse answers a handshake that is not admitted. A browser learns of a bad token or too many sockets from the close
// code of a socket that is opened for this alone; while too many of those are open, it gets the status as well.
func (p *Pusher) refuse(w http.ResponseWriter, r *http.Request, v *visitor, err error) {
	var asProblem error
	switch {
	case errors.Is(err, errUnauthenticated):
		asProblem = refuse(http.StatusUnauthorized, sale.CodeUnauthenticated, err.Error())
	case errors.Is(err, errTooManyHere):
		asProblem = retryLater(http.StatusTooManyRequests, sale.CodeRateLimited, err.Error(), 5*time.Second)
	default:
		p.writeProblem(w, r, err)
		return
	}
	if v.browser {
		select {
		case p.refusals <- struct{}{}:
			defer func() { <-p.refusals }()
			if _, conn, upErr := p.upgrade(w, r, v); upErr == nil {
				p.refuseOpen(conn, err)
			}
			return
		default:
		}
	}
	p.writeProblem(w, r, asProblem)
}

// upgrade makes a WebSocket of the request. On an error it has been answered.
func (p *Pusher) upgrade(w http.ResponseWriter, r *http.Request, v *visitor) (*wire, *websocket.Conn, error) {
	header := http.Header{}
	if v.protocol != "" {
		header.Set("Sec-Websocket-Protocol", v.protocol)
	}
	ws, err := p.upgrader.Upgrade(w, r, header)
	if err != nil {
		p.log.Debug("pusher: upgrade", "err", err)
		return nil, nil, err
	}
	ws.SetReadLimit(int64(p.cfg.MaxFrameBytes))
	conn := ws.NetConn().(*wire) //nolint:forcetypeassert // the listener makes no others
	p.limitSendBuffer(conn)
	return conn, ws, nil
}

// limitSendBuffer bounds what the kernel holds for a peer that does not read; where it cannot, the system's own bound stays.
func (p *Pusher) limitSendBuffer(w *wire) {
	if tcp, ok := w.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		_ = tcp.SetWriteBuffer(p.cfg.SendBufferBytes)
	}
}
