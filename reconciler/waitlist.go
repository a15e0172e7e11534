package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"seckill/internal/sale"
)

// returnUnits gives the units of cancelled and closed orders back: to the first in the waitlist while promotion goes
// on, else to stock. The database has recorded that they are to return; the script moves each token once; then the row
// says so (R5, R12, S24).
func (w *round) returnUnits(ctx context.Context) error {
	rs, err := w.r.d.Ledger.PendingReturns(ctx, w.r.cfg.TaskBatch)
	if err != nil {
		return fmt.Errorf("pending returns: %w", err)
	}
	var errs []error
	for _, ret := range rs {
		if w.rebuilding[ret.ActivityID] {
			continue
		}
		if err := w.returnOne(ctx, ret); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (w *round) returnOne(ctx context.Context, ret sale.Return) error {
	var found sale.Settlement
	var epoch int64
	var err error
	if w.promotes(ret.ActivityID) {
		found, epoch, err = w.promote(ctx, ret)
	} else {
		var each []sale.Settlement
		if each, epoch, err = w.r.d.Stock.Return(ctx, ret.ActivityID, []sale.Return{ret}); err == nil {
			found = each[0]
		}
	}
	if err != nil {
		return fmt.Errorf("return the unit of %s: %w", ret.Token, err)
	}
	if a := w.activity(ret.ActivityID); found == sale.SettleNotYet && a != nil && w.gone(a) {
		found, epoch = sale.SettleAlready, a.Epoch // without Redis once the keys are gone (R5)
	}
	if found != sale.SettleDone && found != sale.SettleAlready {
		return nil
	}
	err = w.r.d.Ledger.MarkReturned(ctx, ret.Token, ret.UserID, epoch)
	if err != nil && !errors.Is(err, sale.ErrConflict) { // a conflict: marked before, or to be returned anew after a rebuild
		return fmt.Errorf("mark returned: %w", err)
	}
	return nil
}

// promotes reports whether units of a sale still go to its waitlist.
func (w *round) promotes(activityID string) bool {
	a := w.activity(activityID)
	return a != nil && w.r.d.Now().Before(a.WaitlistUntil)
}

// activity is one of those that are warmed up and not settled, or nil.
func (w *round) activity(activityID string) *sale.Activity {
	for _, a := range w.activities {
		if a.ID == activityID {
			return a
		}
	}
	return nil
}

// promoteTries bounds how often a moved line is looked at again in one round.
const promoteTries = 5

// promote gives the unit to the head of the line: a new reservation, published through the same queue as any other. If
// this process dies before the publish, the relay does it.
func (w *round) promote(ctx context.Context, ret sale.Return) (found sale.Settlement, epoch int64, err error) {
	tokenFor := func(user int64) string { return w.r.d.PromotedToken(ret.Token, user, ret.ActivityID) }
	for range promoteTries {
		line, err := w.head(ctx, ret)
		if errors.Is(err, sale.ErrConflict) {
			continue
		}
		if err != nil {
			return "", 0, err
		}
		p, err := w.r.d.Stock.Promote(ctx, ret, w.r.d.Now(), line, tokenFor)
		if errors.Is(err, sale.ErrConflict) {
			continue
		}
		if err != nil {
			return "", 0, err
		}
		w.promoted(ctx, &p)
		return p.Found, p.Epoch, nil
	}
	return sale.SettleNotYet, 0, nil
}

// head reads who is first in line for a unit. Redis only proposes: it may have gone back to a time before somebody left.
// Those who do not wait, as the database has it, are taken out; then the line has moved, sale.ErrConflict.
func (w *round) head(ctx context.Context, ret sale.Return) ([]int64, error) {
	line, err := w.r.d.Stock.Waiting(ctx, ret.ActivityID, ret.CommodityID, w.r.cfg.LineLook)
	if err != nil || len(line) == 0 {
		return nil, err
	}
	gone, err := w.r.d.Ledger.NotWaiting(ctx, ret.ActivityID, ret.CommodityID, line)
	if err != nil {
		return nil, err
	}
	if len(gone) > 0 {
		if err := w.r.d.Stock.DropWaiters(ctx, ret.ActivityID, ret.CommodityID, gone); err != nil {
			return nil, err
		}
		return nil, sale.ErrConflict
	}
	users := make([]int64, len(line))
	for i := range line {
		users[i] = line[i].UserID
	}
	return users, nil
}

// promoted publishes and records what a promotion has reserved.
func (w *round) promoted(ctx context.Context, p *sale.Promotion) {
	for _, e := range w.r.d.Queue.Publish(ctx, p.Reservations) {
		if e != nil {
			w.r.d.Log.Warn("reconciler: publish of a promotion uncertain, left to the relay", "err", e)
		}
	}
	for _, res := range p.Reservations {
		waiter := sale.Waiter{ActivityID: res.ActivityID, CommodityID: res.CommodityID, UserID: res.UserID}
		if err := w.r.d.Ledger.MarkPromoted(ctx, waiter, res.Token); err != nil {
			w.r.d.Log.Warn("reconciler: mark promoted", "err", err) // the next rebuild skips who takes part
		}
		w.r.d.Log.Info("reconciler: promoted from the waitlist", "activity", res.ActivityID, "commodity", res.CommodityID, "user", res.UserID)
	}
}

// fillWaitlist writes the lines of a sale into Redis during its rebuild. Users come and go meanwhile, each in the database
// first and then in Redis. Who joins after the reading stands in line by that alone. Who leaves after it may have been taken
// out of Redis before this writes, and would be back in line: so those written are looked up once more, and who is gone is
// taken out. One who leaves after that look is taken out by the leaving itself, which comes after the writing (R12).
func (r *Reconciler) fillWaitlist(ctx context.Context, activityID string, epoch int64) error {
	ws, err := r.d.Ledger.Waiters(ctx, activityID)
	if err != nil {
		return err
	}
	byItem := map[string][]sale.Waiter{}
	for _, w := range ws {
		byItem[w.CommodityID] = append(byItem[w.CommodityID], w)
	}
	for commodity, list := range byItem {
		if err := r.d.Stock.FillWaitlist(ctx, activityID, commodity, epoch, list); err != nil {
			return err
		}
		for some := range slices.Chunk(list, r.cfg.TaskBatch) {
			gone, err := r.d.Ledger.NotWaiting(ctx, activityID, commodity, some)
			if err != nil {
				return err
			}
			if err := r.d.Stock.DropWaiters(ctx, activityID, commodity, gone); err != nil {
				return err
			}
		}
	}
	return nil
}

// places tells waiters their place when it changed, and ends the lines whose promotion is over.
func (w *round) places(ctx context.Context) error {
	now := w.r.d.Now()
	var changed []sale.Place
	for _, a := range w.activities {
		if w.rebuilding[a.ID] || now.Before(a.StartsAt) {
			continue
		}
		if !now.Before(a.WaitlistUntil) {
			if err := w.endLines(ctx, a); err != nil {
				return err
			}
			continue
		}
		for _, it := range a.Items {
			line, err := w.r.d.Stock.Waiting(ctx, a.ID, it.CommodityID, w.r.cfg.PlacesTold)
			if err != nil {
				return err
			}
			changed = append(changed, w.moved(a.ID, it.CommodityID, line)...)
		}
	}
	if err := w.r.d.Announcer.Places(ctx, changed); err != nil {
		w.line = map[string]map[int64]int64{} // told again in the next round
		return err
	}
	return nil
}

// moved compares a line with what was told last and returns the places that changed; 0 for who left it.
func (w *round) moved(activityID, commodityID string, line []sale.Waiter) (changed []sale.Place) {
	key := activityID + "/" + commodityID
	before := w.line[key]
	after := make(map[int64]int64, len(line))
	place := func(user, position int64) {
		changed = append(changed, sale.Place{UserID: user, ActivityID: activityID, CommodityID: commodityID, Position: position, At: w.r.d.Now()})
	}
	for i := range line {
		user, position := line[i].UserID, int64(i+1)
		after[user] = position
		if before[user] != position {
			place(user, position)
		}
	}
	for user := range before {
		if _, still := after[user]; !still {
			place(user, 0)
		}
	}
	if len(after) == 0 {
		delete(w.line, key)
	} else {
		w.line[key] = after
	}
	return changed
}

// endLines expires the waitlists of a sale once: in the database, then in Redis.
func (w *round) endLines(ctx context.Context, a *sale.Activity) error {
	if w.ended[a.ID] {
		return nil
	}
	gone, err := w.r.d.Ledger.ExpireWaitlist(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, g := range gone { // the database answers this once: kept until they are told
		w.expired[a.ID] = append(w.expired[a.ID], sale.Place{UserID: g.UserID, ActivityID: a.ID, CommodityID: g.CommodityID, At: w.r.d.Now()})
	}
	for _, it := range a.Items {
		if err := w.r.d.Stock.DropWaitlist(ctx, a.ID, it.CommodityID); err != nil {
			return err
		}
	}
	if err := w.r.d.Announcer.Places(ctx, w.expired[a.ID]); err != nil {
		return err
	}
	delete(w.expired, a.ID)
	w.ended[a.ID] = true
	return nil
}
