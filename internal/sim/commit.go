package sim

import (
	"context"
	"errors"
	"fmt"

	"seckill/internal/sale"
)

// Errors of one deciding transaction, as in package ledger.
var (
	errDuplicate   = errors.New("duplicate key")
	errLookCloser  = errors.New("look up users before refusing")
	errSoldOut     = errors.New("conditional stock update: 0 rows")
	errNumberTaken = errors.New("order number taken")
	errBadNumber   = errors.New("order number of another table")
)

// messageError says which message of a batch can never be decided.
type messageError struct {
	index int
	token string
	err   error
}

func (e *messageError) Error() string {
	return fmt.Sprintf("message %d, token %s: %v", e.index, e.token, e.err)
}
func (e *messageError) Unwrap() error { return e.err }

type lookup int

const (
	tokensOnly lookup = iota
	tokensAndUsers
	andSoldOut
	andRefuse
)

// Commit decides a batch as package ledger does: one transaction, else one for each message. Between what a
// transaction reads and what it writes others may decide; unique keys and the conditional update guard the write.
func (l *ledger) Commit(ctx context.Context, batch []sale.Pending) ([]sale.Decision, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	if len(batch) > l.db.maxBatch {
		return nil, fmt.Errorf("%d reservations, at most %d", len(batch), l.db.maxBatch)
	}
	batch = append([]sale.Pending(nil), batch...)
	out, err := l.commitTx(ctx, batch, tokensOnly)
	if errors.Is(err, errDuplicate) || errors.Is(err, errLookCloser) {
		out, err = l.commitTx(ctx, batch, tokensAndUsers)
	}
	if err == nil || errors.Is(err, sale.ErrTransient) {
		return out, err
	}
	out = make([]sale.Decision, len(batch))
	for i := range batch {
		if out[i], err = l.commitOne(ctx, batch[i]); errors.Is(err, sale.ErrTransient) {
			return nil, fmt.Errorf("commit reservation %d: %w", i, err)
		} else if err != nil {
			return nil, &messageError{i, batch[i].Token, err}
		}
	}
	return out, nil
}

func (l *ledger) commitOne(ctx context.Context, p sale.Pending) (sale.Decision, error) {
	how := tokensAndUsers
	for range 8 {
		out, err := l.commitTx(ctx, []sale.Pending{p}, how)
		switch {
		case err == nil:
			return out[0], nil
		case errors.Is(err, errSoldOut):
			how = andSoldOut
		case errors.Is(err, errDuplicate):
			taken := false
			err := l.by.call(ctx, toDB, "look up number", "", func() error {
				o := l.db.byNo[p.OrderNo]
				taken = o != nil && o.RequestToken != p.Token
				return nil
			})
			if err != nil {
				return sale.Decision{}, err
			}
			switch {
			case taken && l.db.newOrderNo == nil:
				return sale.Decision{}, errNumberTaken
			case taken:
				p.OrderNo = l.db.newOrderNo(p.UserID)
			}
		default:
			return sale.Decision{}, err
		}
	}
	return sale.Decision{}, fmt.Errorf("still contended: %w", sale.ErrTransient)
}

// Refuse is as of package ledger.
func (l *ledger) Refuse(ctx context.Context, p sale.Pending) (sale.Decision, error) {
	for range 8 {
		out, err := l.commitTx(ctx, []sale.Pending{p}, andRefuse)
		if err == nil {
			return out[0], nil
		}
		if !errors.Is(err, errDuplicate) {
			return sale.Decision{}, fmt.Errorf("refuse reservation: %w", err)
		}
	}
	return sale.Decision{}, fmt.Errorf("refuse reservation: still contended: %w", sale.ErrTransient)
}

func (l *ledger) commitTx(ctx context.Context, batch []sale.Pending, how lookup) ([]sale.Decision, error) {
	p := &plan{db: l.db, batch: batch, how: how, out: make([]sale.Decision, len(batch)), from: l.from}
	if err := l.by.call(ctx, toDB, "look up", batch[0].Token, p.read); err != nil {
		return nil, err
	}
	for i := range batch {
		if err := p.decide(i); errors.Is(err, sale.ErrTransient) {
			return nil, l.by.call(ctx, toDB, "roll back", batch[0].Token, func() error { return err })
		} else if err != nil {
			return nil, err
		}
	}
	if err := l.by.call(ctx, toDB, "decide", batch[0].Token, p.write); err != nil {
		return nil, err
	}
	return p.out, nil
}

