package ledgertest

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"seckill/internal/sale"
)

// modelTests compares random histories with a model that fits on a page: whatever batches, repeats, second tokens,
// bad messages, payments, cancellations and returns come, each decision is the model's, and the snapshot adds up.
func modelTests(t *testing.T, s *suite) {
	for i := range 6 {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		s.one(t, fmt.Sprintf("S12 S13 R7 R11 seed %d", seed), func(t *testing.T, open Open) { t.Parallel(); randomHistory(t, open, seed) })
	}
}

type modelOrder struct {
	m        sale.Pending
	d        sale.Decision
	returned int8
}

type model struct {
	*shop
	rnd    *mathrand.Rand
	sold   map[string]int64
	tokens map[string]*modelOrder
	users  map[int64]string // user -> token of the order
	sent   []sale.Pending
}

func randomHistory(t *testing.T, open Open, seed uint64) {
	s := newShop(t, open, nil, 12, 7)
	m := &model{
		shop: s, rnd: mathrand.New(mathrand.NewPCG(seed, 1)),
		sold: map[string]int64{}, tokens: map[string]*modelOrder{}, users: map[int64]string{},
	}
	crowd := make([]int64, 24)
	for i := range crowd {
		crowd[i] = s.user()
	}
	for range 25 {
		m.batch(crowd)
		for range m.rnd.IntN(4) {
			m.step()
		}
	}
	m.verify()
}

// batch sends 1 to 8 messages, new ones and repeats, and compares.
func (m *model) batch(crowd []int64) {
	var batch []sale.Pending
	for range 1 + m.rnd.IntN(8) {
		if len(m.sent) > 0 && m.rnd.IntN(3) == 0 {
			again := m.sent[m.rnd.IntN(len(m.sent))]
			again.OrderNo = m.orderNo(again.UserID)
			batch = append(batch, again)
			continue
		}
		p := m.message(crowd[m.rnd.IntN(len(crowd))])
		p.CommodityID = fmt.Sprintf("C%d", m.rnd.IntN(2))
		p.Quantity = m.rnd.IntN(7) // 0 and 6 are invalid
		batch = append(batch, p)
		m.sent = append(m.sent, p)
	}
	for i, got := range m.commit(batch...) {
		want := m.expect(batch[i])
		got.PayBefore, got.At, got.Epoch = want.PayBefore, want.At, want.Epoch
		if want.Repeated { // drawn at its first time
			got.Price = want.Price
		}
		if got.Result() != want.Result() || got.Ordered != want.Ordered || got.SoldOut != want.SoldOut ||
			got.FirstToken != want.FirstToken || got.Repeated != want.Repeated {
			m.Fatalf("message %d of %d\n got %+v\nwant %+v", i, len(batch), got, want)
		}
	}
}

// expect is the model's decision.
func (m *model) expect(p sale.Pending) sale.Decision {
	if o := m.tokens[p.Token]; o != nil {
		d := o.d
		d.Repeated = true
		return d
	}
	d := sale.Decision{Reservation: p.Reservation, Status: sale.StatusFailed, Version: 1}
	total := m.A.Item(p.CommodityID).Total
	first, ordered := m.users[p.UserID]
	switch {
	case ordered:
		d.Reason, d.FirstToken = sale.ReasonParticipated, first
	case p.Quantity < 1 || p.Quantity > 5:
		d.Reason = sale.ReasonInvalid
	case m.sold[p.CommodityID]+int64(p.Quantity) > total:
		d.SoldOut, d.Status = true, sale.StatusSoldOut
	default:
		d.Ordered, d.Status, d.OrderNo = true, sale.StatusPendingPayment, p.OrderNo
		m.sold[p.CommodityID] += int64(p.Quantity)
		m.users[p.UserID] = p.Token
	}
	m.tokens[p.Token] = &modelOrder{m: p, d: d, returned: -1}
	return d
}

// step pays, cancels, closes or returns some order.
func (m *model) step() {
	if len(m.sent) == 0 {
		return
	}
	o := m.tokens[m.sent[m.rnd.IntN(len(m.sent))].Token]
	if !o.d.Ordered {
		return
	}
	to := []sale.Status{sale.StatusPaid, sale.StatusCancelled, sale.StatusClosed, ""}[m.rnd.IntN(4)]
	if to == "" {
		err := m.L.MarkReturned(m.Context(), o.m.Token, o.m.UserID, 0)
		if want := map[int8]error{-1: sale.ErrWrongState, 0: nil, 1: sale.ErrConflict}[o.returned]; !errors.Is(err, want) {
			m.Fatalf("return in state %d: %v", o.returned, err)
		}
		if o.returned == 0 {
			o.returned = 1
		}
		return
	}
	_, changed, err := moves(m.shop)[to](o.d.OrderNo, o.m.UserID)
	if want := o.d.Status == sale.StatusPendingPayment; changed != want {
		m.Fatalf("%s -> %s: changed %v, %v", o.d.Status, to, changed, err)
	}
	if !changed {
		return
	}
	o.d.Status, o.d.Version = to, 2
	if to != sale.StatusPaid {
		o.returned = 0
		m.sold[o.m.CommodityID] -= int64(o.m.Quantity)
		o.d.Reason = map[sale.Status]sale.Reason{sale.StatusCancelled: sale.ReasonUser, sale.StatusClosed: sale.ReasonExpired}[to]
	}
}

// verify compares the whole snapshot.
func (m *model) verify() {
	m.balanced()
	snap, err := m.L.RebuildSnapshot(m.Context(), m.A.ID)
	must(m.T, err)
	if len(snap.Entries) != len(m.tokens) {
		m.Fatalf("snapshot of %d decisions, made %d", len(snap.Entries), len(m.tokens))
	}
	left := map[string]int64{}
	for i := range m.A.Items {
		left[m.A.Items[i].CommodityID] = m.A.Items[i].Total - m.sold[m.A.Items[i].CommodityID]
	}
	for _, e := range snap.Entries {
		o := m.tokens[e.Token]
		if o == nil || e.Status != o.d.Status || e.Version != o.d.Version || e.Returned != o.returned || e.OrderNo != o.d.OrderNo || e.Reason != o.d.Reason {
			m.Fatalf("snapshot has %+v\nmodel has %+v", e, o)
		}
		if o.returned == 0 {
			left[e.CommodityID] -= int64(e.Quantity)
		}
	}
	for id, want := range left {
		if got := snap.Remaining(id); got != want {
			m.Fatalf("remaining %d of %s, want %d", got, id, want)
		}
	}
}
