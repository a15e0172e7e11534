package pusher

import (
	"errors"
	"io"
	"syscall"
)

// calls makes a read or write on a connection that does not wait. It is one loop's: made once, so that a call needs no
// memory.
type calls struct {
	p           []byte
	n           int
	err         error
	read, write func(fd uintptr) bool
}

func (c *calls) init() {
	c.read = func(fd uintptr) bool { c.n, c.err = again(syscall.Read, fd, c.p); return true }
	c.write = func(fd uintptr) bool { c.n, c.err = again(syscall.Write, fd, c.p); return true }
}

// again calls until no signal comes in between.
func again(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err //nolint:wrapcheck // do does
		}
	}
}

// do makes one call under the runtime's guard, which keeps the number of the connection from being another's meanwhile.
func (c *calls) do(guard func(func(uintptr) bool) error, call func(uintptr) bool, p []byte) (int, error) {
	c.p = p
	err := guard(call)
	c.p = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(c.err, syscall.EAGAIN):
		return c.n, errWait
	case c.err == nil && c.n == 0:
		return 0, io.EOF
	}
	return c.n, c.err
}