// plan is plan of package ledger: one batch on its way to its decisions.
type plan struct {
	db    *database
	batch []sale.Pending
	how   lookup
	from  origin

	known    map[string]sale.Decision
	byUser   map[userKey]string // token of the order a user has
	acts     map[string]activityRow
	boundary map[string]map[int]int64
	held     map[string]int64 // epochs that have no boundary as long as this transaction holds the activity's row

	out     []sale.Decision
	first   map[string]int
	planned map[userKey]int
	fresh   []int
}

// read is the lookup of one transaction.
func (p *plan) read() error {
	p.held = map[string]int64{}
	p.known, p.byUser, p.acts = map[string]sale.Decision{}, map[userKey]string{}, map[string]activityRow{}
	p.boundary, p.first, p.planned = map[string]map[int]int64{}, map[string]int{}, map[userKey]int{}
	for i := range p.batch {
		m := &p.batch[i]
		if !storable(m) {
			continue
		}
		if step := p.db.decided(m.Token); step != nil {
			d := sale.Decision{Reservation: sale.Reservation{UserID: step.UserID}}
			if r := p.db.refusal(m.Token); r != nil {
				d = *r
			}
			if o := p.db.byToken[m.Token]; o != nil {
				d = o.decision()
				if o.UserID == m.UserID { // an order that was read is known for its user, too
					p.byUser[userKey{o.ActivityID, o.UserID}] = o.RequestToken
				}
			}
			p.known[m.Token] = d
			continue
		}
		if o := p.db.byUser[userKey{m.ActivityID, m.UserID}]; o != nil && p.how != tokensOnly {
			p.byUser[userKey{m.ActivityID, m.UserID}] = o.RequestToken
		}
		if a := p.db.acts[m.ActivityID]; a != nil {
			c := *a
			c.Activity = a.copy()
			p.acts[m.ActivityID] = c
			p.boundary[m.ActivityID] = a.boundary[a.Epoch]
		}
	}
	return nil
}

func (p *plan) decide(i int) error {
	m := &p.batch[i]
	if !storable(m) {
		p.out[i] = refuse(m, sale.ReasonInvalid)
		return nil
	}
	j, again := p.first[m.Token]
	if again && m.UserID == p.batch[j].UserID {
		p.out[i] = p.out[j]
		p.out[i].Repeated = true
		return nil
	}
	if d, known := p.known[m.Token]; again && (!known || d.UserID != m.UserID) {
		p.out[i] = refuse(m, sale.ReasonInvalid)
		return nil
	}
	p.first[m.Token] = i
	if d, ok := p.known[m.Token]; ok {
		if d.UserID != m.UserID {
			p.out[i] = refuse(m, sale.ReasonInvalid)
			return nil
		}
		if !d.Ordered {
			d.Price = m.Price
		}
		d.Epoch, d.At, d.Repeated = m.Epoch, m.At, true
		p.out[i] = d
		return nil
	}
	d, err := p.decideFresh(i)
	if err != nil {
		return err
	}
	p.out[i] = d
	p.fresh = append(p.fresh, i)
	return nil
}

func (p *plan) decideFresh(i int) (sale.Decision, error) {
	m := &p.batch[i]
	key := userKey{m.ActivityID, m.UserID}
	first := p.byUser[key]
	if j, ok := p.planned[key]; ok && first == "" {
		first = p.batch[j].Token
	}
	if first != "" {
		d := refuse(m, sale.ReasonParticipated)
		d.FirstToken = first
		return d, nil
	}
	if p.how == andRefuse {
		return refuse(m, sale.ReasonInvalid), nil
	}
	a, ok := p.acts[m.ActivityID]
	reason := p.check(m, &a, ok)
	if reason != "" && p.how == tokensOnly {
		return sale.Decision{}, errLookCloser
	}
	if reason != "" {
		return refuse(m, reason), nil
	}
	if p.how == andSoldOut {
		d := refuse(m, "")
		d.SoldOut, d.Status = true, sale.StatusSoldOut
		return d, nil
	}
	if n, err := sale.TableOfOrderNo(m.OrderNo); err != nil || n != sale.TableOf(m.UserID) {
		return sale.Decision{}, errBadNumber
	}
	p.planned[key] = i
	return sale.Decision{
		Reservation: m.Reservation, Ordered: true, OrderNo: m.OrderNo, Status: sale.StatusPendingPayment, Version: 1,
		PayBefore: sale.FromMillis(a.PayBefore(m.At, p.db.ms()).UnixMilli()),
	}, nil
}

