package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/apiclient"
	"seckill/internal/app"
	"seckill/internal/auth"
	"seckill/internal/contract"
)

// shop is one running process with all roles on embedded back ends, shared by the tests of this package.
type shop struct {
	app   *app.App
	api   *apiclient.Client
	admin string
}

var theShop *shop //nolint:gochecknoglobals // started once for the package, see TestMain

const (
	jwtSecret     = "a secret of the tests, 32 bytes.."
	adminPass     = "an admin token of the tests"
	paymentSecret = "a payment secret of the tests"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	cfg := testConfig()
	a, err := app.New(cfg, app.AllRoles(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err == nil {
		err = a.Start(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		return 1
	}
	c, err := contract.Load()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var broken atomic.Int64
	theShop = &shop{app: a, api: apiclient.New("http://"+a.Addr(app.RoleGateway), 200), admin: adminPass}
	theShop.api.Observe = func(req *http.Request, status int, header http.Header, body []byte) {
		if err := c.Check(req, status, header, body); err != nil && broken.Add(1) <= 10 {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	code := m.Run()
	if n := broken.Load(); n > 0 {
		fmt.Fprintln(os.Stderr, n, "answers broke the contract")
		code = 1
	}
	if err := a.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop:", err)
		return 1
	}
	return code
}

func testConfig() app.Config {
	cfg := app.Defaults()
	cfg.Gateway.Addr, cfg.Pusher.Addr, cfg.Consumer.Addr, cfg.Reconciler.Addr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Auth.JWTSecret, cfg.Auth.AdminToken, cfg.Auth.PaymentSecret = jwtSecret, adminPass, paymentSecret
	cfg.Limits.UserPerSecond, cfg.Gateway.ReadsPerSecond = 200, 500
	return cfg
}

var lastID atomic.Int64 //nolint:gochecknoglobals // makes ids of tests unique

// uniqueID is an activity id that no other test uses.
func uniqueID() string { return fmt.Sprintf("T%d-%d", time.Now().UnixMilli()%1e9, lastID.Add(1)) }

// user signs a token.
func user(t *testing.T, id int64) string {
	t.Helper()
	token, err := auth.SignHS256([]byte(jwtSecret), id, "", "", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// openSale creates a sale of these items that is open now.
func (s *shop) openSale(t *testing.T, items ...apiclient.SaleItem) string {
	t.Helper()
	id := uniqueID()
	s.create(t, apiclient.Sale{ActivityID: id, Title: "Test", StartsAt: time.Now().Add(-time.Second).UnixMilli(),
		EndsAt: time.Now().Add(time.Hour).UnixMilli(), Items: items})
	if _, err := s.api.Admin(t.Context(), s.admin, id, "warm-up", nil); err != nil {
		t.Fatalf("warm up: %v", err)
	}
	return id
}

func (s *shop) create(t *testing.T, sale apiclient.Sale) {
	t.Helper()
	if _, err := s.api.Admin(t.Context(), s.admin, "", "", sale); err != nil {
		t.Fatalf("create: %v", err)
	}
}

func item(id string, total int64) apiclient.SaleItem {
	return apiclient.SaleItem{CommodityID: id, Title: "Item " + id, Price: "19.99", Total: total, MaxPerUser: 2}
}

// token gets a request token.
func (s *shop) token(t *testing.T, bearer, activity string) string {
	t.Helper()
	token, err := s.api.RequestToken(t.Context(), bearer, activity)
	if err != nil {
		t.Fatalf("request token: %v", err)
	}
	return token
}

// buy gets a token and buys one unit, and returns the token and the decided result.
func (s *shop) buy(t *testing.T, bearer, activity, commodity string) (string, apiclient.Result) {
	t.Helper()
	token := s.token(t, bearer, activity)
	status, _, err := s.api.Buy(t.Context(), bearer, activity, commodity, token, 1)
	if err != nil || status != http.StatusAccepted {
		t.Fatalf("buy: status %d, %v", status, err)
	}
	r, err := s.api.Result(t.Context(), bearer, token, 10*time.Second)
	if err != nil {
		t.Fatalf("result: %v", err)
	}
	return token, r
}

// wantProblem fails unless err is a problem of this status and code.
func wantProblem(t *testing.T, what string, err error, status int, code string) *apiclient.Problem {
	t.Helper()
	var p *apiclient.Problem
	if !errors.As(err, &p) || p.Status != status || p.Code != code {
		t.Errorf("%s: got %v, want %d %s", what, err, status, code)
		return &apiclient.Problem{}
	}
	if p.TraceID == "" || p.ServerTime == 0 || p.Detail == "" {
		t.Errorf("%s: problem is not complete: %+v", what, p)
	}
	if status == 503 || status == 429 {
		if p.RetryAfterMs <= 0 {
			t.Errorf("%s: no retryAfterMs", what)
		}
	}
	return p
}

// S6, S7, S14, S30: one purchase from token to order, by polling.
func TestOnePurchase(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	u := user(t, 738529527931269425) // FS-023: 64 bits survive every hop
	token, r := s.buy(t, u, act, "C1")
	if r.Status != "pending_payment" || r.Version != 1 || r.PayBefore == 0 || r.RequestToken != token || r.OrderNo == "" {
		t.Fatalf("result %+v", r)
	}
	// The repeat after the decision tells the same (S3).
	status, again, err := s.api.Buy(t.Context(), u, act, "C1", token, 1)
	if err != nil || status != http.StatusOK || again.OrderNo != r.OrderNo {
		t.Errorf("repeat: %d %+v %v", status, again, err)
	}
	orders, _, err := s.api.Orders(t.Context(), u, 10, "")
	if err != nil || len(orders) != 1 || orders[0].OrderNo != r.OrderNo || orders[0].PayAmount != "19.99" {
		t.Errorf("orders %+v, %v", orders, err)
	}
	me, err := s.api.Me(t.Context(), u, act)
	if err != nil || me.Result == nil || me.Result.OrderNo != r.OrderNo || me.State != "open" {
		t.Errorf("me %+v, %v", me, err)
	}
	if n := len(r.OrderNo); n < 3 || r.OrderNo[n-2:] != fmt.Sprintf("%02d", int64(738529527931269425)%16) {
		t.Errorf("S15: order number %s does not end with the user's table", r.OrderNo)
	}
	s.wantRemaining(t, act, "C1", 4)
}

// wantRemaining waits until the sale shows this stock.
func (s *shop) wantRemaining(t *testing.T, act, commodity string, want int64) {
	t.Helper()
	var last apiclient.Activity
	for range 100 {
		a, err := s.api.Activity(t.Context(), act)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range a.Items {
			if it.CommodityID == commodity && it.Remaining == want {
				return
			}
		}
		last = a
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("remaining of %s is not %d: %+v", commodity, want, last)
}

// FS-003: repeat clicks of a user who has bought cost nothing, and name the first token.
func TestRepeatClicksKeepStock(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	a := user(t, 1001)
	first, _ := s.buy(t, a, act, "C1")
	for range 20 {
		_, _, err := s.api.Buy(t.Context(), a, act, "C1", s.token(t, a, act), 1)
		if p := wantProblem(t, "repeat click", err, 409, "already_participated"); p.RequestToken != first {
			t.Fatalf("first token %q, want %q", p.RequestToken, first)
		}
	}
	for u := int64(1002); u < 1006; u++ {
		if _, r := s.buy(t, user(t, u), act, "C1"); r.Status != "pending_payment" {
			t.Errorf("user %d: %+v", u, r)
		}
	}
	_, _, err := s.api.Buy(t.Context(), user(t, 1006), act, "C1", s.token(t, user(t, 1006), act), 1)
	wantProblem(t, "sixth user", err, 409, "sold_out")
	// A participant is never told sold out by the local flag (R14).
	time.Sleep(400 * time.Millisecond)
	_, _, err = s.api.Buy(t.Context(), a, act, "C1", s.token(t, a, act), 1)
	wantProblem(t, "participant after sold out", err, 409, "already_participated")
	status, r, err := s.api.Buy(t.Context(), a, act, "C1", first, 1)
	if err != nil || status != 200 || r.Status != "pending_payment" {
		t.Errorf("participant's own token after sold out: %d %+v %v", status, r, err)
	}
}

// FS-019, FS-020: a token is bound to its body, its user and its sale.
func TestTokenIsBound(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5), item("C2", 5))
	other := s.openSale(t, item("C1", 5))
	a, b := user(t, 2001), user(t, 2002)
	token, _ := s.buy(t, a, act, "C1")
	_, _, err := s.api.Buy(t.Context(), a, act, "C2", token, 1)
	wantProblem(t, "other item", err, 422, "token_mismatch")
	_, _, err = s.api.Buy(t.Context(), a, act, "C1", token, 2)
	wantProblem(t, "other quantity", err, 422, "token_mismatch")
	_, _, err = s.api.Buy(t.Context(), b, act, "C1", token, 1)
	wantProblem(t, "other user", err, 400, "invalid_token")
	_, _, err = s.api.Buy(t.Context(), a, other, "C1", token, 1)
	wantProblem(t, "other sale", err, 400, "invalid_token")
	_, _, err = s.api.Buy(t.Context(), "", act, "C1", token, 1)
	wantProblem(t, "nobody", err, 401, "unauthenticated")
	_, err = s.api.Result(t.Context(), b, token, 0)
	wantProblem(t, "FS-076 other user's result", err, 404, "not_found")
	orders, _, err := s.api.Orders(t.Context(), a, 10, "")
	if err != nil || len(orders) != 1 {
		t.Fatalf("orders %v, %v", orders, err)
	}
	_, err = s.api.JSON(t.Context(), "GET", "/v1/orders/"+orders[0].OrderNo, b, nil, nil)
	wantProblem(t, "FS-076 other user's order", err, 404, "not_found")
	_, err = s.api.ChangeOrder(t.Context(), b, orders[0].OrderNo, "cancel")
	wantProblem(t, "FS-076 cancel other user's order", err, 404, "not_found")
}

// S23 (the part of it without deadlines), S24, R5: pay and cancel, each told with a higher version; a cancelled unit
// comes back once and sells again; the participation stays (R18).
func TestPayAndCancel(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 1))
	a, b := user(t, 3001), user(t, 3002)
	token, r := s.buy(t, a, act, "C1")
	s.wantRemaining(t, act, "C1", 0)
	o, err := s.api.ChangeOrder(t.Context(), a, r.OrderNo, "cancel")
	if err != nil || o.Status != "cancelled" || o.Version != 2 || o.ClosedAt == 0 {
		t.Fatalf("cancel: %+v, %v", o, err)
	}
	again, err := s.api.ChangeOrder(t.Context(), a, r.OrderNo, "cancel")
	if err != nil || again.Version != 2 {
		t.Errorf("repeated cancel: %+v, %v", again, err)
	}
	_, err = s.api.ChangeOrder(t.Context(), a, r.OrderNo, "pay")
	if p := wantProblem(t, "pay a cancelled order", err, 409, "wrong_status"); p.OrderStatus != "cancelled" {
		t.Errorf("status %q", p.OrderStatus)
	}
	res, err := s.api.Result(t.Context(), a, token, 0)
	if err != nil || res.Status != "cancelled" || res.Reason != "user" || res.Version != 2 {
		t.Errorf("result after cancel: %+v, %v", res, err)
	}
	s.wantRemaining(t, act, "C1", 1)
	_, _, err = s.api.Buy(t.Context(), a, act, "C1", s.token(t, a, act), 1)
	wantProblem(t, "second participation", err, 409, "already_participated")
	_, r2 := s.buy(t, b, act, "C1")
	paid, err := s.api.ChangeOrder(t.Context(), b, r2.OrderNo, "pay")
	if err != nil || paid.Status != "paid" || paid.PaidAt == 0 {
		t.Fatalf("pay: %+v, %v", paid, err)
	}
	_, err = s.api.ChangeOrder(t.Context(), b, r2.OrderNo, "cancel")
	wantProblem(t, "cancel a paid order", err, 409, "wrong_status")
	s.wantRemaining(t, act, "C1", 0)
}

// S1: the window, the lists, and the states an operator sets are checked before any stock moves (FS-033).
func TestWindowAndLists(t *testing.T) {
	t.Parallel()
	s := theShop
	id := uniqueID()
	starts := time.Now().Add(time.Hour)
	s.create(t, apiclient.Sale{ActivityID: id, Title: "Later", StartsAt: starts.UnixMilli(), EndsAt: starts.Add(time.Hour).UnixMilli(),
		AllowList: true, Items: []apiclient.SaleItem{item("C1", 5)}})
	a := user(t, 4001)
	if _, err := s.api.RequestToken(t.Context(), a, id); err == nil {
		t.Error("a draft gave a request token")
	}
	if _, err := s.api.Admin(t.Context(), s.admin, id, "warm-up", nil); err != nil {
		t.Fatal(err)
	}
	token := s.token(t, a, id)
	_, _, err := s.api.Buy(t.Context(), a, id, "C1", token, 1)
	if p := wantProblem(t, "before the start", err, 409, "not_started"); p.StartsAt != starts.UnixMilli() {
		t.Errorf("startsAt %d, want %d", p.StartsAt, starts.UnixMilli())
	}
	if _, err := s.api.Admin(t.Context(), s.admin, id, "open", nil); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.api.Buy(t.Context(), a, id, "C1", token, 1)
	wantProblem(t, "not on the allow-list", err, 403, "not_eligible")
	list := func(method, list string, u int64) {
		t.Helper()
		if _, err := s.api.JSON(t.Context(), method, fmt.Sprintf("/admin/v1/activities/%s/%s/%d", id, list, u), s.admin, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	list("PUT", "eligible", 4001)
	list("PUT", "blocked", 4001)
	_, _, err = s.api.Buy(t.Context(), a, id, "C1", token, 1)
	wantProblem(t, "blocked", err, 403, "blocked")
	list("DELETE", "blocked", 4001)
	if _, err := s.api.Admin(t.Context(), s.admin, id, "pause", nil); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.api.Buy(t.Context(), a, id, "C1", token, 1)
	wantProblem(t, "paused", err, 409, "paused")
	if _, err := s.api.Admin(t.Context(), s.admin, id, "resume", nil); err != nil {
		t.Fatal(err)
	}
	// The refusals did not use up the token.
	if status, _, err := s.api.Buy(t.Context(), a, id, "C1", token, 1); err != nil || status != 202 {
		t.Fatalf("after resume: %d %v", status, err)
	}
	if act, err := s.api.Admin(t.Context(), s.admin, id, "end", nil); err != nil || act.State != "ended" {
		t.Fatalf("end: %+v %v", act, err)
	}
	list("PUT", "eligible", 4002)
	b := user(t, 4002)
	if _, err := s.api.RequestToken(t.Context(), b, id); err == nil {
		t.Error("an ended sale gave a request token")
	}
	if r, err := s.api.Result(t.Context(), a, token, 5*time.Second); err != nil || r.Status != "pending_payment" {
		t.Errorf("the buyer's result after the end: %+v, %v", r, err)
	}
	if status, _, err := s.api.Buy(t.Context(), a, id, "C1", token, 1); err != nil || status != 200 {
		t.Errorf("the buyer's repeat after the end: %d, %v", status, err)
	}
}

// FS-004: the second click while the first is in flight takes nothing and carries the same id.
func TestDoubleClick(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	a := user(t, 5001)
	token := s.token(t, a, act)
	type reply struct {
		status int
		r      apiclient.Result
		err    error
	}
	replies := make(chan reply, 8)
	for range 8 {
		go func() {
			status, r, err := s.api.Buy(context.WithoutCancel(t.Context()), a, act, "C1", token, 1)
			replies <- reply{status, r, err}
		}()
	}
	for range 8 {
		rep := <-replies
		if rep.err != nil || (rep.status != 202 && rep.status != 200) || rep.r.RequestToken != token {
			t.Errorf("click: %+v", rep)
		}
	}
	if r, err := s.api.Result(t.Context(), a, token, 5*time.Second); err != nil || r.Status != "pending_payment" {
		t.Errorf("result %+v, %v", r, err)
	}
	s.wantRemaining(t, act, "C1", 4)
}

// FS-087: what a browser reads are strings; the page can show and ask for every digit.
func TestIdsAreStrings(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 5))
	u := user(t, 1<<63-1)
	token, _ := s.buy(t, u, act, "C1")
	_, _, body, err := s.api.Do(t.Context(), "GET", "/v1/results/"+token, u, nil)
	if err != nil || !strings.Contains(string(body), `"orderNo":"`) {
		t.Errorf("result body %s, %v", body, err)
	}
}
