package pusher

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

const (
	testSale = "SALE"
	patience = 10 * time.Second // of a test for what must come
)

// world stands for Redis, the database and pub/sub, shared by the pushers of a test.
type world struct {
	mu         sync.Mutex
	activities map[string]*sale.Activity
	results    []sale.UserResult // in Redis
	live       map[string]sale.Live
	decisions  []sale.Decision // in the database
	statesErr  error
	ledgerErr  error
	stateReads int
	lookUps    int
	subs       []*bus
	manual     bool // subscriptions are confirmed by confirm only
}

func newWorld() *world {
	w := &world{activities: map[string]*sale.Activity{}, live: map[string]sale.Live{}}
	w.addSale(testSale)
	return w
}

func (w *world) addSale(id string) {
	now := time.Now()
	w.activities[id] = &sale.Activity{
		ID: id, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PayWithin: time.Minute, State: sale.StateScheduled,
	}
	w.live[id] = sale.Live{ActivityID: id, State: sale.StateOpen, Epoch: 1, Items: []sale.Remaining{{CommodityID: "C1", Units: 7}}}
}

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) ResultsOfUsers(_ context.Context, ids []string, users []int64) ([]sale.UserResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stateReads++
	var out []sale.UserResult
	for _, r := range w.results {
		if slices.Contains(ids, r.ActivityID) && slices.Contains(users, r.UserID) {
			out = append(out, r)
		}
	}
	return out, w.statesErr
}

func (w *world) Live(_ context.Context, ids []string) (map[string]sale.Live, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]sale.Live{}
	for _, id := range ids {
		out[id] = w.live[id]
	}
	return out, w.statesErr
}

func (w *world) Activity(_ context.Context, id string) (*sale.Activity, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.activities[id]; ok {
		return a, w.ledgerErr
	}
	return nil, errors.Join(sale.ErrNotFound, w.ledgerErr)
}

func (w *world) Activities(context.Context) ([]*sale.Activity, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*sale.Activity
	for _, a := range w.activities {
		out = append(out, a)
	}
	return out, w.ledgerErr
}

func (w *world) DecisionsOfUser(_ context.Context, user int64, ids []string) ([]sale.Decision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookUps++
	var out []sale.Decision
	for _, d := range w.decisions { // as the ledger: orders only
		if d.UserID == user && slices.Contains(ids, d.ActivityID) && !isRefusal(d.Status) {
			out = append(out, d)
		}
	}
	return out, w.ledgerErr
}

func (w *world) RecentRefusals(_ context.Context, ids []string, since time.Time, limit int) ([]sale.Decision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []sale.Decision
	for _, d := range w.decisions {
		if isRefusal(d.Status) && slices.Contains(ids, d.ActivityID) && !d.At.Before(since) && len(out) < limit {
			out = append(out, d)
		}
	}
	return out, w.ledgerErr
}

func isRefusal(s sale.Status) bool { return s == sale.StatusSoldOut || s == sale.StatusFailed }

// UserOf reads the tokens that tokenOf makes.
func (w *world) UserOf(jwt string) (int64, time.Time, error) {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 || parts[0] != "secret" {
		return 0, time.Time{}, errors.New("bad token")
	}
	user, err := sale.ParseUserID(parts[1])
	ms, err2 := strconv.ParseInt(parts[2], 10, 64)
	expires := time.UnixMilli(ms)
	if err != nil || err2 != nil || !time.Now().Before(expires) {
		return 0, time.Time{}, errors.New("bad token")
	}
	return user, expires, nil
}

func tokenOf(user int64, life time.Duration) string {
	return fmt.Sprintf("secret.%d.%d", user, time.Now().Add(life).UnixMilli())
}

// bus is the Subscriber of one pusher.
type bus struct {
	w *world
	h *Handler

	mu     sync.Mutex
	wanted map[int]bool
	shards map[int]bool
	sales  map[string]bool
	asked  chan int // shards as they are asked for
}

func (w *world) subscriber(h *Handler) Subscriber {
	b := &bus{w: w, h: h, wanted: map[int]bool{}, shards: map[int]bool{}, sales: map[string]bool{}, asked: make(chan int, 1000)}
	w.change(func() { w.subs = append(w.subs, b) })
	return b
}

func (b *bus) Subscribe(_ context.Context, shard int) error {
	b.mu.Lock()
	b.wanted[shard] = true
	b.mu.Unlock()
	b.asked <- shard
	if !b.w.manual {
		go b.confirm(shard)
	}
	return nil
}

