package ledger

import (
	"fmt"
	"math"
	"time"

	"seckill/internal/sale"
)

// plan is one batch on its way to its decisions. It lives for one transaction.
type plan struct {
	l     *Ledger
	batch []sale.Pending
	now   time.Time
	how   lookup

	// What the transaction has read.
	known      map[string]*LogRow   // by token: decided before
	byToken    map[string]*orderRow // orders of known tokens
	byUser     map[userKey]*orderRow
	activities map[string]*activityRow

	// What it decides.
	out     []sale.Decision
	first   map[string]int  // token -> its first message in the batch
	planned map[userKey]int // new orders of this batch
	rows    [sale.Tables][]int
	sold    map[itemKey]int64 // units to add to sold_count
}

type userKey struct {
	activityID string
	userID     int64
}

type itemKey struct{ activityID, commodityID string }

// activityRow is what Commit needs of an activity.
type activityRow struct {
	sale.Activity
	boundaryEpoch int64 // the last epoch whose boundary is stored
	boundary      map[int]int64
}

func newPlan(l *Ledger, batch []sale.Pending, how lookup) *plan {
	return &plan{
		l: l, batch: batch, how: how,
		now:        timeOf(l.nowMS()),
		known:      map[string]*LogRow{},
		byToken:    map[string]*orderRow{},
		byUser:     map[userKey]*orderRow{},
		activities: map[string]*activityRow{},
		out:        make([]sale.Decision, len(batch)),
		first:      make(map[string]int, len(batch)),
		planned:    make(map[userKey]int, len(batch)),
		sold:       map[itemKey]int64{},
	}
}

// storable reports whether the ids of a message fit the tables.
func storable(m *sale.Pending) bool {
	return m.UserID > 0 && sale.ValidToken(m.Token) && sale.ValidID(m.ActivityID) && sale.ValidID(m.CommodityID)
}

// decide fills out[i], and plans its rows unless the message was decided before.
func (p *plan) decide(i int) error {
	m := &p.batch[i]
	if !storable(m) {
		p.out[i] = refusal(m, sale.ReasonInvalid)
		return nil
	}
	if j, ok := p.first[m.Token]; ok && m.UserID == p.batch[j].UserID {
		p.out[i] = p.out[j]
		p.out[i].Repeated = true
		return nil
	} else if g := p.known[m.Token]; ok && (g == nil || g.UserID != m.UserID) {
		p.out[i] = refusal(m, sale.ReasonInvalid) // two users under one token, and this is not its owner
		return nil
	}
	p.first[m.Token] = i
	if g := p.known[m.Token]; g != nil {
		d, err := p.standing(m, g)
		p.out[i] = d
		return err
	}
	d, err := p.fresh(i)
	if err != nil {
		return err
	}
	p.out[i] = d
	n := sale.TableOf(m.UserID)
	p.rows[n] = append(p.rows[n], i)
	return nil
}

// standing is the decision that was made before for a token. Only its owner is told: a token of another user
// gives nothing away (FS-020).
func (p *plan) standing(m *sale.Pending, g *LogRow) (sale.Decision, error) {
	if g.UserID != m.UserID {
		return refusal(m, sale.ReasonInvalid), nil
	}
	var d sale.Decision
	if g.refused() {
		d = g.refusal()
		d.Price = m.Price
	} else {
		o := p.byToken[m.Token]
		if o == nil {
			return d, fmt.Errorf("BUG: token %s is logged as an order and has none", m.Token)
		}
		var err error
		if d, err = o.decision(); err != nil {
			return d, err
		}
	}
	d.Epoch, d.At = m.Epoch, m.At
	d.Repeated = true
	return d, nil
}

// fresh decides a token for the first time. A user's earlier order comes before everything else, because it is
// what the user must be pointed to (S13).
func (p *plan) fresh(i int) (sale.Decision, error) {
	m := &p.batch[i]
	key := userKey{m.ActivityID, m.UserID}
	if o := p.byUser[key]; o != nil {
		d := refusal(m, sale.ReasonParticipated)
		d.FirstToken = o.RequestToken
		return d, nil
	}
	if j, ok := p.planned[key]; ok {
		d := refusal(m, sale.ReasonParticipated)
		d.FirstToken = p.batch[j].Token
		return d, nil
	}
	if p.how == andRefuse {
		return refusal(m, sale.ReasonInvalid), nil
	}
	a := p.activities[m.ActivityID]
	reason := p.check(m, a)
	if reason != "" && p.how == tokensOnly {
		return sale.Decision{}, errLookCloser // no key will find this user's order, which would come first
	}
	if reason != "" {
		return refusal(m, reason), nil
	}
	if p.how == andSoldOut {
		d := refusal(m, "")
		d.SoldOut, d.Status = true, sale.StatusSoldOut
		return d, nil
	}
	if m.OrderNo == "" && p.l.opt.NewOrderNo != nil {
		m.OrderNo = p.l.opt.NewOrderNo(m.UserID)
	}
	if n, err := sale.TableOfOrderNo(m.OrderNo); err != nil || n != sale.TableOf(m.UserID) {
		return sale.Decision{}, fmt.Errorf("order number %.40q does not carry table %02d: %w", m.OrderNo, sale.TableOf(m.UserID), sale.ErrBadID)
	}
	p.planned[key] = i
	p.sold[itemKey{m.ActivityID, m.CommodityID}] += int64(m.Quantity)
	return sale.Decision{
		Reservation: m.Reservation, Ordered: true, OrderNo: m.OrderNo, Status: sale.StatusPendingPayment, Version: 1,
		PayBefore: timeOf(a.PayBefore(m.At, p.now).UnixMilli()),
	}, nil
}

// check says why a reservation cannot become an order; "" when it can.
func (p *plan) check(m *sale.Pending, a *activityRow) sale.Reason {
	if a == nil {
		return sale.ReasonInvalid
	}
	it := a.Item(m.CommodityID)
	if it == nil || m.Quantity < 1 || m.Quantity > it.MaxPerUser || !it.Price.Equal(m.Price) {
		return sale.ReasonInvalid
	}
	if _, err := sale.Amount(m.Price, m.Quantity); err != nil {
		return sale.ReasonInvalid
	}
	if a.State == sale.StateSettled {
		return sale.ReasonSaleEnded // everything is decided, paid or closed; nothing may start again
	}
	// Until the boundary is stored nothing has been counted for this epoch, and this transaction holds the row (lockEpoch):
	// what it decides is in the snapshot.
	if m.Epoch < a.Epoch && a.boundaryEpoch == a.Epoch && m.Offset >= a.boundary[m.Partition] {
		return sale.ReasonExpired
	}
	return ""
}

func refusal(m *sale.Pending, why sale.Reason) sale.Decision {
	return sale.Decision{Reservation: m.Reservation, Reason: why, Status: sale.StatusFailed, Version: 1}
}

// at is when a reservation was made; a message without a time counts as made now.
func (p *plan) at(m *sale.Pending) int64 {
	if m.At.IsZero() {
		return p.now.UnixMilli()
	}
	return m.At.UnixMilli()
}

// logQuantity fits the quantity of a refused message, which may be anything, into its column.
func logQuantity(q int) int { return min(max(q, math.MinInt32), math.MaxInt32) }
