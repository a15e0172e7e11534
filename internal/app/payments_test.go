package app_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"seckill/internal/auth"
)

// callback posts a payment callback, signed with this secret at this time.
func callback(t *testing.T, secret, id string, at time.Time, body string) (int, string) {
	t.Helper()
	hooks, err := auth.NewWebhooks([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := hooks.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	status, code, _ := send(t, "POST", "/v1/payments/callback", body, map[string]string{
		"Content-Type": "application/json", "webhook-id": id, "webhook-timestamp": strconv.FormatInt(at.Unix(), 10), "webhook-signature": signature,
	})
	return status, code
}

// S37: a signed callback pays an order once; forged, old and malformed ones change nothing; late money is due back.
func TestPaymentCallback(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	u := user(t, 9201)
	frames := s.socket(t, u, act)
	token, r := s.buy(t, u, act, "C1")
	body := func(id, amount string) string {
		return fmt.Sprintf(`{"paymentId":%q,"orderNo":%q,"amount":%q,"paidAt":%d}`, id, r.OrderNo, amount, time.Now().UnixMilli())
	}
	now := time.Now()
	pid := "p" + uniqueID()
	for name, c := range map[string]struct {
		secret string
		at     time.Time
		body   string
		status int
		code   string
	}{
		"another secret":  {"another secret of payments", now, body(pid, "19.99"), 401, "unauthenticated"},
		"too old":         {paymentSecret, now.Add(-6 * time.Minute), body(pid, "19.99"), 401, "unauthenticated"},
		"from the future": {paymentSecret, now.Add(6 * time.Minute), body(pid, "19.99"), 401, "unauthenticated"},
		"no json":         {paymentSecret, now, "paid!", 400, "invalid_request"},
		"bad amount":      {paymentSecret, now, body(pid, "19.999"), 400, "invalid_request"},
		"no id":           {paymentSecret, now, body("", "19.99"), 400, "invalid_request"},
		"no such order":   {paymentSecret, now, strings.Replace(body(pid, "19.99"), r.OrderNo, "12345678901", 1), 404, "not_found"},
	} {
		if status, code := callback(t, c.secret, "msg-1", c.at, c.body); status != c.status || code != c.code {
			t.Errorf("%s: %d %s", name, status, code)
		}
	}
	if res, err := s.api.Result(t.Context(), u, token, 0); err != nil || res.Status != "pending_payment" {
		t.Fatalf("after the bad callbacks: %+v, %v", res, err)
	}
	paid := body(pid, "19.99")
	for range 3 { // the service repeats until it sees 200
		if status, _ := callback(t, paymentSecret, "msg-2", now, paid); status != 200 {
			t.Fatalf("callback: %d", status)
		}
	}
	if f := next(t, frames, resultOf(token, "paid")); f.Version != 2 {
		t.Errorf("told %+v", f)
	}
	if status, code := callback(t, paymentSecret, "msg-3", now, body(pid, "1.00")); status != 400 || code != "invalid_request" {
		t.Errorf("same payment id, other amount: %d %s", status, code)
	}
	if status, _ := callback(t, paymentSecret, "msg-4", now, body(pid+"x", "5.00")); status != 200 {
		t.Errorf("wrong amount is recorded: %d", status)
	}
	var refunds struct {
		Refunds []struct{ PaymentID, OrderNo, Amount string }
	}
	if _, err := s.api.JSON(t.Context(), http.MethodGet, "/admin/v1/refunds", s.admin, nil, &refunds); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, r := range refunds.Refunds {
		found = found || (r.PaymentID == pid+"x" && r.Amount == "5.00")
	}
	if !found {
		t.Errorf("the refund is not listed: %+v", refunds)
	}
	var story struct {
		UserID string
		Log    []struct {
			Version  int
			From, To string
			Reason   string
		}
	}
	if _, err := s.api.JSON(t.Context(), http.MethodGet, "/admin/v1/reservations/"+token, s.admin, nil, &story); err != nil {
		t.Fatal(err)
	}
	// S9: reserved, decided, paid; each with its row.
	if len(story.Log) != 3 || story.Log[1].To != "committed" || story.UserID != "9201" {
		t.Errorf("story %+v", story)
	}
}

// S11, FS-051: malformed messages between good ones are parked where operators find them; a replay is harmless, and
// what was decided stays decided.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	cfg := s.app.Config()
	w := &kafka.Writer{Addr: kafka.TCP(cfg.Kafka.Brokers...), Topic: cfg.Kafka.OrdersTopic, Balancer: &kafka.Hash{}, BatchTimeout: time.Millisecond, RequiredAcks: kafka.RequireAll}
	t.Cleanup(func() { _ = w.Close() })
	mark := "not-json {{{ " + act
	for _, value := range []string{mark, ""} {
		if err := w.WriteMessages(t.Context(), kafka.Message{Key: []byte("9301"), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	u := user(t, 9301)
	if _, r := s.buy(t, u, act, "C1"); r.Status != "pending_payment" {
		t.Errorf("the good message behind the bad ones: %+v", r)
	}
	type letter struct{ ID, Value, Reason, State, Detail string }
	var mine *letter
	for range 100 {
		var page struct{ DeadLetters []letter }
		if _, err := s.api.JSON(t.Context(), http.MethodGet, "/admin/v1/dead-letters?state=parked", s.admin, nil, &page); err != nil {
			t.Fatal(err)
		}
		for _, d := range page.DeadLetters {
			if d.Value == mark {
				mine = &d
			}
		}
		if mine != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if mine == nil || mine.Reason != "malformed" {
		t.Fatalf("the dead letter is not listed: %+v", mine)
	}
	var after letter
	if _, err := s.api.JSON(t.Context(), http.MethodPost, "/admin/v1/dead-letters/"+mine.ID+"/replay", s.admin, nil, &after); err != nil || after.State != "replayed" {
		t.Errorf("replay: %+v, %v", after, err)
	}
	if _, err := s.api.JSON(t.Context(), http.MethodPost, "/admin/v1/dead-letters/"+mine.ID+"/discard", s.admin, nil, &after); err != nil || after.State != "discarded" {
		t.Errorf("discard: %+v, %v", after, err)
	}
	_, err := s.api.JSON(t.Context(), http.MethodGet, "/admin/v1/dead-letters/999999999", s.admin, nil, nil)
	wantProblem(t, "unknown dead letter", err, 404, "not_found")
	_, err = s.api.JSON(t.Context(), http.MethodGet, "/admin/v1/dead-letters?state=x", s.admin, nil, nil)
	wantProblem(t, "bad state", err, 400, "invalid_request")
	s.wantRemaining(t, act, "C1", 4)
}