// confirm is the server's word that a shard is subscribed, the first time or again.
func (b *bus) confirm(shard int) {
	b.mu.Lock()
	wanted := b.wanted[shard]
	b.shards[shard] = wanted
	b.mu.Unlock()
	if wanted {
		b.h.OnSubscribed(shard)
	}
}

// cut is the loss of the pub/sub connection.
func (b *bus) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.shards)
}

func (b *bus) Unsubscribe(_ context.Context, shard int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.shards, shard)
	delete(b.wanted, shard)
	return nil
}

func (b *bus) SubscribeLive(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sales[id] = true
	return nil
}

func (b *bus) UnsubscribeLive(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sales, id)
	return nil
}

func (b *bus) Subscribed(shard int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shards[shard]
}

func (b *bus) viewing(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sales[id]
}

func (b *bus) Close() error { return nil }

// publish tells results to every pusher that has the user's shard subscribed.
func (w *world) publish(rs ...sale.UserResult) {
	w.mu.Lock()
	subs := slices.Clone(w.subs)
	w.mu.Unlock()
	for _, b := range subs {
		for _, r := range rs {
			if shard := b.h.p.hub.ShardOf(r.UserID); b.Subscribed(shard) {
				b.h.OnResults(shard, []sale.UserResult{r})
			}
		}
	}
}

func result(user int64, token string, version int64, status sale.Status) sale.UserResult {
	return sale.UserResult{UserID: user, Result: sale.Result{
		RequestToken: token, ActivityID: testSale, CommodityID: "C1", Quantity: 1, Status: status, Version: version,
	}}
}

// logBook keeps everything that is logged.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
	loud int // records above debug
}

func (l *logBook) logger() *slog.Logger { return slog.New(l) }

// Enabled takes every level.
func (l *logBook) Enabled(context.Context, slog.Level) bool { return true }

// Handle keeps a record.
func (l *logBook) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Level > slog.LevelDebug {
		l.loud++
	}
	return slog.NewTextHandler(&l.text, &slog.HandlerOptions{Level: slog.LevelDebug}).Handle(ctx, r)
}

// WithAttrs is not used by the pusher.
func (l *logBook) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup is not used by the pusher.
func (l *logBook) WithGroup(string) slog.Handler { return l }

func (l *logBook) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logBook) loudCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loud
}

// pumpedEnv makes the tests of a process use goroutines for each socket, as where there is no poller.
const pumpedEnv = "SECKILL_TEST_PUMPED"

// running is a pusher that serves.
type running struct {
	*Pusher
	t    *testing.T
	w    *world
	bus  *bus
	addr string
	log  *logBook
	ln   *countingListener
	stop func() error
}

func start(t *testing.T, w *world, cfg Config) *running {
	t.Helper()
	return startOn(t, w, cfg, func(ln net.Listener) net.Listener { return ln })
}

// startOn starts a pusher behind a listener of the test's making.
func startOn(t *testing.T, w *world, cfg Config, behind func(net.Listener) net.Listener) *running {
	t.Helper()
	def(&cfg.DrainWindow, time.Millisecond)
	book := &logBook{}
	p, err := New(cfg, Deps{
		Subscriber: w.subscriber, States: w, Ledger: w, Users: w, Metrics: prometheus.NewRegistry(), Log: book.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(pumpedEnv) != "" {
		p.poller = nil
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := &countingListener{Listener: tcp}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, behind(ln), 5*time.Second) }()
	r := &running{Pusher: p, t: t, w: w, bus: w.subs[len(w.subs)-1], addr: tcp.Addr().String(), log: book, ln: ln}
	r.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(2 * patience):
			return errors.New("Run does not return")
		}
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if strings.Contains(book.all(), "panic") {
			t.Errorf("panic logged:\n%s", book.all())
		}
	})
	return r
}

// countingListener counts the server's side of the connections that are open.
type countingListener struct {
	net.Listener
	mu   sync.Mutex
	open int
}

type countedConn struct {
	*net.TCPConn
	once sync.Once
	done func()
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.add(1)
	return &countedConn{TCPConn: c.(*net.TCPConn), done: func() { l.add(-1) }}, nil
}

func (l *countingListener) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
}

