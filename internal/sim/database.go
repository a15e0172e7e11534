package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"seckill/internal/sale"
)

// database is what the SQL tables hold. Its methods are single transactions.
type database struct {
	now     func() time.Time
	bugs    *Bugs
	expires func() // before the waitlists end

	acts     map[string]*activityRow
	orders   []*orderRow // in the order of their ids
	byToken  map[string]*orderRow
	byUser   map[userKey]*orderRow
	byNo     map[string]*orderRow
	log      map[string][]logRow // by token, in the order of their versions
	refusals []sale.SnapshotEntry
	first    map[string]string // of a refusal as already_participated: the token that counts
	waits    map[waitKey]*waitRow
	payments map[string]*paymentRow
	leases   map[string]*leaseRow
	seen     map[string]seenRow
	maxBatch int // of one Commit
	// newOrderNo draws another order number when the one given is taken; nil: that is an error.
	newOrderNo func(user int64) string
}

type activityRow struct {
	sale.Activity
	boundaryEpoch int64
	fence         int64
	boundary      map[int64]map[int]int64 // by epoch
	blocked       []int64
	eligible      []int64
}

// logRow is one row of the token log.
type logRow struct {
	sale.Step
	activityID, commodityID string
	quantity                int
	firstToken              string
}

type orderRow struct {
	sale.Order
	returned int8 // -1: NULL
	price    sale.Reservation
}

type userKey struct {
	activityID string
	user       int64
}

type waitKey struct {
	activityID, commodityID string
	user                    int64
}

type waitRow struct {
	state  string
	joined time.Time
	token  string
}

type paymentRow struct {
	sale.Payment
	outcome sale.PaymentOutcome
}

type leaseRow struct {
	holder  string
	fence   int64
	expires time.Time
}

func newDatabase(now func() time.Time) *database {
	return &database{
		now: now, bugs: &Bugs{}, expires: func() {}, acts: map[string]*activityRow{}, byToken: map[string]*orderRow{},
		byUser: map[userKey]*orderRow{}, byNo: map[string]*orderRow{}, log: map[string][]logRow{}, first: map[string]string{},
		waits: map[waitKey]*waitRow{}, payments: map[string]*paymentRow{}, leases: map[string]*leaseRow{}, seen: map[string]seenRow{}, maxBatch: 2000,
	}
}

func (db *database) ms() time.Time { return db.now().UTC().Truncate(time.Millisecond) }

func (a *activityRow) copy() sale.Activity {
	c := a.Activity
	c.Items = slices.Clone(a.Items)
	return c
}

func (o *orderRow) decision() sale.Decision {
	return sale.Decision{
		Reservation: sale.Reservation{
			Token: o.RequestToken, UserID: o.UserID, ActivityID: o.ActivityID, CommodityID: o.CommodityID, Price: o.price.Price,
			Quantity: o.Quantity, At: o.CreatedAt,
		},
		Ordered: true, Reason: o.Order.Result().Reason, OrderNo: o.OrderNo, Status: o.Status, Version: o.Version, PayBefore: o.PayBefore,
	}
}

// decided is the first decision of a token in the log, or nil.
func (db *database) decided(token string) *logRow {
	for i := range db.log[token] {
		if db.log[token][i].Version == 1 {
			return &db.log[token][i]
		}
	}
	return nil
}

// refusal is the decision of a token that was refused.
func (db *database) refusal(token string) *sale.Decision {
	for i := range db.refusals {
		if db.refusals[i].Token == token {
			d := db.refusals[i].Decision
			return &d
		}
	}
	return nil
}

// live is how many units of an item are in orders that count.
func (db *database) live(activityID, commodity string) (units int64) {
	for _, o := range db.orders {
		if o.ActivityID == activityID && o.CommodityID == commodity && (o.Status == sale.StatusPendingPayment || o.Status == sale.StatusPaid) {
			units += int64(o.Quantity)
		}
	}
	return units
}

