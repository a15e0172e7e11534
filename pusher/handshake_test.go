package pusher

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
)

// problemOf checks the form of a refusal and returns its code.
func problemOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	if resp == nil {
		t.Fatal("no answer")
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p map[string]any
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q", ct)
	}
	for _, name := range []string{"type", "title", "status", "code", "detail", "traceId", "serverTime"} {
		if _, ok := p[name]; !ok {
			t.Errorf("problem without %s: %s", name, body)
		}
	}
	if p["status"] != float64(resp.StatusCode) {
		t.Errorf("status %v in the body, %d outside", p["status"], resp.StatusCode)
	}
	if resp.StatusCode == 503 || resp.StatusCode == 429 {
		if resp.Header.Get("Retry-After") == "" {
			t.Errorf("%d without Retry-After", resp.StatusCode)
		}
	}
	return fmt.Sprint(p["code"])
}

// Every refusal before the upgrade has its status and code. FS-076: no token is refused too.
func TestHandshakeRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	for _, tc := range []struct {
		name   string
		d      dialer
		status int
		code   string
	}{
		{"no token", dialer{token: "none"}, 401, "unauthenticated"},
		{"forged token", dialer{token: "forged"}, 401, "unauthenticated"},
		{"expired token", dialer{token: tokenOf(1, -time.Second)}, 401, "unauthenticated"},
		{"basic authentication", dialer{token: "none", header: http.Header{"Authorization": {"Basic " + tokenOf(1, time.Hour)}}}, 401, "unauthenticated"},
		{"token in the address", dialer{token: "none", query: "activity=SALE&token=" + tokenOf(1, time.Hour)}, 401, "unauthenticated"},
		{"no activity", dialer{query: "x=1"}, 400, "invalid_request"},
		{"malformed activity", dialer{query: "activity=a%20b"}, 400, "invalid_request"},
		{"long activity", dialer{query: "activity=" + strings.Repeat("a", 33)}, 400, "invalid_request"},
		{"broken query", dialer{query: "activity=%zz"}, 400, "invalid_request"},
		{"unknown activity", dialer{query: "activity=NONE"}, 404, "not_found"},
		{"u of another user", dialer{query: "activity=SALE&u=2"}, 403, "not_eligible"},
		{"malformed u", dialer{query: "activity=SALE&u=01"}, 400, "invalid_request"},
		{"empty u", dialer{query: "activity=SALE&u="}, 400, "invalid_request"},
		{"foreign origin", dialer{header: http.Header{"Origin": {"https://evil.example"}}}, 403, "forbidden_origin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, resp, err := r.dial(1, tc.d)
			if err == nil {
				conn.Close()
				t.Fatal("connected")
			}
			if resp == nil || resp.StatusCode != tc.status {
				t.Fatalf("%+v (%v), want %d", resp, err, tc.status)
			}
			if code := problemOf(t, resp); code != tc.code {
				t.Errorf("code %s, want %s", code, tc.code)
			}
		})
	}
	if n := r.hub.Sockets(); n != 0 || len(r.addresses.open) != 0 {
		t.Errorf("refused handshakes count: %d sockets, addresses %v", n, r.addresses.open)
	}
	r.connectWith(1, dialer{query: "activity=SALE&u=1"}).untilSynced()
}

// Plain requests get their answers too.
func TestPlainRequests(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	for _, tc := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/v1/ws?activity=SALE", 400, "invalid_request"},
		{"POST", "/v1/ws?activity=SALE", 405, "method_not_allowed"},
		{"GET", "/nothing", 404, "not_found"},
		{"POST", "/metrics", 405, "method_not_allowed"},
	} {
		req, err := http.NewRequest(tc.method, "http://"+r.addr+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if code := problemOf(t, resp); resp.StatusCode != tc.status || code != tc.code {
			t.Errorf("%s %s: %d %s, want %d %s", tc.method, tc.path, resp.StatusCode, code, tc.status, tc.code)
		}
		if tc.status == 405 && resp.Header.Get("Allow") != "GET" {
			t.Errorf("%s %s: Allow %q", tc.method, tc.path, resp.Header.Get("Allow"))
		}
		resp.Body.Close()
	}
	if code, _ := r.get("/healthz"); code != 200 {
		t.Errorf("healthz %d", code)
	}
	if code, body := r.get("/readyz"); code != 200 || !strings.HasPrefix(body, `{"ready":true,"checks":{`) {
		t.Errorf("readyz %d %s", code, body)
	}
	r.connect(1).untilSynced()
	for _, name := range []string{
		"seckill_sockets", "seckill_push_seconds_count", `seckill_push_dropped_total{reason="slow"}`,
		`seckill_push_dropped_total{reason="subscriber"}`, `seckill_push_dropped_total{reason="stale"}`,
	} {
		if r.metric(name) == "" {
			t.Errorf("no metric %s", name)
		}
	}
	if got := r.metric("seckill_sockets"); got != "1" {
		t.Errorf("seckill_sockets %s, want 1", got)
	}
}