func (l *countingListener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Close closes the connection and counts it once.
func (c *countedConn) Close() error {
	c.once.Do(c.done)
	return c.TCPConn.Close()
}

// frame is what a client got.
type frame struct {
	Type         string      `json:"type"`
	RequestToken string      `json:"requestToken"`
	ActivityID   string      `json:"activityId"`
	CommodityID  string      `json:"commodityId"`
	Status       sale.Status `json:"status"`
	State        sale.State  `json:"state"`
	Version      int64       `json:"version"`
	ServerTime   int64       `json:"serverTime"`
	Items        []struct {
		CommodityID string
		Remaining   int64
	} `json:"items"`
	raw string
}

func (f frame) String() string { return f.raw }

// client is a test's end of a socket.
type client struct {
	t      *testing.T
	conn   *websocket.Conn
	frames chan frame
	closed chan error // what ended it
}

// dialer says how a test connects.
type dialer struct {
	token    string // default: a good one
	browser  bool   // token as a subprotocol
	query    string // default: the test sale
	header   http.Header
	addr     string // default: the pusher
	compress bool
	netDial  func(network, addr string) (net.Conn, error)
	tls      *tls.Config // default: none
}

func (r *running) dial(user int64, d dialer) (*websocket.Conn, *http.Response, error) {
	if d.token == "" {
		d.token = tokenOf(user, time.Hour)
	}
	if d.query == "" {
		d.query = "activity=" + testSale
	}
	if d.addr == "" {
		d.addr = r.addr
	}
	if d.header == nil {
		d.header = http.Header{}
	}
	wd := websocket.Dialer{HandshakeTimeout: patience, EnableCompression: d.compress, NetDial: d.netDial, TLSClientConfig: d.tls}
	scheme := "ws"
	if d.tls != nil {
		scheme = "wss"
	}
	if d.browser {
		wd.Subprotocols = []string{"seckill.v1", "bearer." + d.token}
	} else if d.token != "none" {
		d.header.Set("Authorization", "Bearer "+d.token)
	}
	return wd.Dial(scheme+"://"+d.addr+"/v1/ws?"+d.query, d.header)
}

// connect opens a socket and reads it from then on.
func (r *running) connect(user int64) *client { return r.connectWith(user, dialer{}) }

func (r *running) connectWith(user int64, d dialer) *client {
	r.t.Helper()
	conn, resp, err := r.dial(user, d)
	if err != nil {
		r.t.Fatalf("connect user %d: %v (%+v)", user, err, resp)
	}
	c := &client{t: r.t, conn: conn, frames: make(chan frame, 10_000), closed: make(chan error, 1)}
	r.t.Cleanup(func() { conn.Close() })
	go c.read()
	return c
}

func (c *client) read() {
	for {
		_, data, err := c.conn.ReadMessage()
		if err != nil {
			c.closed <- err
			return
		}
		f := frame{raw: string(data)}
		if err := json.Unmarshal(data, &f); err != nil {
			c.closed <- fmt.Errorf("frame %q: %w", data, err)
			return
		}
		c.frames <- f
	}
}

// next is the next frame of a type; others are passed over.
func (c *client) next(kind string) frame {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case f := <-c.frames:
			if f.Type == kind {
				return f
			}
		case err := <-c.closed:
			c.t.Fatalf("waiting for %q: socket ended: %v", kind, err)
		case <-timeout:
			c.t.Fatalf("no %q frame within %v", kind, patience)
		}
	}
}

// untilSynced is every frame up to synced, which is the last.
func (c *client) untilSynced() []frame {
	c.t.Helper()
	var out []frame
	timeout := time.After(patience)
	for {
		select {
		case f := <-c.frames:
			out = append(out, f)
			if f.Type == "synced" {
				return out
			}
		case err := <-c.closed:
			c.t.Fatalf("waiting for synced: socket ended: %v", err)
		case <-timeout:
			c.t.Fatalf("not synced within %v, got %v", patience, out)
		}
	}
}

// end waits for the end of the socket and returns the close code, 1006 when there was none.
func (c *client) end() int {
	c.t.Helper()
	select {
	case err := <-c.closed:
		var closed *websocket.CloseError
		if errors.As(err, &closed) {
			return closed.Code
		}
		return websocket.CloseAbnormalClosure
	case <-time.After(patience):
		c.t.Fatal("socket does not end")
		return 0
	}
}

func (c *client) send(text string) {
	c.t.Helper()
	if err := c.conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// results are the request tokens of result frames with their versions.
func results(frames []frame) []string {
	var out []string
	for _, f := range frames {
		if f.Type == "result" {
			out = append(out, fmt.Sprintf("%s@%d", f.RequestToken, f.Version))
		}
	}
	return out
}

func types(frames []frame) []string {
	var out []string
	for _, f := range frames {
		out = append(out, f.Type)
	}
	return out
}

// eventually waits for a condition that nothing signals.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	resp, err := http.Get("http://" + r.addr + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// metric is the value of a line of /metrics, "" when it is not there.
func (r *running) metric(name string) string {
	r.t.Helper()
	_, text := r.get("/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
