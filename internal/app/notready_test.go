package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FS-009, S26: an item whose stock key is gone answers not_ready, never sold out; nothing is marked, no key is made
// below zero; it is noticed and rebuilt, and then sells.
func TestMissingStockIsNotReady(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	u, v := user(t, 9701), user(t, 9702)
	_, r := s.buy(t, v, act, "C1")
	rdb := s.redis(t)
	key := "seckill:{" + act + "}:"
	before := rebuilds(t, s)
	token := s.token(t, u, act)
	if err := rdb.Del(t.Context(), key+"stock:C1").Err(); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.api.Buy(t.Context(), u, act, "C1", token, 1)
	if err == nil {
		t.Log("it was rebuilt before the request came") // the reconciler looks once a second
	} else {
		wantProblem(t, "missing stock", err, http.StatusServiceUnavailable, "not_ready")
		if n, _ := rdb.Exists(t.Context(), key+"user:9701").Result(); n != 0 {
			t.Error("a user was marked without a unit")
		}
	}
	status := 0
	for range 100 { // as a client does: the same token again
		if status, _, err = s.api.Buy(t.Context(), u, act, "C1", token, 1); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil || (status != 200 && status != 202) {
		t.Fatalf("after the rebuild: %d %v", status, err)
	}
	s.wantRemaining(t, act, "C1", 3)
	if after := rebuilds(t, s); after == before {
		t.Errorf("no alarm: seckill_rebuilds_total stayed %q", after)
	}
	if res, err := s.api.Me(t.Context(), v, act); err != nil || res.Result == nil || res.Result.OrderNo != r.OrderNo {
		t.Errorf("the buyer from before: %+v, %v", res, err)
	}
}

// rebuilds reads the alarm metric.
func rebuilds(t *testing.T, s *shop) string {
	t.Helper()
	res, err := http.Get("http://" + s.app.Addr("gateway") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	var lines []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "seckill_rebuilds_total") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, " ")
}
