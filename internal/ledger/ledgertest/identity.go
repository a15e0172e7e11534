package ledgertest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"seckill/internal/sale"
)

// The written rule of identity (FS-058): ids are compared byte by byte, as Redis compares keys. Ids that differ in
// case, in a trailing byte or in a look-alike are different; spaces and non-ASCII never get in.
func identityTests(t *testing.T, s *suite) {
	s.one(t, "FS-058 ids differ by case", idsDifferByCase)
	s.one(t, "FS-058 spaces and look-alikes never get in", lookAlikes)
	s.one(t, "FS-087 largest numbers", largestNumbers)
}

func idsDifferByCase(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	upper, lower := s.message(s.user()), s.message(s.user())
	lower.UserID = neighbour(upper.UserID, 1) // same tables, so that only the collation keeps them apart
	lower.OrderNo = s.orderNo(upper.UserID)
	upper.Token = "Bob-" + strings.ToUpper(randomText(20))
	lower.Token = strings.ToLower(upper.Token)
	out := s.commit(upper, lower)
	if !out[0].Ordered || !out[1].Ordered {
		t.Fatalf("Bob and bob: %+v", out)
	}
	if _, err := s.L.DecisionByToken(ctx(t), s.A.ID, upper.UserID, strings.ToLower(upper.Token), 0); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("another spelling finds the token: %v", err)
	}
	if _, err := s.L.Activity(ctx(t), strings.ToLower(s.A.ID)); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("another spelling finds the activity: %v", err)
	}
	a := *s.A
	a.ID = strings.ToLower(s.A.ID)
	a.Items = append(a.Items, a.Items[0])
	a.Items[1].CommodityID = "c0"
	must(t, s.L.CreateActivity(ctx(t), &a))
	m := s.message(upper.UserID) // the same user in another sale
	m.ActivityID, m.CommodityID = a.ID, "c0"
	if d := s.commit(m)[0]; !d.Ordered || d.CommodityID != "c0" {
		t.Fatalf("same user, activity id in lower case: %+v", d)
	}
	b, err := s.L.Balance(ctx(t), a.ID)
	must(t, err)
	if b[0].Sold != 0 || b[1].Sold != 1 {
		t.Fatalf("C0 and c0 are one: %+v", b)
	}
}

func lookAlikes(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	m := s.message(s.user())
	s.buy(m)
	for _, token := range []string{m.Token + " ", " " + m.Token, m.Token + "\x00", m.Token + "\u00a0", "\uff42\uff4f\uff42"} {
		if _, err := s.L.DecisionByToken(ctx(t), s.A.ID, m.UserID, token, 0); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("%q finds the token: %v", token, err)
		}
		n := s.message(s.user())
		n.Token = token
		if d := s.commit(n)[0]; d.Ordered || d.Reason != sale.ReasonInvalid {
			t.Fatalf("%q: %+v", token, d)
		}
	}
	for _, id := range []string{s.A.ID + " ", s.A.ID + "\t", strings.Repeat("x", 33)} {
		if _, err := s.L.Activity(ctx(t), id); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("%q finds the activity: %v", id, err)
		}
	}
	s.sold(1)
}

func largestNumbers(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	m := s.message(math.MaxInt64 - s.seq.Load()%1000*16)
	m.OrderNo = sale.OrderNo(math.MaxInt64-s.seq.Load()%1_000_000_007, m.UserID)
	m.Token = strings.Repeat("z", sale.MaxTokenLength-26) + m.Token[2:]
	d := s.buy(m)
	o, err := s.L.OrderByNo(ctx(t), d.OrderNo)
	must(t, err)
	if o.OrderNo != m.OrderNo || o.UserID != m.UserID || o.RequestToken != m.Token {
		t.Fatalf("order %+v of message %+v", o, m)
	}
}
