package pusher

import (
	"io"
	"net"
	"time"

	"github.com/gorilla/websocket"
)

// maxLinger bounds what is read and thrown away from a peer that still sends after the end.
const maxLinger = 1 << 20

// finish ends the socket, once. Its loop never works on it again; what is to be said yet, and waited for, is said by a
// goroutine that may block.
func (s *socket) finish(reason error) {
	if s.done {
		return
	}
	s.done = true
	s.events.Or(detached)
	s.client.Close(reason)
	reason = s.client.Err()
	s.p.hub.Unregister(s.client)
	s.p.departing(s.wire, true)
	go func() {
		defer s.p.leave()
		defer s.p.addresses.release(s.addr)
		defer s.p.departing(s.wire, false)
		s.stream.release()
		s.sayWhy(reason)
		s.p.metrics.closed(reason)
		s.p.log.Debug("pusher: socket closed", "user", s.client.UserID(), "reason", reason)
	}()
}

// sayWhy sends what was cut off in the middle, and why the socket ends, and closes the connection.
func (s *socket) sayWhy(reason error) {
	conn := s.wire.Conn
	defer func() { _ = conn.Close() }()
	if connectionGone(reason) {
		return
	}
	s.wire.framed = false
	_ = conn.SetWriteDeadline(time.Now().Add(s.p.cfg.WriteTimeout))
	if _, err := conn.Write(s.wire.out); err != nil {
		return
	}
	if s.ws == nil {
		_, _ = conn.Write(closeEvent(reason))
	} else {
		sendClose(s.ws, reason, s.p.cfg.WriteTimeout)
	}
	if !isPeers(reason) {
		linger(conn, s.p.cfg.CloseWait)
	}
}

// departing notes the connections that are being closed, so that a stop can cut them off.
func (p *Pusher) departing(w *wire, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.leaving[w] = struct{}{}
	} else {
		delete(p.leaving, w)
	}
}

// closing is how many connections are being closed; they have descriptors still.
func (p *Pusher) closing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.leaving)
}

// refuseOpen closes a socket that never belonged to the hub.
func (p *Pusher) refuseOpen(conn *websocket.Conn, reason error) {
	sendClose(conn, reason, p.cfg.CloseWait)
	linger(conn.NetConn(), p.cfg.CloseWait)
	_ = conn.Close()
	p.metrics.closed(reason)
}

// sendClose sends the close frame that a reason asks for, if any.
func sendClose(conn *websocket.Conn, reason error, timeout time.Duration) {
	if code, text := closeCode(reason); code != 0 {
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(timeout))
	}
}

// linger lets the peer get what was sent last. Closing a connection with bytes unread resets it, and a reset may reach
// the peer before it has read the close frame; so what it still sends is read, until it has closed its side too.
func linger(conn net.Conn, atMost time.Duration) {
	if w, ok := conn.(*wire); ok {
		conn = w.Conn
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(atMost))
	_, _ = io.CopyN(io.Discard, conn, maxLinger)
}
