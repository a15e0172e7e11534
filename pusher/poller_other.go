//go:build !linux

package pusher

import (
	"context"
	"errors"
	"net"
)

// poller is not there on this system: every socket has goroutines.
type poller struct{}

func newPoller() (*poller, error) { return nil, nil } //nolint:nilnil // no poller is no error

func (*poller) run(context.Context) error { return nil }

func (*poller) add(net.Conn, *socket) (stream, error) { return nil, errors.ErrUnsupported }

// calls is what only a poller's streams need.
type calls struct{}

func (*calls) init() {}
