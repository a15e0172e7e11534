package pusher

import (
	"encoding/binary"
	"errors"
	"net"
	"time"
)

// errDry ends a read of the protocol implementation that wants more than there is: a message of endless fragments.
var errDry = errors.New("a message without an end")

// wire is the connection that the protocol implementation sees. Until the handshake is done it is the connection itself.
// From then on it is two pieces of memory: what the peer has sent, cut so that reading a message always finds all of
// it, and what is to be sent. So neither reading nor writing a frame ever blocks.
type wire struct {
	net.Conn
	framed bool
	in     []byte
	out    []byte
}

// listener makes wires of connections.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at it
	}
	return &wire{Conn: conn}, nil
}

func (w *wire) Read(p []byte) (int, error) {
	if !w.framed {
		return w.Conn.Read(p) //nolint:wrapcheck // the connection itself
	}
	if len(w.in) == 0 {
		return 0, errDry
	}
	n := copy(p, w.in)
	w.in = w.in[n:]
	return n, nil
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.framed {
		return w.Conn.Write(p) //nolint:wrapcheck // the connection itself
	}
	w.out = append(w.out, p...)
	return len(p), nil
}

// Deadlines are the sweep's business once nothing blocks.

func (w *wire) SetDeadline(t time.Time) error {
	if w.framed {
		return nil
	}
	return w.Conn.SetDeadline(t) //nolint:wrapcheck // the connection itself
}

func (w *wire) SetReadDeadline(t time.Time) error {
	if w.framed {
		return nil
	}
	return w.Conn.SetReadDeadline(t) //nolint:wrapcheck // the connection itself
}

func (w *wire) SetWriteDeadline(t time.Time) error {
	if w.framed {
		return nil
	}
	return w.Conn.SetWriteDeadline(t) //nolint:wrapcheck // the connection itself
}

// fence is an empty binary message. The protocol implementation reads on after a control frame until a message comes;
// put behind a lone ping or pong, this one ends that read, and the loop is free for others.
var fence = [...]byte{0x82, 0x80, 0, 0, 0, 0}

// Parts of a frame's header, RFC 6455 section 5.2.
const (
	finalBit    = 0x80
	controlBit  = 0x08
	maskBit     = 0x80
	lengthBits  = 0x7f
	length16    = 126
	length64    = 127
	maxControl  = 125
	frameHeader = 14 // at most
)

// unit is how much of buf the protocol implementation needs to read once: a message with all its fragments and the
// control frames between them, or, with fenced, one control frame. 0 means that more has to come. A message of more than
// maxBytes is given as it is, to be refused.
func unit(buf []byte, maxBytes int) (n int, fenced bool) {
	inMessage, payload := false, 0
	for pos := 0; ; {
		head, size, ok := header(buf[pos:])
		if !ok {
			break
		}
		control := buf[pos]&controlBit != 0
		if control && size > maxControl {
			return len(buf), false
		}
		if !control {
			if size > maxBytes || payload+size > maxBytes {
				return len(buf), false
			}
			payload += size
		}
		if pos += head + size; pos > len(buf) {
			break
		}
		first := buf[pos-head-size]
		switch {
		case control && !inMessage:
			return pos, true
		case control:
		case first&finalBit != 0:
			return pos, false
		default:
			inMessage = true
		}
	}
	if len(buf) > 2*maxBytes+maxControl+frameHeader { // fragments without content have no end either
		return len(buf), false
	}
	return 0, false
}

// header reads the sizes of a frame's header and payload, if the header is there.
func header(b []byte) (head, payload int, ok bool) {
	if len(b) < 2 {
		return 0, 0, false
	}
	head, payload = 2, int(b[1]&lengthBits)
	switch payload {
	case length16:
		if head += 2; len(b) < head {
			return 0, 0, false
		}
		payload = int(binary.BigEndian.Uint16(b[2:]))
	case length64:
		if head += 8; len(b) < head {
			return 0, 0, false
		}
		payload = int(min(binary.BigEndian.Uint64(b[2:]), 1<<40))
	}
	if b[1]&maskBit != 0 {
		head += 4
	}
	return head, payload, true
}