// A browser cannot see a 401: its socket is opened and closed with 4401, and it agrees on the protocol.
func TestBrowserHandshake(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	c := r.connectWith(1, dialer{browser: true})
	c.untilSynced()
	if got := c.conn.Subprotocol(); got != "seckill.v1" {
		t.Errorf("subprotocol %q", got)
	}
	for _, token := range []string{"forged", tokenOf(1, -time.Second), "a.b.c"} {
		if code := r.connectWith(1, dialer{browser: true, token: token}).end(); code != 4401 {
			t.Errorf("token %s: closed %d, want 4401", token, code)
		}
	}
	wd := websocket.Dialer{Subprotocols: []string{"bearer." + tokenOf(1, time.Hour)}}
	if _, resp, err := wd.Dial("ws://"+r.addr+"/v1/ws?activity=SALE", nil); err == nil || problemOf(t, resp) != "invalid_request" {
		t.Errorf("a token without the protocol: %v", err)
	}
	eventually(t, "the refused sockets are gone", func() bool { return r.ln.count() <= 1 })
}

// A session that expires while the socket is open closes it with 4401.
func TestSessionExpiryCloses4401(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	c := r.connectWith(1, dialer{token: tokenOf(1, 400*time.Millisecond)})
	c.untilSynced()
	began := time.Now()
	if code := c.end(); code != 4401 {
		t.Errorf("closed %d, want 4401", code)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("closed after %v", took)
	}
}

// FS-075: who may connect by origin. Own: configured ones exactly; without configuration the host itself, over the
// scheme it was reached by or https. No Origin header is no browser.
func TestFS075_Origins(t *testing.T) {
	t.Parallel()
	shop := []string{"https://shop.example", "http://127.0.0.1:8080"}
	for _, tc := range []struct {
		origins []string
		host    string
		origin  string
		proto   string // X-Forwarded-Proto
		allowed bool
	}{
		{shop, "shop.example", "", "", true},
		{shop, "shop.example", "https://shop.example", "", true},
		{shop, "shop.example", "https://SHOP.example:443", "", true},
		{shop, "push.shop.example", "https://shop.example", "", true},
		{shop, "127.0.0.1:8081", "http://127.0.0.1:8080", "", true},
		{shop, "shop.example", "http://shop.example", "", false}, // http:// of the same host
		{shop, "shop.example", "https://shop.example:8443", "", false},
		{shop, "shop.example", "https://evil.example", "", false},
		{shop, "shop.example", "https://shop.example.evil.com", "", false},
		{shop, "shop.example", "https://evilshop.example", "", false},
		{shop, "shop.example", "https://shop.example@evil.example", "", false},
		{shop, "shop.example", "null", "", false},
		{shop, "shop.example", "file://", "", false},
		{shop, "shop.example", "https://shop.example/", "", false},
		{shop, "evil.example", "https://evil.example", "", false}, // the host alone is not enough when origins are configured
		{nil, "shop.example", "", "", true},
		{nil, "shop.example", "http://shop.example", "", true},
		{nil, "shop.example:80", "http://shop.example", "", true},
		{nil, "shop.example", "https://shop.example", "", true}, // TLS ends at a proxy
		{nil, "shop.example", "http://shop.example", "https", false},
		{nil, "shop.example", "https://shop.example", "https", true},
		{nil, "shop.example", "http://shop.example:8080", "", false},
		{nil, "shop.example", "https://evil.example", "", false},
		{nil, "shop.example", "https://shop.example.evil.com", "", false},
		{nil, "shop.example", "null", "", false},
		{nil, "shop.example", "chrome-extension://shop.example", "", false},
	} {
		o, err := newOrigins(tc.origins)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "http://"+tc.host+"/v1/ws", nil)
		if tc.origin != "" {
			r.Header.Set("Origin", tc.origin)
		}
		if tc.proto != "" {
			r.Header.Set("X-Forwarded-Proto", tc.proto)
		}
		if got := o.allow(r); got != tc.allowed {
			t.Errorf("configured %v, host %s, origin %q, proto %q: allowed %v, want %v", tc.origins, tc.host, tc.origin, tc.proto, got, tc.allowed)
		}
	}
	o, _ := newOrigins(shop)
	r := httptest.NewRequest("GET", "http://shop.example/v1/ws", nil)
	r.Header["Origin"] = []string{"https://shop.example", "https://evil.example"}
	if o.allow(r) {
		t.Error("two origins were allowed")
	}
	if _, err := newOrigins([]string{"shop.example"}); err == nil {
		t.Error("an origin without a scheme was configured")
	}
}

