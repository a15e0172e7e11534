package app_test

import (
	"net/http"
	"testing"

	"seckill/internal/apiclient"
)

// join puts a user in the waitlist and returns the place.
func (s *shop) join(t *testing.T, bearer, act, commodity string) (int64, error) {
	t.Helper()
	var out struct{ Position int64 }
	_, err := s.api.JSON(t.Context(), http.MethodPost, "/v1/activities/"+act+"/waitlist", bearer, map[string]string{"commodityId": commodity}, &out)
	return out.Position, err
}

// S24, R12: a unit that comes back goes to the head of the waitlist, who is ordered and told without asking; the next
// moves up and is told that.
func TestWaitlist(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 1))
	a, b, c, d := user(t, 9401), user(t, 9402), user(t, 9403), user(t, 9404)
	_, r := s.buy(t, a, act, "C1")
	if _, err := s.join(t, a, act, "C1"); err == nil {
		t.Error("a buyer joined the waitlist")
	} else {
		wantProblem(t, "buyer joins", err, 409, "already_participated")
	}
	frames, second := s.socket(t, b, act), s.socket(t, c, act)
	for i, u := range []string{b, c, d} {
		if n, err := s.join(t, u, act, "C1"); err != nil || n != int64(i+1) {
			t.Fatalf("join: place %d, %v", n, err)
		}
	}
	_, err := s.join(t, b, act, "C1")
	wantProblem(t, "second join", err, 409, "already_waiting")
	_, err = s.join(t, user(t, 9405), act, "C9")
	wantProblem(t, "unknown commodity", err, 404, "not_found")
	var me struct {
		Waitlist struct {
			CommodityID        string
			Position, JoinedAt int64
		}
	}
	if _, err := s.api.JSON(t.Context(), http.MethodGet, "/v1/activities/"+act+"/me", d, nil, &me); err != nil || me.Waitlist.Position != 3 || me.Waitlist.JoinedAt == 0 {
		t.Errorf("me of the third: %+v, %v", me, err)
	}
	for range 2 { // leaving twice is leaving once
		if _, err := s.api.JSON(t.Context(), http.MethodDelete, "/v1/activities/"+act+"/waitlist", d, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.api.ChangeOrder(t.Context(), a, r.OrderNo, "cancel"); err != nil {
		t.Fatal(err)
	}
	won := next(t, frames, func(f apiclient.Result) bool { return f.Type == "result" && f.Status == "pending_payment" })
	if won.OrderNo == "" || won.CommodityID != "C1" || won.Quantity != 1 {
		t.Errorf("promoted: %+v", won)
	}
	next(t, second, func(f apiclient.Result) bool { return f.Type == "waitlist" && f.Position == 1 })
	if res, err := s.api.Result(t.Context(), b, won.RequestToken, 0); err != nil || res.OrderNo != won.OrderNo {
		t.Errorf("the promoted user's result: %+v, %v", res, err)
	}
	if m, err := s.api.Me(t.Context(), b, act); err != nil || m.Result == nil || m.Result.OrderNo != won.OrderNo {
		t.Errorf("me: %+v, %v", m, err)
	}
	orders, _, err := s.api.Orders(t.Context(), b, 10, "")
	if err != nil || len(orders) != 1 {
		t.Errorf("orders %+v, %v", orders, err)
	}
	_, err = s.join(t, b, act, "C1")
	wantProblem(t, "a promoted user joins again", err, 409, "already_participated")
	s.wantRemaining(t, act, "C1", 0)
}

// R12: the waitlist opens with the sale.
func TestWaitlistBeforeTheStart(t *testing.T) {
	t.Parallel()
	s := theShop
	id := uniqueID()
	s.create(t, apiclient.Sale{ActivityID: id, Title: "Later", StartsAt: "2090-01-01T00:00:00Z", EndsAt: "2090-01-01T01:00:00Z", Items: []apiclient.SaleItem{item("C1", 1)}})
	if _, err := s.api.Admin(t.Context(), s.admin, id, "warm-up", nil); err != nil {
		t.Fatal(err)
	}
	_, err := s.join(t, user(t, 9501), id, "C1")
	wantProblem(t, "before the start", err, 409, "not_started")
}
