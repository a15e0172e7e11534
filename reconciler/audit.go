package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"seckill/internal/sale"
)

// AuditStock is what an audit asks of Redis.
type AuditStock interface {
	Audit(ctx context.Context, activityID string, commodityIDs, closed []string) (sale.StockAudit, error)
	Repair(ctx context.Context, activityID string, epoch, seq int64, units map[string]int64) error
	Settle(ctx context.Context, activityID string, ds []sale.Decision) ([]sale.Settlement, error)
	Marks(ctx context.Context, activityID string) (map[int64]string, error)
	SetMark(ctx context.Context, activityID string, userID int64, was, token string) error
	Result(ctx context.Context, activityID, token string) (sale.UserResult, bool, error)
}

// AuditLedger is what an audit asks of the database.
type AuditLedger interface {
	RebuildSnapshot(ctx context.Context, id string) (*sale.Snapshot, error)
	PendingReturns(ctx context.Context, limit int) ([]sale.Return, error)
}

// Auditor compares a sale in Redis with the database, and repairs Redis. It may run in any process, beside the sale,
// and beside another audit: whatever it writes is conditional on what it has read (R13).
type Auditor struct {
	stock  AuditStock
	ledger AuditLedger
}

// NewAuditor returns an auditor.
func NewAuditor(stock AuditStock, ledger AuditLedger) *Auditor { return &Auditor{stock, ledger} }

// auditTries bounds how often an audit starts again because the sale moved while it looked.
const auditTries = 20

// maxDifferences bounds a report.
const maxDifferences = 1000

// Audit reports the differences of one sale; with repair it also mends those in Redis. It starts again when the sale
// moves between the two looks; sale.ErrConflict when it never stood still.
func (a *Auditor) Audit(ctx context.Context, activityID string, repair bool) (*sale.AuditReport, error) {
	var err error
	for range auditTries {
		var rep *sale.AuditReport
		if rep, err = a.once(ctx, activityID, repair); err == nil {
			return rep, nil
		}
		if !errors.Is(err, sale.ErrConflict) {
			break
		}
	}
	return nil, fmt.Errorf("audit %s: %w", activityID, err)
}

// look is what one try has read: Redis first, then the database, so that a decision made in between is known.
type look struct {
	redis     sale.StockAudit
	snap      *sale.Snapshot
	decisions map[string]*sale.SnapshotEntry // by token
	marks     map[int64]string
	rep       *sale.AuditReport
}

func (a *Auditor) once(ctx context.Context, activityID string, repair bool) (*sale.AuditReport, error) {
	v, err := a.read(ctx, activityID)
	if err != nil {
		return nil, err
	}
	if !v.redis.Ready {
		v.differ("not_ready", activityID, "the sale is not in Redis or is being rebuilt")
		return v.rep, nil
	}
	fix := v.balance()
	if len(fix) > 0 && repair {
		if err := a.stock.Repair(ctx, activityID, v.redis.Epoch, v.redis.Seq, fix); err != nil {
			return nil, err
		}
		v.repaired("stock")
	} else if len(fix) > 0 {
		// Only a difference that stands still is one.
		again, err := a.stock.Audit(ctx, activityID, nil, nil)
		if err != nil {
			return nil, err
		}
		if again.Seq != v.redis.Seq || again.Epoch != v.redis.Epoch {
			return nil, sale.ErrConflict
		}
	}
	if err := a.unsettled(ctx, v, repair); err != nil {
		return nil, err
	}
	return v.rep, a.compareMarks(ctx, v, repair)
}

func (a *Auditor) read(ctx context.Context, activityID string) (*look, error) {
	returns, err := a.ledger.PendingReturns(ctx, maxDifferences)
	if err != nil {
		return nil, err
	}
	var closed []string
	for _, r := range returns {
		if r.ActivityID == activityID {
			closed = append(closed, r.Token)
		}
	}
	first, err := a.ledger.RebuildSnapshot(ctx, activityID)
	if err != nil {
		return nil, err
	}
	var items []string
	for _, it := range first.Activity.Items {
		items = append(items, it.CommodityID)
	}
	v := &look{decisions: map[string]*sale.SnapshotEntry{}, rep: &sale.AuditReport{ActivityID: activityID}}
	if v.redis, err = a.stock.Audit(ctx, activityID, items, closed); err != nil {
		return nil, err
	}
	if v.marks, err = a.stock.Marks(ctx, activityID); err != nil {
		return nil, err
	}
	if v.redis.Truncated {
		return nil, fmt.Errorf("too many undecided reservations to audit: %w", sale.ErrTransient)
	}
	if v.snap, err = a.ledger.RebuildSnapshot(ctx, activityID); err != nil {
		return nil, err
	}
	for i := range v.snap.Entries {
		e := &v.snap.Entries[i]
		v.decisions[e.Token] = e
		if e.Returned == 0 && !slices.Contains(closed, e.Token) {
			// Ended since the returns were read: whether Redis has its unit back was not asked.
			return nil, fmt.Errorf("an order has ended meanwhile: %w", sale.ErrConflict)
		}
	}
	return v, nil
}

