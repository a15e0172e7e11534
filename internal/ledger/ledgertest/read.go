package ledgertest

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

func readTests(t *testing.T, s *suite) {
	s.each(t, map[string]func(*testing.T, Open){
		"R18 S31 decision by token":        decisionByToken,
		"decisions of a user":              decisionsOfUser,
		"S17 orders of a user, in pages":   ordersOfUser,
		"FS-076 bad cursors":               badCursors,
		"S15 FS-087 order by number alone": orderByNo,
	})
}

func decisionByToken(t *testing.T, open Open) {
	s := newShop(t, open, nil, 1)
	m, late := s.message(s.user()), s.message(s.user())
	out := s.commit(m, late)
	for i, want := range out {
		got, err := s.L.DecisionByToken(ctx(t), s.A.ID, want.UserID, want.Token, 0)
		must(t, err)
		if got.Result() != want.Result() || got.Ordered != want.Ordered || got.SoldOut != want.SoldOut || got.UserID != want.UserID {
			t.Fatalf("decision %d\nread %+v\nmade %+v", i, got, want)
		}
	}
	_, _, err := s.L.Pay(ctx(t), out[0].OrderNo, m.UserID, start(), "demo")
	must(t, err)
	if got, err := s.L.DecisionByToken(ctx(t), s.A.ID, m.UserID, m.Token, 2); err != nil || got.Status != sale.StatusPaid || got.Version != 2 {
		t.Fatalf("after paying: %+v %v", got, err)
	}
	for name, f := range map[string]func() (*sale.Decision, error){
		"another user":     func() (*sale.Decision, error) { return s.L.DecisionByToken(ctx(t), s.A.ID, late.UserID, m.Token, 0) },
		"another activity": func() (*sale.Decision, error) { return s.L.DecisionByToken(ctx(t), "other", m.UserID, m.Token, 0) },
		"unknown token":    func() (*sale.Decision, error) { return s.L.DecisionByToken(ctx(t), s.A.ID, m.UserID, "unknown", 0) },
		"refused, another": func() (*sale.Decision, error) {
			return s.L.DecisionByToken(ctx(t), "other", late.UserID, late.Token, 0)
		},
		"no user": func() (*sale.Decision, error) { return s.L.DecisionByToken(ctx(t), s.A.ID, -1, m.Token, 0) },
	} {
		if got, err := f(); !errors.Is(err, sale.ErrNotFound) || got != nil {
			t.Errorf("%s: %+v %v, want ErrNotFound", name, got, err)
		}
	}
}

func decisionsOfUser(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	m := s.message(s.user())
	d := s.buy(m)
	list, err := s.L.DecisionsOfUser(ctx(t), m.UserID, []string{s.A.ID, "other", "bad id", ""})
	if err != nil || len(list) != 1 || list[0].OrderNo != d.OrderNo {
		t.Fatalf("got %+v %v", list, err)
	}
	if one, err := s.L.DecisionOfUser(ctx(t), s.A.ID, m.UserID); err != nil || one.OrderNo != d.OrderNo {
		t.Fatalf("got %+v %v", one, err)
	}
	if _, err := s.L.DecisionOfUser(ctx(t), s.A.ID, neighbour(m.UserID, 1)); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("a user without an order: %v", err)
	}
	if list, err := s.L.DecisionsOfUser(ctx(t), m.UserID, nil); err != nil || len(list) != 0 {
		t.Fatalf("no activities: %v %v", list, err)
	}
}

// fill gives one user an order in each of n activities, at times of which some are the same, newest last.
func fill(s *shop, now *time.Time, user int64, n int) (numbers []string) {
	for i := range n {
		a := *s.A
		a.ID = "P-" + randomText(12)
		must(s.T, s.L.CreateActivity(s.Context(), &a))
		m := s.message(user)
		m.ActivityID = a.ID
		if i%3 == 0 {
			*now = now.Add(time.Millisecond)
		}
		numbers = append(numbers, s.buy(m).OrderNo)
	}
	return numbers
}

func ordersOfUser(t *testing.T, open Open) {
	now := start()
	s := newShop(t, open, func(o *ledger.Options) { o.Now = func() time.Time { return now } }, 5)
	user := s.user()
	want := fill(s, &now, user, 10)
	s.buy(s.message(neighbour(user, 1)))
	slices.Reverse(want)
	for _, limit := range []int{1, 3, 9, 10, 100, 1000} {
		var got []string
		cursor := ""
		for {
			page, next, err := s.L.OrdersOfUser(ctx(t), user, limit, cursor)
			must(t, err)
			if len(page) > limit {
				t.Fatalf("page of %d, limit %d", len(page), limit)
			}
			for _, o := range page {
				got = append(got, o.OrderNo)
				if o.UserID != user {
					t.Fatalf("order of user %d", o.UserID)
				}
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("limit %d\n got %v\nwant %v", limit, got, want)
		}
	}
	if page, next, err := s.L.OrdersOfUser(ctx(t), s.user(), 0, ""); len(page) != 0 || next != "" || err != nil {
		t.Fatalf("a user without orders: %v %q %v", page, next, err)
	}
}

func badCursors(t *testing.T, open Open) {
	now := start()
	s := newShop(t, open, func(o *ledger.Options) { o.Now = func() time.Time { return now } }, 5)
	user := s.user()
	fill(s, &now, user, 3)
	_, good, err := s.L.OrdersOfUser(ctx(t), user, 1, "")
	if err != nil || good == "" {
		t.Fatalf("%q %v", good, err)
	}
	raw := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for _, cursor := range []string{"x", good + "=", good + "A", raw("1"), raw("1."), raw(".1234"), raw("x.1234"), raw("1.12x4"),
		raw("1.' OR 1=1"), strings.Repeat("A", 10_000), "\x00", raw("99999999999999999999." + s.orderNo(user))} {
		if _, _, err := s.L.OrdersOfUser(ctx(t), user, 1, cursor); sale.CodeOf(err) != sale.CodeInvalidRequest {
			t.Errorf("cursor %.40q: %v, want invalid_request", cursor, err)
		}
	}
	if _, _, err := s.L.OrdersOfUser(ctx(t), user+1, 1, good); sale.CodeOf(err) != sale.CodeInvalidRequest {
		t.Errorf("cursor of another table: %v", err)
	}
	if page, _, err := s.L.OrdersOfUser(ctx(t), neighbour(user, 1), 10, good); err != nil || len(page) != 0 {
		t.Errorf("cursor of another user shows %v %v", page, err)
	}
}

func orderByNo(t *testing.T, open Open) {
	s := newShop(t, open, nil, 20)
	for _, d := range s.commit(s.messages(16)...) {
		if o, err := s.L.OrderByNo(ctx(t), d.OrderNo); err != nil || o.OrderNo != d.OrderNo {
			t.Fatalf("%s: %+v %v", d.OrderNo, o, err)
		}
	}
	for _, no := range []string{"", "0", "1799", "12e405", "-123401", " 123401", s.orderNo(s.user())} {
		if o, err := s.L.OrderByNo(ctx(t), no); !errors.Is(err, sale.ErrNotFound) || o != nil {
			t.Errorf("%q: %+v %v, want ErrNotFound", no, o, err)
		}
	}
}