// FS-075 over the wire: own origin in, foreign out.
func TestFS075_OriginOverTheWire(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{Origins: []string{"http://127.0.0.1:8080"}})
	own := http.Header{"Origin": {"http://127.0.0.1:8080"}}
	r.connectWith(1, dialer{browser: true, header: own}).untilSynced()
	for _, origin := range []string{"https://evil.example", "null", "https://127.0.0.1:8080", "http://127.0.0.1:8080.evil.com", "http://" + r.addr} {
		conn, resp, err := r.dial(1, dialer{browser: true, header: http.Header{"Origin": {origin}}})
		if err == nil {
			conn.Close()
			t.Errorf("origin %s connected", origin)
			continue
		}
		if code := problemOf(t, resp); resp.StatusCode != 403 || code != "forbidden_origin" {
			t.Errorf("origin %s: %d %s", origin, resp.StatusCode, code)
		}
	}
}

// FS-077: wherever a client puts its token, and however the handshake or the socket ends, no log line and no metric
// shows it.
func TestFS077_NoTokenInLogs(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{})
	good := tokenOf(1, time.Hour)
	for _, d := range []dialer{
		{token: good}, {token: good, browser: true},
		{token: "none", query: "activity=SALE&token=" + good}, {token: "none", query: "activity=SALE;token=" + good},
		{token: good, query: "activity=NONE"}, {token: good, query: "activity=SALE&u=2"},
		{token: "secret.forged.token"}, {token: "secret.forged.token", browser: true},
		{token: good, header: http.Header{"Origin": {"https://secret.example"}}},
	} {
		conn, _, err := r.dial(1, d)
		if err == nil {
			_ = conn.WriteMessage(websocket.TextMessage, []byte("secret."))
			for err == nil {
				_, _, err = conn.ReadMessage()
			}
			conn.Close()
		}
	}
	w.change(func() { w.ledgerErr, w.statesErr = io.ErrUnexpectedEOF, io.ErrUnexpectedEOF })
	if conn, _, err := r.dial(1, dialer{token: good, query: "activity=NEW"}); err == nil {
		conn.Close()
	}
	_, text := r.get("/metrics")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if r.log.all() == "" {
		t.Error("nothing was logged at all")
	}
	for _, where := range []string{r.log.all(), text} {
		if strings.Contains(where, "secret") {
			t.Errorf("a token shows in:\n%s", where)
		}
	}
}

// Ten sockets a user, and so many an address; a closed one makes room.
func TestSocketLimits(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{MaxSocketsPerUser: 2, MaxSocketsPerAddress: 4})
	a := r.connect(1)
	a.untilSynced()
	r.connect(1).untilSynced()
	if code := r.connect(1).end(); code != 4429 {
		t.Errorf("third socket of a user: closed %d, want 4429", code)
	}
	eventually(t, "the refused one is gone", func() bool { return r.ln.count() <= 2 })
	r.connect(2).untilSynced()
	r.connect(3).untilSynced()
	if code := r.connectWith(4, dialer{browser: true}).end(); code != 4429 {
		t.Errorf("fifth socket of an address, browser: closed %d, want 4429", code)
	}
	_, resp, err := r.dial(4, dialer{})
	if err == nil || resp.StatusCode != 429 || problemOf(t, resp) != "rate_limited" {
		t.Errorf("fifth socket of an address, app: %v", err)
	}
	a.conn.Close()
	eventually(t, "there is room", func() bool { return r.hub.Sockets() == 3 })
	eventually(t, "the address has room", func() bool {
		conn, _, err := r.dial(4, dialer{})
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// The default bound of sockets a user is ten, and the eleventh is refused.
func TestDefaultSocketsPerUser(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	for range 10 {
		r.connect(1).untilSynced()
	}
	if code := r.connect(1).end(); code != 4429 {
		t.Errorf("eleventh socket: closed %d, want 4429", code)
	}
}

// FS-094: more sockets than the process can hold are refused with 503, and it serves on.
func TestFS094_MaxSockets(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{MaxSockets: 2})
	a := r.connect(1)
	a.untilSynced()
	r.connect(2).untilSynced()
	_, resp, err := r.dial(3, dialer{})
	if err == nil || resp.StatusCode != 503 || problemOf(t, resp) != "overloaded" {
		t.Errorf("third socket: %v %+v", err, resp)
	}
	a.conn.Close()
	eventually(t, "there is room", func() bool { return r.hub.Sockets() == 1 })
	r.connect(3).untilSynced()
}

// FS-094: the bound follows the descriptor limit, and a low one is warned of.
func TestFS094_DescriptorLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{256: 128, 1024: 768, 20_000: 19_000, 1 << 20: 996_148} {
		if got := roomFor(limit); got != want {
			t.Errorf("limit %d: room for %d, want %d", limit, got, want)
		}
	}
	book := &logBook{}
	limit, known := descriptorLimit()
	if !known {
		t.Skip("this system has no descriptor limit that can be read")
	}
	if got := maxSockets(3, book.logger()); got != 3 || book.loudCount() != 0 {
		t.Errorf("3 configured: %d, log %s", got, book.all())
	}
	if got := maxSockets(limit+1, book.logger()); got != roomFor(limit) || book.loudCount() != 1 {
		t.Errorf("too many configured: %d of %d, log %s", got, limit, book.all())
	}
}

