package pusher

import (
	"errors"
	"net"

	"github.com/gorilla/websocket"

	"seckill/hub"
)

// Close codes of this API, beside those of the protocol.
const (
	closeUnauthenticated = 4401 // sign in again; do not reconnect with this token
	closeSlow            = 4408 // the client did not keep up; reconnect and read the state
	closeTooMany         = 4429 // too many sockets of the user or the address
)

// Why the server ends a socket, beside the hub's own reasons.
var (
	errUnauthenticated = errors.New("token is not valid or has expired")
	errTooManyHere     = errors.New("too many connections of this address")
	errPolicy          = errors.New("too many frames, or one that is not JSON")
	errTryLater        = errors.New("the state cannot be read now")
	errRestart         = errors.New("the server restarts")
	errPanic           = errors.New("internal error")
)

// closeCode is the one table from the end of a socket to its close code and text. 0 means that no frame is sent: the
// connection is gone, or the protocol implementation has sent one. 1005 and 1006 never are (FS-080).
func closeCode(reason error) (code int, text string) {
	var peer *websocket.CloseError
	switch {
	case errors.As(reason, &peer):
		switch peer.Code {
		case websocket.CloseAbnormalClosure:
			return 0, ""
		case websocket.CloseNoStatusReceived:
			return websocket.CloseNormalClosure, ""
		}
		return peer.Code, ""
	case errors.Is(reason, errUnauthenticated):
		return closeUnauthenticated, reason.Error()
	case errors.Is(reason, hub.ErrSlow):
		return closeSlow, reason.Error()
	case errors.Is(reason, hub.ErrTooMany), errors.Is(reason, errTooManyHere):
		return closeTooMany, reason.Error()
	case errors.Is(reason, errPolicy):
		return websocket.ClosePolicyViolation, reason.Error()
	case errors.Is(reason, errTryLater):
		return websocket.CloseTryAgainLater, reason.Error()
	case errors.Is(reason, errRestart):
		return websocket.CloseServiceRestart, reason.Error()
	case errors.Is(reason, errPanic):
		return websocket.CloseInternalServerErr, reason.Error()
	case errors.Is(reason, websocket.ErrReadLimit):
		return websocket.CloseMessageTooBig, ""
	}
	return 0, ""
}

// connectionGone reports whether an error of reading says that nothing more can be sent either.
func connectionGone(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) || websocket.IsCloseError(err, websocket.CloseAbnormalClosure)
}

// isPeers reports whether the peer ended the socket with a close frame.
func isPeers(reason error) bool {
	var peer *websocket.CloseError
	return errors.As(reason, &peer) && peer.Code != websocket.CloseAbnormalClosure
}
