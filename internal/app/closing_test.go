package app_test

import (
	"net/http"
	"testing"
	"time"

	"seckill/internal/apiclient"
)

// S23, R8: an unpaid order closes at its deadline, its user is told at the socket, its unit sells again; a payment
// after that is refused.
func TestUnpaidOrderCloses(t *testing.T) {
	t.Parallel()
	s := theShop
	id := uniqueID()
	s.create(t, apiclient.Sale{ActivityID: id, Title: "Quick", StartsAt: time.Now().Add(-time.Second).UnixMilli(), EndsAt: time.Now().Add(time.Hour).UnixMilli(),
		PayWithin: "1s", Items: []apiclient.SaleItem{item("C1", 1)}})
	if _, err := s.api.Admin(t.Context(), s.admin, id, "warm-up", nil); err != nil {
		t.Fatal(err)
	}
	a, b := user(t, 9001), user(t, 9002)
	frames := s.socket(t, a, id)
	token, r := s.buy(t, a, id, "C1")
	next(t, frames, resultOf(token, "pending_payment"))
	f := next(t, frames, resultOf(token, "closed"))
	if f.Reason != "expired" || f.Version != 2 {
		t.Errorf("told %+v", f)
	}
	_, err := s.api.ChangeOrder(t.Context(), a, r.OrderNo, "pay")
	wantProblem(t, "pay a closed order", err, http.StatusConflict, "wrong_status")
	s.wantRemaining(t, id, "C1", 1)
	if _, r := s.buy(t, b, id, "C1"); r.Status != "pending_payment" && r.Status != "closed" {
		t.Errorf("the returned unit: %+v", r)
	}
}

// S22, R16: a sale that is over becomes settled once nothing is undecided, unpaid or on its way.
func TestSaleSettles(t *testing.T) {
	t.Parallel()
	s := theShop
	id := uniqueID()
	body := map[string]any{
		"activityId": id, "title": "Short", "startsAt": time.Now().Add(-time.Second).UnixMilli(), "endsAt": time.Now().Add(2 * time.Second).UnixMilli(),
		"waitlistUntil": time.Now().Add(2 * time.Second).UnixMilli(), "payWithin": "1s", "closeGrace": "1s",
		"items": []map[string]any{{"commodityId": "C1", "title": "T", "price": "1.00", "total": 5}},
	}
	if _, err := s.api.Admin(t.Context(), s.admin, "", "", body); err != nil {
		t.Fatal(err)
	}
	if _, err := s.api.Admin(t.Context(), s.admin, id, "warm-up", nil); err != nil {
		t.Fatal(err)
	}
	a := user(t, 9101)
	token, _ := s.buy(t, a, id, "C1")
	state := ""
	for range 800 {
		act, err := s.api.Activity(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if state = act.State; state == "settled" {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if state != "settled" {
		t.Errorf("state %s after 40 s, want settled", state)
	}
	if r, err := s.api.Result(t.Context(), a, token, 0); err != nil || r.Status != "closed" {
		t.Errorf("result %+v, %v", r, err)
	}
}
