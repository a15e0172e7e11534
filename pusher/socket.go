package pusher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"seckill/hub"
)

// socket is one connection. Two goroutines work on it: run reads, write writes; everything that is to be written,
// pings, pongs and the close frame included, goes through the second (FS-066).
type socket struct {
	p        *Pusher
	conn     *websocket.Conn
	client   *hub.Client
	activity string
	expires  time.Time // of the session
	addr     netip.Addr

	wake    chan struct{}          // the hub has something
	pong    atomic.Pointer[string] // payload of the peer's last ping, until it is answered
	closing atomic.Bool            // a close frame goes out: what still comes in does not matter
	written chan struct{}          // closed when the writer has ended
	inbound *rate.Limiter          // made with the first frame: most clients send nothing but pongs
}

func newSocket(p *Pusher, conn *websocket.Conn, v visitor) *socket {
	return &socket{
		p: p, conn: conn, activity: v.activity, expires: v.expires, addr: v.addr,
		wake: make(chan struct{}, 1), written: make(chan struct{}),
	}
}

// Wake tells the writer that there is something to do.
func (s *socket) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the life of the socket.
func (s *socket) run() {
	defer s.p.leave()
	defer s.p.addresses.release(s.addr)
	go s.write()
	s.conn.SetPingHandler(func(payload string) error {
		s.pong.Store(&payload)
		s.Wake()
		return s.heard()
	})
	s.conn.SetPongHandler(func(string) error { return s.heard() })
	s.conn.SetCloseHandler(func(int, string) error { return nil }) // the writer answers
	s.stayFor(s.p.cfg.PeerTimeout)

	s.start()
	err := s.read()
	s.client.Close(err) // unless there is a reason already
	s.p.hub.Unregister(s.client)
	if connectionGone(err) {
		_ = s.conn.Close() // frees a writer that waits for this peer
	}
	<-s.written
	if !connectionGone(err) {
		linger(s.conn, err, s.p.cfg.CloseWait)
		_ = s.conn.Close()
	}
	_, _, reason := s.client.Next()
	s.p.metrics.closed(reason)
	s.p.log.Debug("pusher: socket closed", "user", s.client.UserID(), "reason", reason)
}

// start has the state told, once the shard is subscribed: what is decided later comes by the subscription, what was
// decided before is in the state (FS-071).
func (s *socket) start() {
	if s.p.isDraining() { // it registered when drain had looked already
		s.client.Close(errRestart)
		return
	}
	ctx := s.p.sockets
	if !s.p.subs.wait(ctx, s.client.Shard(), s.p.cfg.SubscribeWait) {
		// The state is told all the same; the shard's users are read again when the subscription comes.
		s.p.log.Debug("pusher: shard is not subscribed yet", "shard", s.client.Shard())
	}
	s.sync(ctx, false)
}

func (s *socket) sync(ctx context.Context, again bool) {
	if !s.p.reader.enqueue(ctx, ask{s.client, s.activity, again}) {
		s.client.Close(errTryLater)
	}
}

// stayFor moves the deadline by which the peer must have been heard.
func (s *socket) stayFor(d time.Duration) {
	_ = s.conn.SetReadDeadline(time.Now().Add(d))
	if s.closing.Load() { // the writer may have set the shorter one just before
		_ = s.conn.SetReadDeadline(time.Now().Add(s.p.cfg.CloseWait))
	}
}

// heard counts an inbound frame and returns errPolicy when there are too many.
func (s *socket) heard() error {
	if s.closing.Load() {
		return nil
	}
	if s.inbound == nil {
		s.inbound = rate.NewLimiter(rate.Limit(s.p.cfg.InboundPerSecond), s.p.cfg.InboundBurst)
	}
	if !s.inbound.Allow() {
		return errPolicy
	}
	s.stayFor(s.p.cfg.PeerTimeout)
	return nil
}

