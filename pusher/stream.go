package pusher

import (
	"errors"
	"net"
	"sync"
	"time"
)

// errWait says that a stream can do nothing now; it signals when it can.
var errWait = errors.New("not now")

// stream reads and writes a connection without ever blocking its caller, who is one loop.
type stream interface {
	// read reads what has come. Nothing: errWait, and canRead is signalled when something has.
	read(c *calls, p []byte) (int, error)
	// write writes as much as goes now. Less than all: errWait, and canWrite is signalled when more goes.
	write(c *calls, p []byte) (int, error)
	// release ends it without closing the connection, which from now on may be read and written by one who can wait.
	release()
}

// streamOf makes the best stream that a connection can have: watched by the system's poller where there is one and the
// connection is a plain one of the system, else by goroutines of its own.
func (p *Pusher) streamOf(conn net.Conn, s *socket) (stream, error) {
	if p.poller != nil {
		if st, err := p.poller.add(conn, s); err == nil || !errors.Is(err, errors.ErrUnsupported) {
			return st, err
		}
	}
	return newPumped(conn, s, p.cfg.WriteTimeout), nil
}

// pumpBytes is how much of a connection waits for its loop.
const pumpBytes = 4096

// pumped is a stream made of blocking calls: a goroutine reads, and each write has one for as long as it takes.
type pumped struct {
	conn    net.Conn
	s       *socket
	timeout time.Duration // of a write

	work sync.WaitGroup

	mu      sync.Mutex
	emptied sync.Cond
	in      []byte
	err     error // of a read or write: nothing more comes
	writing bool
	ended   bool
}

func newPumped(conn net.Conn, s *socket, timeout time.Duration) *pumped {
	p := &pumped{conn: conn, s: s, timeout: timeout}
	p.emptied.L = &p.mu
	p.work.Go(p.pump)
	return p
}

func (p *pumped) pump() {
	buf := make([]byte, pumpBytes)
	for {
		n, err := p.conn.Read(buf)
		p.mu.Lock()
		for len(p.in) > 0 && !p.ended {
			p.emptied.Wait()
		}
		p.in = append(p.in, buf[:n]...)
		if err != nil && p.err == nil {
			p.err = err
		}
		ended := p.ended || err != nil
		p.mu.Unlock()
		p.s.signal(canRead)
		if ended {
			return
		}
	}
}

func (p *pumped) read(_ *calls, b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.in) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		return 0, errWait
	}
	n := copy(b, p.in)
	if p.in = p.in[n:]; len(p.in) == 0 {
		p.in = nil
		p.emptied.Signal()
	}
	return n, nil
}

func (p *pumped) write(_ *calls, b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	if p.writing {
		return 0, errWait
	}
	p.writing = true
	data := append([]byte(nil), b...)
	p.work.Go(func() {
		_ = p.conn.SetWriteDeadline(time.Now().Add(p.timeout))
		_, err := p.conn.Write(data)
		p.mu.Lock()
		p.writing = false
		happened := canWrite
		if err != nil {
			happened |= canRead // which finds the error, should nothing be left to write
			if p.err == nil {
				p.err = err
			}
		}
		p.mu.Unlock()
		p.s.signal(happened)
	})
	return len(b), nil
}

func (p *pumped) release() {
	p.mu.Lock()
	p.ended = true
	p.emptied.Signal()
	p.mu.Unlock()
	_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the pump
	p.work.Wait()
	_ = p.conn.SetDeadline(time.Time{})
}
