package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"seckill/internal/sale"
)

// closeUnpaid closes the orders whose pay deadline is over. Deadlines lie at or before the sale's end plus grace, but
// for orders decided late, so this is the batch after the sale too (S23, R16). Users are told by the next step.
func (r *Reconciler) closeUnpaid(ctx context.Context) error {
	closed, err := r.d.Ledger.CloseUnpaid(ctx, r.d.Now(), r.cfg.TaskBatch)
	if n := len(closed); n > 0 {
		r.d.Log.Info("reconciler: closed unpaid orders", "orders", n)
	}
	if err != nil {
		return fmt.Errorf("close unpaid: %w", err)
	}
	return nil
}

// settle ends a sale for good: past its end, with nothing undecided in Redis, in the queue or in the database, and no
// promotion to come. Until then it is looked at again each second (S22).
func (w *round) settle(ctx context.Context) error {
	now := w.r.d.Now()
	var errs []error
	for _, a := range w.activities {
		if now.Before(a.EndsAt) || w.rebuilding[a.ID] {
			continue
		}
		if a.State != sale.StateEnded {
			errs = append(errs, w.move(ctx, a, sale.StateEnded))
			continue
		}
		if now.Before(a.EndsAt.Add(a.CloseGrace)) || now.Before(a.WaitlistUntil) {
			continue
		}
		if !w.sound[a.ID] { // nobody looks at a settled sale any more: what Redis has lost must be made good before
			continue
		}
		if err := w.endLines(ctx, a); err != nil { // nobody would: see load
			errs = append(errs, err)
			continue
		}
		done, err := w.allDone(ctx, a)
		if err == nil && done {
			err = w.move(ctx, a, sale.StateSettled)
			w.r.d.Log.Info("reconciler: settled", "activity", a.ID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (w *round) move(ctx context.Context, a *sale.Activity, to sale.State) error {
	from := []sale.State{sale.StateScheduled, sale.StatePaused, sale.StateEnded}
	if err := w.r.d.Ledger.SetActivityState(ctx, a.ID, from, to); err != nil && !errors.Is(err, sale.ErrConflict) {
		return fmt.Errorf("%s becomes %s: %w", a.ID, to, err)
	}
	return nil
}

// allDone: no reservation occupied, every message there was when we looked is finished, and no order unpaid, untold or
// on its way back.
func (w *round) allDone(ctx context.Context, a *sale.Activity) (bool, error) {
	rs, err := w.r.d.Stock.Occupied(ctx, a.ID, w.r.d.Now().Add(time.Hour), 1)
	if err != nil || len(rs) > 0 {
		return false, err
	}
	passed, err := w.passed(ctx, a.ID)
	if err != nil || !passed {
		return false, err
	}
	unpaid, untold, returning, err := w.r.d.Ledger.Open(ctx, a.ID)
	return err == nil && unpaid+untold+returning == 0, err
}

// passed reports whether the consumers have finished every message that was in the queue when this was first asked
// for the activity: none that can concern it comes later, since nothing of it was occupied then.
func (w *round) passed(ctx context.Context, activityID string) (bool, error) {
	ends, ok := w.ends[activityID]
	if !ok {
		var err error
		if ends, err = w.r.d.Offsets.EndOffsets(ctx); err != nil {
			return false, err
		}
		w.ends[activityID] = ends
	}
	committed, err := w.r.d.Offsets.Committed(ctx)
	return err == nil && lag(ends, committed) == 0, err
}