// read takes in frames until the first error (FS-079). After a violation it only waits for the peer to take notice.
func (s *socket) read() (err error) {
	defer func() {
		if v := recover(); v != nil { // what a peer sends may cost that peer, never the others (FS-029)
			s.p.log.Error("pusher: panic", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	for {
		kind, data, err := s.conn.ReadMessage()
		if err != nil {
			return err
		}
		if s.closing.Load() {
			continue
		}
		if err := s.take(kind, data); err != nil {
			s.closing.Store(true)
			s.client.Close(err)
		}
	}
}

func (s *socket) take(kind int, data []byte) error {
	if err := s.heard(); err != nil {
		return err
	}
	if kind != websocket.TextMessage {
		return errPolicy
	}
	what, err := parseFrame(data)
	if err != nil {
		return errPolicy
	}
	if what == typeSync {
		s.sync(s.p.sockets, true)
	}
	return nil
}

// write is the socket's only writer. It ends with the client or with the first error.
func (s *socket) write() {
	defer close(s.written)
	// The first ping comes at a random moment, so that sockets which connected together do not go on together.
	ping := time.Now().Add(time.Duration(float64(s.p.cfg.PingEvery) * (0.5 + s.p.jitter()/2)))
	timer := time.NewTimer(time.Until(ping))
	defer timer.Stop()
	for {
		data, at, err := s.client.Next()
		if err != nil {
			s.closing.Store(true)
			sendClose(s.conn, err, s.p.cfg.WriteTimeout)
			_ = s.conn.SetReadDeadline(time.Now().Add(s.p.cfg.CloseWait))
			return
		}
		now := time.Now()
		if data != nil {
			err = s.writeMessage(data, at, now)
		}
		if payload := s.pong.Swap(nil); err == nil && payload != nil {
			err = s.conn.WriteControl(websocket.PongMessage, []byte(*payload), now.Add(s.p.cfg.WriteTimeout))
		}
		left := s.expires.Sub(s.p.now())
		if left <= 0 {
			s.client.Close(errUnauthenticated)
			continue
		}
		if err == nil && !now.Before(ping) {
			err = s.conn.WriteControl(websocket.PingMessage, nil, now.Add(s.p.cfg.WriteTimeout))
			ping = now.Add(s.p.cfg.PingEvery)
		}
		if err != nil {
			s.client.Close(fmt.Errorf("write: %w", err))
			_ = s.conn.Close() // ends the reader
			return
		}
		if data != nil {
			continue
		}
		timer.Reset(min(time.Until(ping), left))
		select {
		case <-s.wake:
		case <-timer.C:
		}
	}
}

func (s *socket) writeMessage(data []byte, at int64, now time.Time) error {
	_ = s.conn.SetWriteDeadline(now.Add(s.p.cfg.WriteTimeout))
	if err := s.conn.WriteMessage(websocket.TextMessage, data); err != nil {
		return err
	}
	if at > 0 {
		s.p.metrics.push.Observe(float64(time.Now().UnixNano()-at) / 1e9)
	}
	return nil
}

// sendClose sends the close frame that a reason asks for, if any.
func sendClose(conn *websocket.Conn, reason error, timeout time.Duration) {
	if code, text := closeCode(reason); code != 0 {
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(timeout))
	}
}

// maxLinger bounds what is read and thrown away from a peer that still sends after the end.
const maxLinger = 1 << 20

// linger lets the peer get what was sent last. Closing a connection with bytes unread resets it, and a reset may reach
// the peer before it has read the close frame; so what it still sends is read for a moment, unless it is done already.
func linger(conn *websocket.Conn, readErr error, atMost time.Duration) {
	var closed *websocket.CloseError
	if errors.As(readErr, &closed) || connectionGone(readErr) {
		return
	}
	nc := conn.NetConn()
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = nc.SetReadDeadline(time.Now().Add(atMost))
	_, _ = io.CopyN(io.Discard, nc, maxLinger)
}