// move changes unpaid orders, each with its row in the log; those that end leave sold_count.
func (db *database) move(o *orderRow, to sale.Status, at time.Time, reason string, by origin) {
	o.Status = to
	o.Version++
	state := sale.TokenCommitted
	if to == sale.StatusPaid {
		o.PaidAt = at
	} else {
		o.ClosedAt, o.returned, state = at, 0, sale.TokenReleased
		db.acts[o.ActivityID].Item(o.CommodityID).Sold -= int64(o.Quantity)
	}
	db.log[o.RequestToken] = append(db.log[o.RequestToken], logRow{Step: sale.Step{
		Token: o.RequestToken, Version: o.Version, UserID: o.UserID, From: sale.TokenCommitted, To: state, Status: to, Reason: reason,
		Role: by.role, Node: by.node, At: db.ms(),
	}, activityID: o.ActivityID, commodityID: o.CommodityID, quantity: o.Quantity})
}

// change is Pay and Cancel.
func (db *database) change(orderNo string, user int64, to sale.Status, at time.Time, reason string, by origin) (*sale.Order, bool, error) {
	o := db.byNo[orderNo]
	if o == nil || o.UserID != user {
		return nil, false, sale.ErrNotFound
	}
	changed := false
	switch o.Status {
	case to:
	case sale.StatusPendingPayment:
		db.move(o, to, at.UTC().Truncate(time.Millisecond), reason, by)
		changed = true
	default:
		c := o.Order
		return &c, false, sale.ErrWrongState
	}
	c := o.Order
	return &c, changed, nil
}

// closeUnpaid is CloseUnpaid.
func (db *database) closeUnpaid(now time.Time, limit int, by origin) (closed []sale.Order) {
	var due []*orderRow
	for _, o := range db.orders {
		if o.Status == sale.StatusPendingPayment && !o.PayBefore.After(now) {
			due = append(due, o)
		}
	}
	slices.SortStableFunc(due, func(a, b *orderRow) int { return cmp.Compare(sale.TableOf(a.UserID), sale.TableOf(b.UserID)) })
	for _, o := range due[:min(limit, len(due))] {
		db.move(o, sale.StatusClosed, db.ms(), string(sale.ReasonExpired), by)
		closed = append(closed, o.Order)
	}
	return closed
}

// recordPayment is RecordPayment.
func (db *database) recordPayment(p sale.Payment, by origin) (sale.PaymentOutcome, *sale.Order, bool, error) {
	o := db.byNo[p.OrderNo]
	if o == nil {
		return "", nil, false, sale.ErrNotFound
	}
	if r := db.payments[p.ID]; r != nil {
		if r.OrderNo != p.OrderNo || !r.Amount.Equal(p.Amount) {
			return "", nil, false, sale.ErrConflict
		}
		c := o.Order
		return r.outcome, &c, false, nil
	}
	outcome, changed := sale.PaymentRefundDue, false
	switch {
	case sale.FormatMoney(p.Amount) != o.PayAmount:
	case o.Status == sale.StatusPendingPayment:
		outcome, changed = sale.PaymentPaid, true
		db.move(o, sale.StatusPaid, p.PaidAt.UTC().Truncate(time.Millisecond), "payment", by)
	case o.Status == sale.StatusPaid:
		outcome = sale.PaymentAlreadyPaid
	}
	db.payments[p.ID] = &paymentRow{p, outcome}
	c := o.Order
	return outcome, &c, changed, nil
}

// todo lists orders with work for the reconciler, table by table.
func (db *database) todo(limit int, where func(*orderRow) bool) (list []*orderRow) {
	for n := range sale.Tables {
		for _, o := range db.orders {
			if sale.TableOf(o.UserID) == n && where(o) && len(list) < limit {
				list = append(list, o)
			}
		}
	}
	return list
}

func (db *database) markReturned(token string, user, epoch int64) error {
	o := db.byToken[token]
	switch {
	case o == nil || o.UserID != user:
		return sale.ErrNotFound
	case o.returned < 0:
		return sale.ErrWrongState
	case o.returned == 1, db.acts[o.ActivityID].Epoch != epoch && !db.bugs.LateMark:
		return sale.ErrConflict
	}
	o.returned = 1
	return nil
}

