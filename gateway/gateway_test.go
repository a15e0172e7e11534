package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"

	"seckill/internal/sale"
)

// client is HTTP over an in-memory listener.
type client struct {
	t *testing.T
	c *http.Client
}

// serve runs a gateway on fakes until the test ends.
func serve(t *testing.T, cfg Config, d Deps) *client {
	t.Helper()
	d.Metrics = prometheus.NewRegistry()
	g, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	ln := fasthttputil.NewInmemoryListener()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx, ln, 5*time.Second) }()
	c := &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 300,
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return ln.Dial() },
	}}
	t.Cleanup(func() {
		c.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return &client{t, c}
}

func (c *client) do(method, path, bearer, body string) (int, string) {
	req, err := http.NewRequest(method, "http://gateway"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.c.Do(req)
	if err != nil {
		c.t.Errorf("%s %s: %v", method, path, err)
		return 0, ""
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func (c *client) buy(user int, word string) (int, string) {
	return c.do("POST", "/v1/activities/A1/orders", fmt.Sprintf("u%d", user), fmt.Sprintf(`{"requestToken":"%d.%s.A1","commodityId":"C1"}`, user, word))
}

// FS-029: a panic in a handler costs its own request only.
func TestPanicCostsOneRequest(t *testing.T) {
	t.Parallel()
	var logged lockedBuffer
	d := fakeDeps(newFakeStock(10), &fakeQueue{})
	d.Log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := serve(t, Config{}, d)
	status, body := c.do("GET", "/v1/activities/A1/me", "u420042", "") // the fake panics
	if status != 500 || !strings.Contains(body, `"code":"internal"`) || strings.Contains(body, "bug") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := c.buy(1, "a"); status != 202 {
		t.Errorf("the next request: %d", status)
	}
	if text := logged.String(); !strings.Contains(text, "a bug in a handler") || !strings.Contains(text, "gateway.go") || strings.Contains(text, "u420042") {
		t.Errorf("the log must hold the stack and no token:\n%s", text)
	}
}

// lockedBuffer is a buffer that goroutines may share.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// FS-010: each outcome of the pre-deduct has its own answer over HTTP; none is a 500.
func TestEveryOutcomeHasItsAnswer(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[sale.ReserveOutcome]struct {
		status int
		code   string
	}{
		sale.ReserveAccepted:      {202, ""},
		sale.ReserveRepeat:        {202, ""},
		sale.ReserveMismatch:      {422, "token_mismatch"},
		sale.ReserveParticipated:  {409, "already_participated"},
		sale.ReserveSoldOut:       {409, "sold_out"},
		sale.ReserveNotStarted:    {409, "not_started"},
		sale.ReserveEnded:         {409, "ended"},
		sale.ReservePaused:        {409, "paused"},
		sale.ReserveNotReady:      {503, "not_ready"},
		sale.ReserveUnknownItem:   {404, "not_found"},
		sale.ReserveBlocked:       {403, "blocked"},
		sale.ReserveNotEligible:   {403, "not_eligible"},
		sale.ReserveRateLimited:   {429, "rate_limited"},
		sale.ReserveSaleLimited:   {429, "rate_limited"},
		sale.ReserveBadQuantity:   {400, "invalid_request"},
		sale.ReserveForeignHolder: {400, "invalid_token"},
	} {
		stock := newFakeStock(1)
		stock.outcome = outcome
		c := serve(t, Config{}, fakeDeps(stock, &fakeQueue{}))
		status, body := c.buy(1, "a")
		if status != want.status || (want.code != "" && !strings.Contains(body, `"code":"`+want.code+`"`)) {
			t.Errorf("%s: %d %s, want %d %s", outcome, status, body, want.status, want.code)
		}
		if (status == 429 || status == 503) && !strings.Contains(body, `"retryAfterMs":`) {
			t.Errorf("%s: no retryAfterMs in %s", outcome, body)
		}
	}
}

// FS-036 (its gateway part): requests that wait while a script call is in flight go together in the next; what does
// not fit the queue is shed with overloaded and touches nothing.
func TestBatchesWhatWaits(t *testing.T) {
	t.Parallel()
	stock := newFakeStock(1000)
	release := make(chan struct{})
	entered := make(chan struct{}, 100)
	stock.onCall = func() {
		entered <- struct{}{}
		<-release
	}
	c := serve(t, Config{ReserveQueue: 50, ReserveBatch: 20}, fakeDeps(stock, &fakeQueue{}))
	var mu sync.Mutex
	counts := map[int]int{}
	var wg sync.WaitGroup
	one := func(u int) {
		wg.Go(func() {
			status, _ := c.buy(u, "a")
			mu.Lock()
			defer mu.Unlock()
			counts[status]++
		})
	}
	one(1)
	<-entered // the first call is in flight
	for u := 2; u <= 101; u++ {
		one(u)
	}
	// 50 wait in the queue; the other 50 are answered at once.
	deadline := time.Now().Add(10 * time.Second)
	for {
		mu.Lock()
		shed := counts[503]
		mu.Unlock()
		if shed == 50 || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	if counts[202] != 51 || counts[503] != 50 {
		t.Errorf("answers %v, want 51 accepted and 50 overloaded", counts)
	}
	stock.mu.Lock()
	defer stock.mu.Unlock()
	if stock.units != 1000-51 {
		t.Errorf("stock %d", stock.units)
	}
	if n := len(stock.batches); n != 4 || stock.batches[1] != 20 || stock.batches[2] != 20 || stock.batches[3] != 10 {
		t.Errorf("batches %v, want 1 20 20 10", stock.batches)
	}
}

// R14, FS-017: after "sold out" the flag answers without Redis for users who surely do not take part; participants
// always reach Redis; a unit that comes back lowers the flag.
func TestSoldOutFlag(t *testing.T) {
	t.Parallel()
	stock := newFakeStock(2)
	c := serve(t, Config{CatalogRefresh: 20 * time.Millisecond}, fakeDeps(stock, &fakeQueue{}))
	for u := 1; u <= 2; u++ {
		if status, body := c.buy(u, "a"); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
	}
	waitFor(t, "the flag answers alone", func() bool {
		before := stock.reserveCalls()
		status, body := c.buy(3, "a")
		if status != 409 || !strings.Contains(body, "sold_out") {
			t.Fatalf("%d %s", status, body)
		}
		return stock.reserveCalls() == before
	})
	before := stock.reserveCalls()
	for u := 100; u < 300; u++ {
		if status, _ := c.buy(u, "a"); status != 409 {
			t.Fatalf("user %d: %d", u, status)
		}
	}
	if n := stock.reserveCalls() - before; n != 0 {
		t.Errorf("%d Redis calls for 200 users while sold out, want 0 (P2)", n)
	}
	if status, _ := c.buy(1, "a"); status != 202 {
		t.Errorf("participant's repeat: %d", status)
	}
	if status, body := c.buy(2, "b"); status != 409 || !strings.Contains(body, "already_participated") {
		t.Errorf("participant under another token: %d %s", status, body)
	}
	stock.setUnits(1)
	waitFor(t, "the returned unit sells", func() bool {
		status, _ := c.buy(3, "a")
		return status == 202
	})
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(5 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// R9, FS-006: an uncertain publish is pending; the repeat publishes again and is accepted then.
func TestUncertainPublish(t *testing.T) {
	t.Parallel()
	stock, queue := newFakeStock(1), &fakeQueue{fail: true}
	c := serve(t, Config{}, fakeDeps(stock, queue))
	status, body := c.buy(1, "a")
	if status != 503 || !strings.Contains(body, `"code":"pending"`) || !strings.Contains(body, `"resultUrl":"/v1/results/1.a.A1"`) || !strings.Contains(body, `"pollAfterMs":`) {
		t.Errorf("%d %s", status, body)
	}
	queue.mu.Lock()
	queue.fail = false
	queue.mu.Unlock()
	if status, _ := c.buy(1, "a"); status != 202 {
		t.Errorf("repeat: %d", status)
	}
	if len(queue.got) != 1 || queue.got[0].Token != "1.a.A1" || stock.units != 0 {
		t.Errorf("queue %+v, stock %d", queue.got, stock.units)
	}
}

// FS-013, FS-015: a call that may have run is pending, one that was refused whole is overloaded; neither is sold out.
func TestReserveFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code string
	}{{fmt.Errorf("x: %w", sale.ErrUncertain), "pending"}, {fmt.Errorf("x: %w", sale.ErrTransient), "overloaded"}} {
		stock := newFakeStock(1)
		stock.err = c.err
		cl := serve(t, Config{}, fakeDeps(stock, &fakeQueue{}))
		if status, body := cl.buy(1, "a"); status != 503 || !strings.Contains(body, `"code":"`+c.code+`"`) {
			t.Errorf("%v: %d %s", c.err, status, body)
		}
	}
}

// S3: past its life a token that was never used is refused.
func TestExpiredToken(t *testing.T) {
	t.Parallel()
	stock := newFakeStock(5)
	c := serve(t, Config{}, fakeDeps(stock, &fakeQueue{}))
	if status, body := c.buy(1, "expired"); status != 400 || !strings.Contains(body, "invalid_token") {
		t.Errorf("unused: %d %s", status, body)
	}
	stock.marks[2] = "2.expired.A1"
	if status, body := c.buy(2, "expired"); status != 202 {
		t.Errorf("used in time: %d %s", status, body)
	}
	if stock.reserveCalls() != 0 {
		t.Error("an expired token reached the pre-deduct")
	}
}

// FS-095: random paths and users add no metric series.
func TestMetricSeriesAreBounded(t *testing.T) {
	t.Parallel()
	d := fakeDeps(newFakeStock(5), &fakeQueue{})
	c := serve(t, Config{}, d)
	count := func() int {
		_, body := c.do("GET", "/metrics", "", "")
		return strings.Count(body, "\nseckill_requests_total{")
	}
	c.do("GET", "/x", "", "")
	count()
	before := count()
	for i := range 500 {
		c.do("GET", fmt.Sprintf("/x%d/%d", i, i), "u1", "")
	}
	if after := count(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

// S18 (back-pressure), S30: with many undecided reservations clients are told to wait longer, and above the bound orders
// are answered overloaded before stock is touched; it opens again when the backlog is gone.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	stock := newFakeStock(10)
	stock.occupied = 20_000
	c := serve(t, Config{CountRefresh: 10 * time.Millisecond, CatalogRefresh: 10 * time.Millisecond, MaxQueued: 50_000}, fakeDeps(stock, &fakeQueue{}))
	poll := func(body string) int {
		_, rest, _ := strings.Cut(body, `"pollAfterMs":`)
		n := 0
		_, _ = fmt.Sscanf(rest, "%d", &n)
		return n
	}
	waitFor(t, "the backlog is known", func() bool {
		_, body := c.buy(1, "a")
		return poll(body) >= 8000 // 2 s, times 5, less 20 %
	})
	set := func(n int64) {
		stock.mu.Lock()
		defer stock.mu.Unlock()
		stock.occupied = n
	}
	set(50_000)
	waitFor(t, "orders are turned away", func() bool {
		status, body := c.buy(2, "a")
		return status == 503 && strings.Contains(body, `"code":"overloaded"`)
	})
	before := stock.reserveCalls()
	if status, _ := c.buy(3, "a"); status != 503 || stock.reserveCalls() != before {
		t.Errorf("status %d; stock was asked", status)
	}
	set(0)
	waitFor(t, "it opens again", func() bool {
		status, _ := c.buy(2, "a")
		return status == 202
	})
}
