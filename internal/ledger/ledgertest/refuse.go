package ledgertest

import (
	"errors"
	"math"
	"testing"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

func refuseTests(t *testing.T, s *suite) {
	s.each(t, map[string]func(*testing.T, Open){
		"S13 FS-003 already participated":       participated,
		"invalid messages":                      invalidMessages,
		"FS-020 FS-076 token of another user":   foreignToken,
		"R10 old epochs":                        oldEpochs,
		"settled sale":                          settledSale,
		"refused first, then another token may": refusedThenOther,
	})
}

// A buyer's repeats under other tokens cost nothing and are pointed to the first token; the others all get theirs.
func participated(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	m := s.message(s.user())
	s.buy(m)
	var batch []sale.Pending
	for range 20 {
		batch = append(batch, s.message(m.UserID))
	}
	batch = append(batch, s.messages(4)...)
	for i, d := range s.commit(batch...) {
		if i < 20 && (d.Ordered || d.SoldOut || d.Reason != sale.ReasonParticipated || d.FirstToken != m.Token || d.Status != sale.StatusFailed) {
			t.Fatalf("repeat %d: %+v", i, d)
		}
		if i >= 20 && !d.Ordered {
			t.Fatalf("another buyer: %+v", d)
		}
	}
	s.sold(5)
	s.story(m.UserID, batch[0].Token, "0:>occupied:processing: 1:occupied>released:failed:already_participated")
	// It stays so after the order is cancelled: one participation a sale (R18).
	d, err := s.L.DecisionOfUser(ctx(t), s.A.ID, m.UserID)
	must(t, err)
	_, _, err = s.L.Cancel(ctx(t), d.OrderNo, m.UserID)
	must(t, err)
	if d := s.commit(s.message(m.UserID))[0]; d.Reason != sale.ReasonParticipated {
		t.Fatalf("after cancelling: %+v", d)
	}
	// And repeats as the same refusal, with the token that counts.
	again := s.commit(batch[0])[0]
	if !again.Repeated || again.FirstToken != m.Token || again.Reason != sale.ReasonParticipated {
		t.Fatalf("the refusal again: %+v", again)
	}
}

func invalidMessages(t *testing.T, open Open) {
	s := newShop(t, open, nil, 50)
	for name, c := range map[string]struct {
		edit   func(*sale.Pending)
		stored bool // leaves a log row, and repeats as what was decided
	}{
		"activity":       {func(m *sale.Pending) { m.ActivityID = "unknown" }, true},
		"commodity":      {func(m *sale.Pending) { m.CommodityID = "C9" }, true},
		"quantity 0":     {func(m *sale.Pending) { m.Quantity = 0 }, true},
		"quantity -1":    {func(m *sale.Pending) { m.Quantity = -1 }, true},
		"quantity 6":     {func(m *sale.Pending) { m.Quantity = 6 }, true},
		"quantity huge":  {func(m *sale.Pending) { m.Quantity = math.MaxInt }, true},
		"price low":      {func(m *sale.Pending) { m.Price = decimal.RequireFromString("19.98") }, true},
		"price digits":   {func(m *sale.Pending) { m.Price = decimal.RequireFromString("19.990001") }, true},
		"price negative": {func(m *sale.Pending) { m.Price = m.Price.Neg() }, true},
		"token empty":    {func(m *sale.Pending) { m.Token = "" }, false},
		"token text":     {func(m *sale.Pending) { m.Token = "a b' OR 1=1 \u00e9" }, false},
		"user 0":         {func(m *sale.Pending) { m.UserID = 0 }, false},
		"user negative":  {func(m *sale.Pending) { m.UserID = math.MinInt64 }, false},
		"activity text":  {func(m *sale.Pending) { m.ActivityID = "\xff\x00" }, false},
		"commodity long": {func(m *sale.Pending) { m.CommodityID = string(make([]byte, 500)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := s.message(s.user())
			c.edit(&m)
			good := s.message(s.user())
			out := s.commit(m, good)
			d := out[0]
			if d.Ordered || d.SoldOut || d.Status != sale.StatusFailed || d.Reason != sale.ReasonInvalid || d.Version != 1 || d.OrderNo != "" {
				t.Fatalf("got %+v", d)
			}
			if !out[1].Ordered {
				t.Fatalf("the message beside it: %+v", out[1])
			}
			if d := s.commit(m)[0]; d.Reason != sale.ReasonInvalid || d.Repeated != c.stored {
				t.Fatalf("again: %+v", d)
			}
		})
	}
	s.balanced()
}

func foreignToken(t *testing.T, open Open) {
	s := newShop(t, open, nil, 10)
	a := s.message(s.user())
	s.buy(a)
	for _, other := range []int64{neighbour(a.UserID, 1), a.UserID + 1<<20 + 1} { // in the same table, and in another
		b := a
		b.UserID, b.OrderNo = other, s.orderNo(other)
		d := s.commit(b)[0]
		if d.OrderNo == a.OrderNo || d.FirstToken != "" || d.Repeated {
			t.Fatalf("B with A's token sees %+v", d)
		}
		if other == neighbour(a.UserID, 1) && (d.Ordered || d.Reason != sale.ReasonInvalid) {
			t.Fatalf("B with A's token: %+v", d)
		}
		if got, err := s.L.DecisionByToken(ctx(t), s.A.ID, neighbour(a.UserID, 1), a.Token, 0); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("B reads A's result: %+v %v", got, err)
		}
	}
	c := a
	c.UserID, c.OrderNo = neighbour(a.UserID, 2), s.orderNo(a.UserID)
	d := s.message(s.user())
	e := d
	e.UserID, e.OrderNo = neighbour(d.UserID, 3), s.orderNo(d.UserID)
	out := s.commit(c, d, e) // both in one batch
	if out[0].Ordered || !out[1].Ordered || out[2].Ordered || out[2].OrderNo != "" {
		t.Fatalf("in one batch: %+v", out)
	}
	got, err := s.L.DecisionByToken(ctx(t), s.A.ID, a.UserID, a.Token, 0)
	if err != nil || !got.Ordered {
		t.Fatalf("A's own result: %+v %v", got, err)
	}
}

func oldEpochs(t *testing.T, open Open) {
	s := newShop(t, open, nil, 50)
	decided := s.message(s.user())
	s.buy(decided)
	epoch, err := s.L.RaiseEpoch(ctx(t), s.A.ID, 7)
	if err != nil || epoch != 1 {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	at := func(epoch int64, partition int, offset int64) sale.Pending {
		m := s.message(s.user())
		m.Epoch, m.Partition, m.Offset = epoch, partition, offset
		return m
	}
	// Until there is a boundary everything is decided as ever: the snapshot comes after it.
	for _, d := range s.commit(at(1, 1, 600), at(0, 1, 500)) {
		if !d.Ordered {
			t.Fatalf("between epoch and boundary: %+v", d)
		}
	}
	must(t, s.L.SaveBoundary(ctx(t), s.A.ID, epoch, map[int]int64{1: 100, 2: 0}))
	for _, c := range []struct {
		m       sale.Pending
		ordered bool
	}{
		{at(0, 1, 5), true}, {at(0, 1, 99), true}, {at(0, 1, 100), false}, {at(0, 1, 101), false}, {at(0, 2, 0), false},
		{at(0, 3, 0), false}, {at(1, 3, 0), true}, {at(1, 1, 500), true}, {at(2, 1, 500), true},
	} {
		d := s.commit(c.m)[0]
		if d.Ordered != c.ordered || !c.ordered && (d.Reason != sale.ReasonExpired || d.Status != sale.StatusFailed) {
			t.Fatalf("epoch %d partition %d offset %d: %+v", c.m.Epoch, c.m.Partition, c.m.Offset, d)
		}
	}
	// What was decided before is not undone by an epoch.
	decided.Offset = 1000
	if d := s.commit(decided)[0]; !d.Ordered || !d.Repeated {
		t.Fatalf("decided token of an old epoch: %+v", d)
	}
	// The next epoch has its own boundary.
	epoch, err = s.L.RaiseEpoch(ctx(t), s.A.ID, 7)
	must(t, err)
	if d := s.commit(at(0, 1, 500))[0]; !d.Ordered {
		t.Fatalf("boundary of the epoch before: %+v", d)
	}
	must(t, s.L.SaveBoundary(ctx(t), s.A.ID, epoch, nil))
	if d := s.commit(at(1, 1, 0))[0]; d.Reason != sale.ReasonExpired {
		t.Fatalf("empty boundary: %+v", d)
	}
}

func settledSale(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	m := s.message(s.user())
	s.buy(m)
	must(t, s.L.SetActivityState(ctx(t), s.A.ID, []sale.State{sale.StateScheduled}, sale.StateSettled))
	if d := s.commit(s.message(s.user()))[0]; d.Ordered || d.Reason != sale.ReasonSaleEnded {
		t.Fatalf("undecided token of a settled sale: %+v", d)
	}
	if d := s.commit(m)[0]; !d.Ordered {
		t.Fatalf("decided token of a settled sale: %+v", d)
	}
	// Ended and paused sales still decide what was reserved while they were open (S22).
	s2 := newShop(t, open, nil, 5)
	must(t, s2.L.SetActivityState(ctx(t), s2.A.ID, []sale.State{sale.StateScheduled}, sale.StateEnded))
	s2.buy(s2.message(s2.user()))
}

func refusedThenOther(t *testing.T, open Open) {
	s := newShop(t, open, nil, 5)
	bad := s.message(s.user())
	bad.Quantity = 0
	good := s.message(bad.UserID)
	out := s.commit(bad, good)
	if out[0].Ordered || !out[1].Ordered {
		t.Fatalf("a refusal is no participation: %+v", out)
	}
}
