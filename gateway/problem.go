package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// httpStatus is the one table from error code to HTTP status.
var httpStatus = map[sale.Code]int{
	sale.CodeInvalidRequest:       http.StatusBadRequest,
	sale.CodeInvalidToken:         http.StatusBadRequest,
	sale.CodeUnauthenticated:      http.StatusUnauthorized,
	sale.CodeBlocked:              http.StatusForbidden,
	sale.CodeNotEligible:          http.StatusForbidden,
	sale.CodeForbiddenOrigin:      http.StatusForbidden,
	sale.CodeNotFound:             http.StatusNotFound,
	sale.CodeMethodNotAllowed:     http.StatusMethodNotAllowed,
	sale.CodeSoldOut:              http.StatusConflict,
	sale.CodeAlreadyParticipated:  http.StatusConflict,
	sale.CodeNotStarted:           http.StatusConflict,
	sale.CodeEnded:                http.StatusConflict,
	sale.CodePaused:               http.StatusConflict,
	sale.CodeWrongStatus:          http.StatusConflict,
	sale.CodeAlreadyWaiting:       http.StatusConflict,
	sale.CodeWaitlistClosed:       http.StatusConflict,
	sale.CodeBodyTooLarge:         http.StatusRequestEntityTooLarge,
	sale.CodeUnsupportedMediaType: http.StatusUnsupportedMediaType,
	sale.CodeTokenMismatch:        http.StatusUnprocessableEntity,
	sale.CodeRateLimited:          http.StatusTooManyRequests,
	sale.CodeHeadersTooLarge:      http.StatusRequestHeaderFieldsTooLarge,
	sale.CodeInternal:             http.StatusInternalServerError,
	sale.CodeNotReady:             http.StatusServiceUnavailable,
	sale.CodeOverloaded:           http.StatusServiceUnavailable,
	sale.CodePending:              http.StatusServiceUnavailable,
}

// problem is a refusal with what its code asks for beside the detail.
type problem struct {
	Code         sale.Code
	Detail       string
	StartsAt     time.Time
	RequestToken string
	RetryAfter   time.Duration
	PollAfter    time.Duration
	OrderStatus  sale.Status
}

// Error returns "code: detail".
func (p *problem) Error() string { return string(p.Code) + ": " + p.Detail }

// refuse makes a problem without extras.
func refuse(code sale.Code, detail string) *problem {
	return &problem{Code: code, Detail: detail}
}

// retryLater makes a 429 or 503 problem.
func retryLater(code sale.Code, detail string, after time.Duration) *problem {
	return &problem{Code: code, Detail: detail, RetryAfter: after}
}

// problemJSON is the body of application/problem+json (RFC 9457) with this API's extras.
type problemJSON struct {
	Type         string    `json:"type"`
	Title        string    `json:"title"`
	Status       int       `json:"status"`
	Code         sale.Code `json:"code"`
	Detail       string    `json:"detail"`
	TraceID      string    `json:"traceId"`
	ServerTime   int64     `json:"serverTime"`
	StartsAt     int64     `json:"startsAt,omitempty"`
	RequestToken string    `json:"requestToken,omitempty"`
	RetryAfterMs int64     `json:"retryAfterMs,omitempty"`
	ResultURL    string    `json:"resultUrl,omitempty"`
	PollAfterMs  int64     `json:"pollAfterMs,omitempty"`
	OrderStatus  string    `json:"orderStatus,omitempty"`
}

// asProblem turns any error into what the client is told. What is not a domain error is logged whole and told as
// "internal", with nothing of its text.
func (g *Gateway) asProblem(err error, traceID string) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var e *sale.Error
	if errors.As(err, &e) {
		return &problem{Code: e.Code, Detail: e.Detail}
	}
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return refuse(sale.CodeNotFound, "there is no such thing, or it is not yours")
	case errors.Is(err, sale.ErrNotReady):
		return retryLater(sale.CodeNotReady, "the sale is not ready yet", time.Second)
	case errors.Is(err, sale.ErrTransient):
		g.log.Warn("gateway: back end busy", "err", err, "traceId", traceID)
		return retryLater(sale.CodeOverloaded, "busy, please try again", time.Second)
	}
	g.log.Error("gateway: request failed", "err", err, "traceId", traceID)
	return refuse(sale.CodeInternal, "something went wrong here; the trace id names it in our log")
}

// writeProblem answers with a problem.
func (g *Gateway) writeProblem(ctx *fasthttp.RequestCtx, p *problem, traceID string) {
	status := httpStatus[p.Code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	if p.RetryAfter <= 0 && (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) {
		p.RetryAfter = time.Second
	}
	body := problemJSON{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: p.Code, Detail: p.Detail,
		TraceID: traceID, ServerTime: g.now().UnixMilli(), StartsAt: sale.Millis(p.StartsAt), RequestToken: p.RequestToken,
		RetryAfterMs: p.RetryAfter.Milliseconds(), PollAfterMs: p.PollAfter.Milliseconds(), OrderStatus: string(p.OrderStatus),
	}
	if p.RequestToken != "" {
		body.ResultURL = resultURL(p.RequestToken)
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic("BUG: a problem has no JSON form: " + err.Error())
	}
	h := &ctx.Response.Header
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/problem+json")
	h.Set("Cache-Control", "no-store")
	ctx.SetBody(b)
}

func resultURL(token string) string { return "/v1/results/" + token }
