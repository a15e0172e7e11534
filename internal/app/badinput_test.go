package app_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/apiclient"
	"seckill/internal/app"
)

// send makes one request with these headers and returns the status and the problem's code.
func send(t *testing.T, method, path, body string, header map[string]string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+theShop.app.Addr(app.RoleGateway)+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := theShop.api.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	theShop.api.Observe(req, res.StatusCode, res.Header, text)
	_, rest, _ := strings.Cut(string(text), `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return res.StatusCode, code, res.Header
}

// Every route refuses what is malformed, oversized, out of range or not the caller's, with its stable code
// (FS-022, FS-035, FS-076).
func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	u := user(t, 6001)
	token := s.token(t, u, act)
	auth := map[string]string{"Authorization": "Bearer " + u}
	jsonAuth := map[string]string{"Authorization": "Bearer " + u, "Content-Type": "application/json"}
	admin := map[string]string{"Authorization": "Bearer " + s.admin, "Content-Type": "application/json"}
	with := func(base map[string]string, k, v string) map[string]string {
		m := map[string]string{k: v}
		for key, val := range base {
			if key != k {
				m[key] = val
			}
		}
		return m
	}
	orders := "/v1/activities/" + act + "/orders"
	good := fmt.Sprintf(`{"requestToken":%q,"commodityId":"C1"}`, token)
	for _, c := range []struct {
		name, method, path, body string
		header                   map[string]string
		status                   int
		code                     string
	}{
		{"no such path", "GET", "/v1/nothing", "", nil, 404, "not_found"},
		{"no such path 2", "POST", "/v1/activities/x/y/z", "", nil, 404, "not_found"},
		{"GET on orders", "GET", orders, "", auth, 405, "method_not_allowed"},
		{"HEAD on orders", "HEAD", orders, "", auth, 405, ""},
		{"PUT on orders", "PUT", orders, "", auth, 405, "method_not_allowed"},
		{"no token", "POST", orders, good, map[string]string{"Content-Type": "application/json"}, 401, "unauthenticated"},
		{"bad token", "POST", orders, good, with(jsonAuth, "Authorization", "Bearer x.y.z"), 401, "unauthenticated"},
		{"basic auth", "POST", orders, good, with(jsonAuth, "Authorization", "Basic abc"), 401, "unauthenticated"},
		{"form post", "POST", orders, "requestToken=x", with(jsonAuth, "Content-Type", "application/x-www-form-urlencoded"), 415, "unsupported_media_type"},
		{"cross-site form", "POST", orders, "requestToken=x", map[string]string{"Origin": "https://evil.example", "Cookie": "s=1", "Content-Type": "application/x-www-form-urlencoded"}, 403, "forbidden_origin"},
		{"null origin", "POST", orders, good, with(jsonAuth, "Origin", "null"), 403, "forbidden_origin"},
		{"no body", "POST", orders, "", jsonAuth, 400, "invalid_request"},
		{"negative quantity", "POST", orders, strings.Replace(good, "}", `,"quantity":-5}`, 1), jsonAuth, 400, "invalid_request"},
		{"zero quantity", "POST", orders, strings.Replace(good, "}", `,"quantity":0}`, 1), jsonAuth, 400, "invalid_request"},
		{"above maxPerUser", "POST", orders, strings.Replace(good, "}", `,"quantity":3}`, 1), jsonAuth, 400, "invalid_request"},
		{"unknown member", "POST", orders, strings.Replace(good, "}", `,"price":"0.01"}`, 1), jsonAuth, 400, "invalid_request"},
		{"unknown commodity", "POST", orders, strings.Replace(good, `"commodityId":"C1"`, `"commodityId":"C9"`, 1), jsonAuth, 404, "not_found"},
		{"unknown activity", "POST", "/v1/activities/NOPE/orders", good, jsonAuth, 400, "invalid_token"},
		{"forged token", "POST", orders, strings.Replace(good, token[:4], "AAAA", 1), jsonAuth, 400, "invalid_token"},
		{"body too large", "POST", orders, strings.Replace(good, "}", `,"x":"`+strings.Repeat("y", 9000)+`"}`, 1), jsonAuth, 413, "body_too_large"},
		{"headers too large", "GET", "/v1/activities", "", map[string]string{"Cookie": strings.Repeat("c", 64<<10)}, 431, "headers_too_large"},
		{"token for unknown sale", "POST", "/v1/activities/NOPE/request-token", "", auth, 404, "not_found"},
		{"token for bad id", "POST", "/v1/activities/a%20b/request-token", "", auth, 404, "not_found"},
		{"token with body", "POST", "/v1/activities/" + act + "/request-token", `{"x":1}`, jsonAuth, 400, "invalid_request"},
		{"unknown activity read", "GET", "/v1/activities/NOPE", "", nil, 404, "not_found"},
		{"unused result", "GET", "/v1/results/" + s.token(t, u, act), "", auth, 404, "not_found"},
		{"malformed result", "GET", "/v1/results/abc", "", auth, 404, "not_found"},
		{"wait too long", "GET", "/v1/results/" + token + "?wait=31s", "", auth, 400, "invalid_request"},
		{"wait no duration", "GET", "/v1/results/" + token + "?wait=soon", "", auth, 400, "invalid_request"},
		{"version negative", "GET", "/v1/results/" + token + "?version=-1", "", auth, 400, "invalid_request"},
		{"limit 0", "GET", "/v1/orders?limit=0", "", auth, 400, "invalid_request"},
		{"limit 101", "GET", "/v1/orders?limit=101", "", auth, 400, "invalid_request"},
		{"limit word", "GET", "/v1/orders?limit=x", "", auth, 400, "invalid_request"},
		{"bad cursor", "GET", "/v1/orders?cursor=%00zz", "", auth, 400, "invalid_request"},
		{"order number", "GET", "/v1/orders/12x", "", auth, 404, "not_found"},
		{"order unknown", "GET", "/v1/orders/12345678901", "", auth, 404, "not_found"},
		{"pay unknown", "POST", "/v1/orders/12345678901/pay", "", auth, 404, "not_found"},
		{"me unknown", "GET", "/v1/activities/NOPE/me", "", auth, 404, "not_found"},
		{"login no id", "POST", "/demo/login", `{}`, map[string]string{"Content-Type": "application/json"}, 400, "invalid_request"},
		{"login number", "POST", "/demo/login", `{"userId":42}`, map[string]string{"Content-Type": "application/json"}, 400, "invalid_request"},
		{"login zero", "POST", "/demo/login", `{"userId":"0"}`, map[string]string{"Content-Type": "application/json"}, 400, "invalid_request"},
		{"login +1", "POST", "/demo/login", `{"userId":"+1"}`, map[string]string{"Content-Type": "application/json"}, 400, "invalid_request"},
		{"login too big", "POST", "/demo/login", `{"userId":"9223372036854775808"}`, map[string]string{"Content-Type": "application/json"}, 400, "invalid_request"},
		{"admin no token", "GET", "/admin/v1/activities", "", nil, 401, "unauthenticated"},
		{"admin user token", "GET", "/admin/v1/activities", "", auth, 401, "unauthenticated"},
		{"admin create nothing", "POST", "/admin/v1/activities", `{}`, admin, 400, "invalid_request"},
		{"admin create bad id", "POST", "/admin/v1/activities", `{"activityId":"a b","title":"x","startsAt":1,"endsAt":2,"items":[]}`, admin, 400, "invalid_request"},
		{"admin create taken", "POST", "/admin/v1/activities", fmt.Sprintf(`{"activityId":%q,"title":"x","startsAt":1,"endsAt":2,"items":[{"commodityId":"C","title":"t","price":"1.00","total":1}]}`, act), admin, 400, "invalid_request"},
		{"admin unknown", "POST", "/admin/v1/activities/NOPE/open", "", admin, 404, "not_found"},
		{"admin list bad user", "PUT", "/admin/v1/activities/" + act + "/blocked/x", "", admin, 400, "invalid_request"},
		{"post on page", "POST", "/", "", nil, 405, "method_not_allowed"},
	} {
		status, code, header := send(t, c.method, c.path, c.body, c.header)
		if status != c.status || code != c.code {
			t.Errorf("%s: %d %s, want %d %s", c.name, status, code, c.status, c.code)
		}
		if cc := header.Get("Cache-Control"); cc != "no-store" {
			t.Errorf("%s: Cache-Control %q (FS-092)", c.name, cc)
		}
	}
	s.wantRemaining(t, act, "C1", 5)
	// FS-022: nothing of a refused quantity reaches Redis, not even the limiter.
	quiet := user(t, 6002)
	for _, q := range []string{"-5", "-1", "0", "null", `"1"`} {
		status, code, _ := send(t, "POST", orders, fmt.Sprintf(`{"requestToken":"x.%s","commodityId":"C1","quantity":%s}`, act, q),
			map[string]string{"Authorization": "Bearer " + quiet, "Content-Type": "application/json"})
		if status != 400 || code != "invalid_request" {
			t.Errorf("quantity %s: %d %s", q, status, code)
		}
	}
	rdb := s.redis(t)
	if n, err := rdb.Exists(t.Context(), "seckill:{"+act+"}:rate:6002", "seckill:{"+act+"}:user:6002").Result(); err != nil || n != 0 {
		t.Errorf("%d keys of the user exist after refused quantities, %v", n, err)
	}
	// The token is still good after all these refusals.
	if status, _, err := s.api.Buy(t.Context(), u, act, "C1", token, 1); err != nil || status != 202 {
		t.Errorf("the good order after the bad ones: %d, %v", status, err)
	}
}

// FS-027: cookies up to the documented size do no harm.
func TestLargeCookies(t *testing.T) {
	t.Parallel()
	status, _, _ := send(t, "GET", "/v1/activities", "", map[string]string{"Cookie": strings.Repeat("c", 6<<10)})
	if status != 200 {
		t.Errorf("6 KB of cookies: %d", status)
	}
}

// FS-028: a request with two lengths is refused and the connection closed; what hides in its body never runs.
func TestAmbiguousFraming(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	u := user(t, 6101)
	inner := fmt.Sprintf("POST /v1/activities/%s/request-token HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\n\r\n", act, u)
	for name, head := range map[string]string{
		"CL then TE": fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", len(inner)+5),
		"TE then CL": fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n", len(inner)+5),
		"two CLs":    fmt.Sprintf("Content-Length: 5\r\nContent-Length: %d\r\n", len(inner)+5),
	} {
		conn, err := net.Dial("tcp", s.app.Addr(app.RoleGateway))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(8 * time.Second))
		_, _ = fmt.Fprintf(conn, "POST /v1/activities/%s/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n0\r\n\r\n%s", act, head, inner)
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if bytes.Contains(answer, []byte(`"expiresAt"`)) {
			t.Errorf("%s: the inner request ran: %.300q", name, answer)
		}
		if !bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) {
			t.Errorf("%s: answered %.80q, want 4xx", name, answer)
		}
	}
}

// FS-026: clients that declare a large body and trickle it are refused at once, and others are served meanwhile.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	s := theShop
	var conns []net.Conn
	for range 200 {
		conn, err := net.Dial("tcp", s.app.Addr(app.RoleGateway))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprint(conn, "POST /v1/activities/A/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4194304\r\n\r\n{")
		conns = append(conns, conn)
	}
	act := s.openSale(t, item("C1", 5))
	if _, r := s.buy(t, user(t, 6201), act, "C1"); r.Status != "pending_payment" {
		t.Errorf("a normal buy: %+v", r)
	}
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Fatalf("slow client: %v %v", res, err)
		}
		_ = res.Body.Close()
		_ = conn.Close()
	}
}

// FS-024, S8: many connections at once; every user gets the own token, item and order. Run under the race detector.
func TestNoMixUps(t *testing.T) {
	t.Parallel()
	s := theShop
	users := 2000
	if testing.Short() {
		users = 300
	}
	act := s.openSale(t, item("C1", 5000), item("C2", 5000))
	var wg sync.WaitGroup
	next := make(chan int64)
	for range 64 {
		wg.Go(func() {
			for id := range next {
				buyOne(t, s, act, id)
			}
		})
	}
	for i := range users {
		next <- int64(7_000_000_000_000_000 + i)
	}
	close(next)
	wg.Wait()
}

func buyOne(t *testing.T, s *shop, act string, id int64) {
	bearer := user(t, id)
	commodity := fmt.Sprintf("C%d", 1+id%2)
	token, err := s.api.RequestToken(t.Context(), bearer, act)
	if err != nil {
		t.Errorf("user %d: %v", id, err)
		return
	}
	if _, r, err := s.api.Buy(t.Context(), bearer, act, commodity, token, 1); err != nil || r.RequestToken != token || r.CommodityID != commodity {
		t.Errorf("user %d: %+v, %v", id, r, err)
		return
	}
	var r apiclient.Result
	for range 20 {
		if r, err = s.api.Result(t.Context(), bearer, token, 5*time.Second); err == nil && r.Status != "processing" {
			break
		}
	}
	orders, _, oerr := s.api.Orders(t.Context(), bearer, 10, "")
	if err != nil || oerr != nil || len(orders) != 1 || orders[0].RequestToken != token || orders[0].CommodityID != commodity || orders[0].OrderNo != r.OrderNo {
		t.Errorf("user %d: result %+v %v, orders %+v %v", id, r, err, orders, oerr)
	}
}

// A port in use is told with its number and the flag that changes it.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Gateway.Addr = theShop.app.Addr(app.RoleGateway)
	a, err := app.New(cfg, app.AllRoles(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	err = a.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), cfg.Gateway.Addr) || !strings.Contains(err.Error(), "--gateway-addr") {
		t.Errorf("start on a taken port: %v", err)
	}
}