// An address behind trusted proxies is the last one that none of them has; nobody else can choose an address.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	a, err := newAddresses(1, []string{"10.0.0.0/8", "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ remote, forwarded, want string }{
		{"198.51.100.7:1", "", "198.51.100.7"},
		{"198.51.100.7:1", "203.0.113.1", "198.51.100.7"},
		{"10.1.2.3:1", "203.0.113.1", "203.0.113.1"},
		{"10.1.2.3:1", "6.6.6.6, 203.0.113.1, 192.0.2.1", "203.0.113.1"},
		{"10.1.2.3:1", "6.6.6.6, 203.0.113.1", "203.0.113.1"},
		{"10.1.2.3:1", "nonsense", "10.1.2.3"},
		{"10.1.2.3:1", "", "10.1.2.3"},
		{"[2001:db8:1:2:3:4:5:6]:1", "", "2001:db8:1:2::"},
		{"[::ffff:198.51.100.7]:1", "", "198.51.100.7"},
	} {
		r := httptest.NewRequest("GET", "/v1/ws", nil)
		r.RemoteAddr = tc.remote
		if tc.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tc.forwarded)
		}
		if got := a.of(r).String(); got != tc.want {
			t.Errorf("peer %s, forwarded %q: %s, want %s", tc.remote, tc.forwarded, got, tc.want)
		}
	}
	if _, err := newAddresses(1, []string{"proxy"}); err == nil {
		t.Error("a proxy without an address was configured")
	}
}

// A connection that does not finish its handshake in time is closed, and too large headers are refused.
func TestHandshakeDeadlineAndHeaderSize(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{HandshakeTimeout: 100 * time.Millisecond, MaxHeaderBytes: 4 << 10})
	conn := rawDial(t, r.addr)
	fmt.Fprintf(conn, "GET /v1/ws?activity=SALE HTTP/1.1\r\nHost: x\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("a slow handshake is not closed: %v", err)
	}
	_, resp, err := r.dial(1, dialer{header: http.Header{"X-Large": {strings.Repeat("a", 16<<10)}}})
	if err == nil || resp == nil || resp.StatusCode != 431 {
		t.Errorf("large headers: %v", err)
	}
}

// Bounds that contradict one another are refused at the start.
func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for _, cfg := range []Config{
		{PingEvery: 25 * time.Second, PeerTimeout: 30 * time.Second}, {Origins: []string{"nonsense"}}, {TrustedProxies: []string{"x"}},
	} {
		if _, err := New(cfg, Deps{Subscriber: w.subscriber, States: w, Ledger: w, Users: w, Metrics: prometheus.NewRegistry()}); err == nil {
			t.Errorf("accepted %+v", cfg)
		}
	}
	if got := len(loopsOf(&Config{Loops: 1 << 30, Shards: 16})); got != 16 {
		t.Errorf("%d loops for 16 shards", got)
	}
	if c := (Config{}).WithDefaults(); c.PeerTimeout > time.Minute || c.PeerTimeout < 2*c.PingEvery || c.PingEvery != 25*time.Second {
		t.Errorf("a dead peer is gone after %v with pings every %v; the contract says within 60 s, pings every 25 s", c.PeerTimeout, c.PingEvery)
	}
}