func (db *database) markTold(token string, user, version int64) error {
	o := db.byToken[token]
	if o == nil || o.UserID != user {
		return sale.ErrNotFound
	}
	if o.ToldVersion < version && version <= o.Version {
		o.ToldVersion = version
	}
	return nil
}

func (db *database) raiseEpoch(id string, fence int64) (int64, error) {
	a := db.acts[id]
	if a == nil {
		return 0, sale.ErrNotFound
	}
	if a.fence > fence {
		return 0, sale.ErrConflict
	}
	a.Epoch++
	a.fence = fence
	return a.Epoch, nil
}

func (db *database) suspect(id string, epoch int64) {
	a := db.acts[id]
	if a != nil && a.Epoch == epoch && a.State != sale.StateDraft && a.State != sale.StateSettled {
		a.Epoch++
	}
}

func (db *database) saveBoundary(id string, epoch int64, offsets map[int]int64) error {
	a := db.acts[id]
	if a == nil {
		return sale.ErrNotFound
	}
	if a.Epoch != epoch {
		return sale.ErrConflict
	}
	a.boundaryEpoch = epoch
	a.boundary[epoch] = maps.Clone(offsets)
	return nil
}

// snapshot is RebuildSnapshot.
func (db *database) snapshot(id string) (*sale.Snapshot, error) {
	a := db.acts[id]
	if a == nil {
		return nil, sale.ErrNotFound
	}
	s := &sale.Snapshot{Activity: a.copy(), Blocked: slices.Clone(a.blocked), Eligible: slices.Clone(a.eligible)}
	for n := range sale.Tables {
		for _, o := range db.orders {
			if o.ActivityID == id && sale.TableOf(o.UserID) == n {
				s.Entries = append(s.Entries, sale.SnapshotEntry{Decision: o.decision(), Returned: o.returned, At: o.CreatedAt})
			}
		}
	}
	for n := range sale.Tables {
		for _, r := range db.refusals {
			if r.ActivityID == id && sale.TableOf(r.UserID) == n {
				s.Entries = append(s.Entries, r)
			}
		}
	}
	return s, nil
}

func (db *database) setState(id string, from []sale.State, to sale.State) error {
	a := db.acts[id]
	if to == sale.StateOpen || to == sale.StateNotReady || len(from) == 0 {
		return sale.ErrWrongState // never stored
	}
	if a == nil {
		return sale.ErrNotFound
	}
	if !slices.Contains(from, a.State) {
		return sale.ErrConflict
	}
	a.State = to
	return nil
}

// decisionByToken is DecisionByToken without a replica.
func (db *database) decisionByToken(activityID string, user int64, token string) (*sale.Decision, error) {
	if o := db.byToken[token]; o != nil && o.UserID == user && o.ActivityID == activityID {
		d := o.decision()
		return &d, nil
	}
	if d := db.refusal(token); d != nil && d.UserID == user && d.ActivityID == activityID {
		return d, nil
	}
	return nil, sale.ErrNotFound
}

// checkLog says what is wrong between the log of a token and its order.
func (db *database) checkLog(token string) error {
	steps, o := db.log[token], db.byToken[token]
	seen := map[int64]bool{}
	last := sale.TokenState("")
	for _, s := range steps {
		if seen[s.Version] {
			return fmt.Errorf("token %s has two log rows of version %d", token, s.Version)
		}
		seen[s.Version] = true
		if s.From != "" && s.From != s.To && !s.From.CanBecome(s.To) {
			return fmt.Errorf("token %s went %s -> %s", token, s.From, s.To)
		}
		last = s.To
	}
	switch {
	case o == nil && last == sale.TokenCommitted:
		return fmt.Errorf("token %s is logged as an order and has none", token)
	case o != nil && (!seen[0] || int64(len(steps)) != o.Version+1):
		return fmt.Errorf("order of token %s has version %d and %d log rows", token, o.Version, len(steps))
	case o != nil && o.Status != steps[len(steps)-1].Status:
		return fmt.Errorf("order of token %s is %s, the log says %s", token, o.Status, steps[len(steps)-1].Status)
	}
	return nil
}
