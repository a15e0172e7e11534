package sale

import (
	"errors"
	"fmt"
)

// Code is a stable error code that clients may rely on.
type Code string

// Codes, as in the API contract.
const (
	CodeInvalidRequest       Code = "invalid_request"
	CodeInvalidToken         Code = "invalid_token"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeBlocked              Code = "blocked"
	CodeNotEligible          Code = "not_eligible"
	CodeForbiddenOrigin      Code = "forbidden_origin"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeSoldOut              Code = "sold_out"
	CodeAlreadyParticipated  Code = "already_participated"
	CodeNotStarted           Code = "not_started"
	CodeEnded                Code = "ended"
	CodePaused               Code = "paused"
	CodeWrongStatus          Code = "wrong_status"
	CodeAlreadyWaiting       Code = "already_waiting"
	CodeWaitlistClosed       Code = "waitlist_closed"
	CodeBodyTooLarge         Code = "body_too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeTokenMismatch        Code = "token_mismatch"
	CodeRateLimited          Code = "rate_limited"
	CodeHeadersTooLarge      Code = "headers_too_large"
	CodeInternal             Code = "internal"
	CodeNotReady             Code = "not_ready"
	CodeOverloaded           Code = "overloaded"
	CodePending              Code = "pending"
)

// Error is a refusal with a stable code and a sentence for people.
type Error struct {
	Code   Code
	Detail string
}

// Error returns "code: detail".
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

// Errorf makes an Error with a formatted detail.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code an error carries, or CodeInternal.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Errors that cross package borders.
var (
	ErrNotFound   = errors.New("not found")                      // no such row or key
	ErrExists     = errors.New("exists already")                 // a unique id is taken
	ErrConflict   = errors.New("changed meanwhile")              // a conditional write lost its race
	ErrNotReady   = errors.New("not ready")                      // Redis has no usable data for the sale
	ErrUncertain  = errors.New("outcome unknown")                // may or may not have happened; do not compensate
	ErrWrongState = errors.New("not possible in this state")     // the state machine has no such edge
	ErrTransient  = errors.New("temporary failure, retry whole") // deadlock, lock wait, lost connection (S20)
)
