package pusher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// watched is what the poller is told to look for. Edge-triggered: each change is told once, so a connection is set up
// with one call and costs nothing more, and whoever is told reads or writes until there is nothing left.
const watched = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | 1<<31 // EPOLLET

// tcpUserTimeout is TCP_USER_TIMEOUT, in milliseconds, which package syscall does not name.
const tcpUserTimeout = 18

// poller watches connections in place of a goroutine each. The set of connections is itself a file that the Go runtime
// watches, so waiting costs a goroutine and no thread.
type poller struct {
	set *os.File
	raw syscall.RawConn

	mu      sync.Mutex
	sockets map[int32]*socket
}

// newPoller makes a poller.
func newPoller() (*poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("pusher: epoll: %w", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // else the runtime does not watch it
		return nil, errors.Join(fmt.Errorf("pusher: epoll: %w", err), syscall.Close(fd))
	}
	p := &poller{set: os.NewFile(uintptr(fd), "epoll"), sockets: make(map[int32]*socket)}
	if p.raw, err = p.set.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("pusher: epoll: %w", err), p.set.Close())
	}
	return p, nil
}

// run signals sockets until ctx ends.
func (p *poller) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.set.Close() })
	defer stop()
	events := make([]syscall.EpollEvent, 256)
	for {
		n, waitErr := 0, error(nil)
		err := p.raw.Read(func(fd uintptr) bool {
			n, waitErr = syscall.EpollWait(int(fd), events, 0)
			return n > 0 || waitErr != nil && !errors.Is(waitErr, syscall.EINTR)
		})
		if ctx.Err() != nil {
			return nil
		}
		if err = errors.Join(err, waitErr); err != nil {
			return fmt.Errorf("pusher: epoll: %w", err)
		}
		p.mu.Lock()
		for i := range events[:n] {
			// A socket that has just gone and whose number another has taken is signalled for nothing.
			if s := p.sockets[events[i].Fd]; s != nil {
				s.signal(happened(events[i].Events))
			}
		}
		p.mu.Unlock()
	}
}

func happened(events uint32) (signals uint32) {
	if events&^syscall.EPOLLOUT != 0 {
		signals |= canRead
	}
	if events&syscall.EPOLLOUT != 0 {
		signals |= canWrite
	}
	return signals
}

// add watches a connection for a socket. errors.ErrUnsupported: it is not one that the system can watch.
func (p *poller) add(conn net.Conn, s *socket) (stream, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("pusher: watch: %w", err)
	}
	st := &polled{p: p, raw: raw}
	var ctlErr error
	err = raw.Control(func(fd uintptr) {
		st.fd = int32(fd)
		// A peer that is gone without a word: what was sent to it stays unacknowledged. An event stream's has no other sign.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(s.p.cfg.PeerTimeout.Milliseconds()))
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sockets[st.fd] = s
		ctlErr = p.control(syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: watched, Fd: st.fd})
		if ctlErr != nil {
			delete(p.sockets, st.fd)
		}
	})
	if err = errors.Join(err, ctlErr); err != nil {
		return nil, fmt.Errorf("pusher: watch: %w", err)
	}
	return st, nil
}

func (p *poller) control(op int, fd uintptr, event *syscall.EpollEvent) error {
	var ctlErr error
	err := p.raw.Control(func(set uintptr) { ctlErr = syscall.EpollCtl(int(set), op, int(fd), event) })
	return errors.Join(err, ctlErr)
}

// polled is a connection that a poller watches.
type polled struct {
	p   *poller
	raw syscall.RawConn
	fd  int32
}

func (c *polled) read(calls *calls, p []byte) (int, error) {
	return calls.do(c.raw.Read, calls.read, p)
}

func (c *polled) write(calls *calls, p []byte) (int, error) {
	n, err := calls.do(c.raw.Write, calls.write, p)
	if err == nil && n < len(p) {
		err = errWait // it is full, and the poller tells when it is not
	}
	return n, err
}

// release takes the connection out before it is closed, because from then on its number may be another's.
func (c *polled) release() {
	_ = c.raw.Control(func(fd uintptr) {
		c.p.mu.Lock()
		defer c.p.mu.Unlock()
		delete(c.p.sockets, c.fd)
		_ = c.p.control(syscall.EPOLL_CTL_DEL, fd, nil) // fails only when the poller has been closed
	})
}