func (p *plan) check(m *sale.Pending, a *activityRow, known bool) sale.Reason {
	if !known {
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
		return sale.ReasonSaleEnded
	}
	if p.db.bugs.NoEpoch || m.Epoch >= a.Epoch {
		return ""
	}
	if a.boundaryEpoch != a.Epoch {
		p.held[m.ActivityID] = a.Epoch
		return ""
	}
	if m.Offset >= p.boundary[m.ActivityID][m.Partition] {
		return sale.ReasonExpired
	}
	return ""
}

// storable is as of package ledger.
func storable(m *sale.Pending) bool {
	return m.UserID > 0 && sale.ValidToken(m.Token) && sale.ValidID(m.ActivityID) && sale.ValidID(m.CommodityID)
}

func refuse(m *sale.Pending, why sale.Reason) sale.Decision {
	return sale.Decision{Reservation: m.Reservation, Reason: why, Status: sale.StatusFailed, Version: 1}
}

// write stores the new decisions, all or none.
func (p *plan) write() error {
	for id, epoch := range p.held {
		if a := p.db.acts[id]; a.Epoch != epoch || a.boundaryEpoch == epoch {
			return fmt.Errorf("activity %s is being rebuilt: %w", id, sale.ErrTransient)
		}
	}
	sold, numbers := map[string]int64{}, map[string]bool{}
	for _, i := range p.fresh {
		d := &p.out[i]
		if p.db.decided(d.Token) != nil && !p.db.bugs.DecisionNotUnique {
			return errDuplicate
		}
		if !d.Ordered {
			continue
		}
		if p.db.byToken[d.Token] != nil || p.db.byUser[userKey{d.ActivityID, d.UserID}] != nil || p.db.byNo[d.OrderNo] != nil || numbers[d.OrderNo] {
			return errDuplicate
		}
		numbers[d.OrderNo] = true
		sold[d.CommodityID] += int64(d.Quantity)
	}
	for _, i := range p.fresh {
		d := &p.out[i]
		if !d.Ordered {
			continue
		}
		it := p.db.acts[d.ActivityID].Item(d.CommodityID)
		if it.Sold+sold[d.CommodityID] > it.Total {
			return errSoldOut
		}
	}
	for _, i := range p.fresh {
		p.db.store(&p.batch[i], &p.out[i], p.from)
	}
	return nil
}

// store writes one decision: its two rows in the log, and its order if it is one.
func (db *database) store(m *sale.Pending, d *sale.Decision, by origin) {
	if db.bugs.SecondTokenUndecided && d.Reason == sale.ReasonParticipated {
		return
	}
	to := sale.TokenReleased
	if d.Ordered {
		to = sale.TokenCommitted
	}
	at := db.ms()
	row := logRow{Step: sale.Step{
		Token: d.Token, UserID: d.UserID, To: sale.TokenOccupied, Status: sale.StatusProcessing, Role: by.role, Node: by.node, At: m.At,
	}, activityID: d.ActivityID, commodityID: d.CommodityID, quantity: d.Quantity}
	if m.At.IsZero() { // counts as made now
		row.At = at
	}
	decision := row
	decision.Version, decision.From, decision.To, decision.Status = 1, sale.TokenOccupied, to, d.Status
	decision.Reason, decision.firstToken, decision.At = string(d.Reason), d.FirstToken, at
	db.log[d.Token] = append(db.log[d.Token], row, decision)
	if !d.Ordered {
		kept := *d
		kept.Epoch, kept.At = 0, at
		kept.Price = kept.Price.Sub(kept.Price) // the log keeps no price
		db.refusals = append(db.refusals, sale.SnapshotEntry{Decision: kept, Returned: -1, At: at})
		return
	}
	amount, err := sale.Amount(d.Price, d.Quantity)
	if err != nil {
		panic("BUG: checked before: " + err.Error())
	}
	o := &orderRow{
		Order: sale.Order{
			OrderNo: d.OrderNo, RequestToken: d.Token, UserID: d.UserID, ActivityID: d.ActivityID, CommodityID: d.CommodityID,
			Quantity: d.Quantity, PayAmount: sale.FormatMoney(amount), Status: sale.StatusPendingPayment, Version: 1, CreatedAt: at,
			PayBefore: d.PayBefore, ToldVersion: 1,
		},
		returned: -1, price: d.Reservation,
	}
	db.orders = append(db.orders, o)
	db.byToken[d.Token], db.byNo[d.OrderNo] = o, o
	db.byUser[userKey{d.ActivityID, d.UserID}] = o
	db.acts[d.ActivityID].Item(d.CommodityID).Sold += int64(d.Quantity)
}
