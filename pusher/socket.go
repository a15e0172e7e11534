package pusher

import (
	"compress/flate"
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

const (
	// writeBytes is about how much is put together before it is written.
	writeBytes = 16 << 10
	// readsInARow is how often a socket reads before others have their turn.
	readsInARow = 8
)

// socket is one connection of a user. While nothing happens it is only this, the protocol's state and an entry of the
// hub: no goroutine, no timer, no buffer.
type socket struct {
	p      *Pusher
	loop   *loop
	wire   *wire
	stream stream
	ws     *websocket.Conn // nil: an event stream
	client *hub.Client

	activity string
	expires  int64 // of the session, epoch milliseconds
	addr     netip.Addr

	events atomic.Uint32 // what has happened and the loop has not seen

	// The state is read for a socket that asks, one reading at a time.
	asked atomic.Bool
	again atomic.Bool // also what it has been told

	// The sweep looks at these, in epoch milliseconds. 0: nothing of the kind.
	heardAt   atomic.Int64 // the peer's last frame
	blockedAt atomic.Int64 // since when the kernel takes no bytes
	partialAt atomic.Int64 // since when half a message is there
	pingAt    int64        // the next ping; the sweep's own

	// The loop's own.
	partial []byte        // of a message
	inbound *rate.Limiter // made with the first frame
	done    bool
}

// newSocket makes a socket of an upgraded connection. Nothing happens to it before attach.
func newSocket(p *Pusher, w *wire, ws *websocket.Conn, v *visitor) *socket {
	s := &socket{p: p, wire: w, ws: ws, activity: v.activity, expires: v.expires.UnixMilli(), addr: v.addr}
	s.events.Store(detached)
	return s
}

// attach gives the socket to its loop.
func (s *socket) attach() error {
	s.loop = s.p.loops[s.client.Shard()%len(s.p.loops)]
	now := time.Now()
	s.heardAt.Store(now.UnixMilli())
	// The first ping comes at a random moment, so that sockets which connected together do not go on together.
	s.pingAt = now.Add(time.Duration(float64(s.p.cfg.PingEvery) * (0.5 + s.p.jitter()/2))).UnixMilli()
	if s.ws != nil {
		s.ws.SetPingHandler(s.onPing)
		s.ws.SetPongHandler(s.onPong)
		s.ws.SetCloseHandler(func(int, string) error { return nil }) // farewell answers
	}
	s.wire.framed = true
	var err error
	if s.stream, err = s.p.streamOf(s.wire.Conn, s); err != nil {
		return err
	}
	s.events.Store(0)
	s.signal(canRead | hasMessage)
	return nil
}

// Wake tells the loop that the hub has something.
func (s *socket) Wake(urgent bool) {
	if urgent {
		s.signal(hasMessage)
	} else {
		s.signal(hasLive)
	}
}

// signal has the loop look at the socket, if it would not do so anyway.
func (s *socket) signal(happened uint32) {
	before := s.events.Or(happened)
	urgent := happened != hasLive
	if before == 0 || before == hasLive && urgent {
		s.loop.push(s, urgent)
	}
}

// handle does what was signalled.
func (s *socket) handle(l *loop, happened uint32) {
	defer func() {
		if v := recover(); v != nil { // what a peer sends may cost that peer, never the others (FS-029)
			s.p.log.Error("pusher: panic", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			s.wire.out = nil // it may be the loop's
			s.finish(errPanic)
		}
	}()
	borrowed := s.wire.out == nil
	if borrowed {
		s.wire.out = l.out[:0]
	}
	if happened&canRead != 0 && s.client.Err() == nil { // what comes after the end does not matter
		if err := s.read(l); err != nil {
			s.client.Close(err) // unless there is a reason already
		}
	}
	if happened&pingDue != 0 {
		s.ping()
	}
	if happened&canWrite != 0 {
		s.blockedAt.Store(0)
	}
	err := s.write(l)
	switch {
	case err != nil || len(s.wire.out) > 0: // what is left is the socket's own from now on
		if borrowed {
			s.wire.out = append([]byte(nil), s.wire.out...)
		}
	case borrowed:
		l.out, s.wire.out = s.wire.out[:0], nil
	default:
		s.wire.out = nil
	}
	if err != nil {
		s.finish(err)
	}
}

// write writes what waits, as far as the kernel takes it. It returns why the socket ends.
func (s *socket) write(l *loop) error {
	for {
		if s.blockedAt.Load() != 0 {
			return s.client.Err()
		}
		more := true
		var newest int64 // of the messages that go out now
		for more && len(s.wire.out) < writeBytes {
			data, at, err := s.client.Next()
			if err != nil {
				return err
			}
			if more = data != nil; more {
				if err := s.encode(data); err != nil {
					return fmt.Errorf("write: %w", err)
				}
				newest = max(newest, at)
			}
		}
		if len(s.wire.out) == 0 {
			return nil
		}
		if err := s.send(l); err != nil {
			s.client.Close(fmt.Errorf("write: %w", err))
			return s.client.Err()
		}
		if newest > 0 && s.blockedAt.Load() == 0 {
			s.p.metrics.push.Observe(float64(time.Now().UnixNano()-newest) / 1e9)
		}
		if !more {
			return nil
		}
	}
}

// send gives the kernel what has been encoded. What it does not take stays.
func (s *socket) send(l *loop) error {
	n, err := s.stream.write(&l.calls, s.wire.out)
	s.wire.out = s.wire.out[:copy(s.wire.out, s.wire.out[n:])]
	if errors.Is(err, errWait) {
		s.blockedAt.Store(time.Now().UnixMilli()) // until canWrite, which may be signalled already
		return nil
	}
	return err
}

// read takes in what has come until nothing is left, or the first error (FS-079).
func (s *socket) read(l *loop) error {
	for range readsInARow {
		n := copy(l.in, s.partial)
		got, err := s.stream.read(&l.calls, l.in[n:])
		if errors.Is(err, errWait) {
			return nil
		}
		if err == io.EOF { //nolint:errorlint // as it is
			return &websocket.CloseError{Code: websocket.CloseAbnormalClosure, Text: io.ErrUnexpectedEOF.Error()}
		}
		if err != nil {
			return err
		}
		if s.ws == nil {
			return errPolicy // an event stream's peer has nothing to say
		}
		rest, err := s.take(l.in[:n+got], s.message)
		if err != nil {
			return err
		}
		s.keep(rest, len(rest) < n+got)
	}
	s.signal(canRead)
	return nil
}

// keep keeps half a message until the rest comes. another: it is not the one whose first half was there before.
func (s *socket) keep(rest []byte, another bool) {
	switch {
	case len(rest) == 0:
		s.partial = nil
		s.partialAt.Store(0)
	default:
		if another || s.partialAt.Load() == 0 {
			s.partialAt.Store(time.Now().UnixMilli())
		}
		s.partial = append([]byte(nil), rest...)
	}
}

// take gives the protocol implementation one unit after another, passes the messages on, and returns what is no whole
// unit yet.
func (s *socket) take(buf []byte, message func(kind int, data []byte) error) (rest []byte, err error) {
	for len(buf) > 0 {
		n, fenced := unit(buf, s.p.cfg.MaxFrameBytes)
		if n == 0 {
			break
		}
		s.wire.in = buf[:n]
		if fenced {
			s.wire.in = append(append(make([]byte, 0, n+len(fence)), buf[:n]...), fence[:]...)
		}
		kind, data, err := s.readMessage()
		if err == nil && len(s.wire.in) > 0 { // a compressed message may end before its last bytes
			s.wire.in = append(append([]byte(nil), s.wire.in...), fence[:]...)
			_, _, err = s.ws.NextReader() // reads over them
		}
		if errors.Is(err, errDry) { // more fragments than fit
			return nil, websocket.ErrReadLimit
		}
		if err != nil {
			return nil, err
		}
		if !fenced {
			if err := message(kind, data); err != nil {
				return nil, err
			}
		}
		buf = buf[n:]
	}
	return buf, nil
}

// readMessage reads one message. The protocol implementation bounds its frames, which may be compressed (FS-078).
func (s *socket) readMessage() (kind int, data []byte, err error) {
	kind, r, err := s.ws.NextReader()
	if err != nil {
		return kind, nil, err //nolint:wrapcheck // read does
	}
	data, err = io.ReadAll(io.LimitReader(r, int64(s.p.cfg.MaxFrameBytes)+1))
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) || errors.Is(err, io.ErrUnexpectedEOF) {
		return kind, nil, errPolicy
	}
	if err != nil {
		return kind, nil, err //nolint:wrapcheck // read does
	}
	if len(data) > s.p.cfg.MaxFrameBytes {
		return kind, nil, websocket.ErrReadLimit
	}
	return kind, data, nil
}

// message acts on a message of the peer.
func (s *socket) message(kind int, data []byte) error {
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
		s.p.reader.ask(s, true)
	}
	return nil
}

func (s *socket) onPing(payload string) error {
	if err := s.heard(); err != nil {
		return err
	}
	return s.ws.WriteControl(websocket.PongMessage, []byte(payload), time.Now().Add(s.p.cfg.WriteTimeout))
}

func (s *socket) onPong(string) error { return s.heard() }

// heard counts an inbound frame and returns errPolicy when there are too many.
func (s *socket) heard() error {
	if s.inbound == nil {
		s.inbound = rate.NewLimiter(rate.Limit(s.p.cfg.InboundPerSecond), s.p.cfg.InboundBurst)
	}
	if !s.inbound.Allow() {
		return errPolicy
	}
	s.heardAt.Store(time.Now().UnixMilli())
	return nil
}

var _ hub.Owner = (*socket)(nil)
