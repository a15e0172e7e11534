package pusher

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"seckill/internal/sale"
)

// problem is a refusal before the upgrade.
type problem struct {
	Status     int
	Code       sale.Code
	Detail     string
	RetryAfter time.Duration // told with 429 and 503
	Allow      string        // told with 405
}

// Error returns "code: detail".
func (p *problem) Error() string { return string(p.Code) + ": " + p.Detail }

func refuse(status int, code sale.Code, detail string) *problem {
	return &problem{Status: status, Code: code, Detail: detail}
}

func retryLater(status int, code sale.Code, detail string, after time.Duration) *problem {
	return &problem{Status: status, Code: code, Detail: detail, RetryAfter: after}
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
	RetryAfterMs int64     `json:"retryAfterMs,omitempty"`
}

// writeProblem answers with a problem. What is none is logged, and told as "internal" with nothing of its text.
func (p *Pusher) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	trace := traceIDOf(r)
	var pr *problem
	if !errors.As(err, &pr) {
		p.log.Error("pusher: request failed", "err", err, "traceId", trace)
		pr = refuse(http.StatusInternalServerError, sale.CodeInternal, "something went wrong here; the trace id names it in our log")
	}
	body, err := json.Marshal(problemJSON{
		Type: "about:blank", Title: http.StatusText(pr.Status), Status: pr.Status, Code: pr.Code, Detail: pr.Detail,
		TraceID: trace, ServerTime: p.now().UnixMilli(), RetryAfterMs: pr.RetryAfter.Milliseconds(),
	})
	if err != nil {
		panic("BUG: a problem has no JSON form: " + err.Error())
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if pr.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((pr.RetryAfter+time.Second-1)/time.Second)))
	}
	if pr.Allow != "" {
		h.Set("Allow", pr.Allow)
	}
	if pr.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(pr.Status)
	_, _ = w.Write(body)
}

// traceIDOf takes the trace id of a W3C traceparent header, or makes one.
func traceIDOf(r *http.Request) string {
	if parent := r.Header.Get("Traceparent"); len(parent) == 55 && parent[2] == '-' && parent[35] == '-' {
		if id := parent[3:35]; isHex(id) {
			return id
		}
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil
}