func (v *look) differ(kind, id, detail string) {
	if len(v.rep.Differences) < maxDifferences {
		v.rep.Differences = append(v.rep.Differences, sale.Difference{Kind: kind, ID: id, Detail: detail})
	}
}

func (v *look) repaired(kind string) {
	for i := range v.rep.Differences {
		if v.rep.Differences[i].Kind == kind {
			v.rep.Differences[i].Repaired = true
		}
	}
}

// balance works out each item and returns the stock that Redis should have where it differs.
func (v *look) balance() map[string]int64 {
	occupied, returning, orders := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, r := range v.redis.Occupied {
		// Undecided, or refused with its unit still to be given back by the settling.
		if d := v.decisions[r.Token]; d == nil || !d.Ordered && !d.SoldOut {
			occupied[r.CommodityID] += int64(r.Quantity)
		}
	}
	for i := range v.snap.Entries {
		e := &v.snap.Entries[i]
		switch {
		case e.Ordered && (e.Status == sale.StatusPendingPayment || e.Status == sale.StatusPaid):
			orders[e.CommodityID] += int64(e.Quantity)
		case e.Returned == 0 && v.redis.Closed[e.Token] != sale.TokenReleased:
			returning[e.CommodityID] += int64(e.Quantity)
		}
	}
	fix := map[string]int64{}
	for _, it := range v.snap.Activity.Items {
		have, ok := v.redis.Stock[it.CommodityID]
		if !ok {
			have = -1
		}
		item := sale.AuditItem{
			CommodityID: it.CommodityID, Total: it.Total, RedisStock: have, Occupied: occupied[it.CommodityID],
			Returning: returning[it.CommodityID], Sold: it.Sold, Orders: orders[it.CommodityID],
		}
		v.rep.Items = append(v.rep.Items, item)
		if item.Orders != item.Sold {
			v.differ("orders", it.CommodityID, fmt.Sprintf("%d units in orders, sold_count %d", item.Orders, item.Sold))
		}
		want := item.Total - item.Sold - item.Occupied - item.Returning
		if have != want {
			v.differ("stock", it.CommodityID, fmt.Sprintf("redis has %d, should have %d", have, want))
			if have >= 0 && want >= 0 {
				fix[it.CommodityID] = want
			}
		}
	}
	return fix
}

// unsettled finds tokens that are decided in the database but occupied in Redis; it settles them, as the consumer does.
func (a *Auditor) unsettled(ctx context.Context, v *look, repair bool) error {
	var ds []sale.Decision
	for _, r := range v.redis.Occupied {
		if d := v.decisions[r.Token]; d != nil {
			v.differ("decided_but_occupied", r.Token, "the database says "+string(d.Status))
			ds = append(ds, d.Decision)
		}
	}
	if len(ds) == 0 || !repair {
		return nil
	}
	if _, err := a.stock.Settle(ctx, v.rep.ActivityID, ds); err != nil {
		return err
	}
	v.repaired("decided_but_occupied")
	return nil
}

// compareMarks finds users who have an order but no participation mark, and marks behind which there is nothing.
func (a *Auditor) compareMarks(ctx context.Context, v *look, repair bool) error {
	known := map[string]bool{}
	for _, r := range v.redis.Occupied {
		known[r.Token] = true
	}
	mend := func(kind, id, detail string, user int64, was, token string) error {
		v.differ(kind, id, detail)
		if !repair {
			return nil
		}
		err := a.stock.SetMark(ctx, v.rep.ActivityID, user, was, token)
		if errors.Is(err, sale.ErrConflict) {
			return nil // it moved meanwhile; the next audit sees how it stands
		}
		if err == nil {
			v.rep.Differences[len(v.rep.Differences)-1].Repaired = true
		}
		return err
	}
	for i := range v.snap.Entries {
		e := &v.snap.Entries[i]
		known[e.Token] = true
		if e.Ordered && v.marks[e.UserID] != e.Token {
			if err := mend("order_without_mark", e.Token, "user "+strconv.FormatInt(e.UserID, 10), e.UserID, v.marks[e.UserID], e.Token); err != nil {
				return err
			}
		}
	}
	users := make([]int64, 0, len(v.marks))
	for user, token := range v.marks {
		if !known[token] {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	for _, user := range users {
		token := v.marks[user]
		res, ok, err := a.stock.Result(ctx, v.rep.ActivityID, token)
		if err != nil {
			return err
		}
		if ok && res.UserID == user && res.Status != sale.StatusSoldOut && res.Status != sale.StatusFailed {
			continue // reserved since the look, and perhaps an order by now
		}
		if err := mend("mark_without_order", strconv.FormatInt(user, 10), "names token "+token, user, token, ""); err != nil {
			return err
		}
	}
	return nil
}
