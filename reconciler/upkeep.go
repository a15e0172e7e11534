package reconciler

import (
	"context"
	"fmt"

	"seckill/internal/sale"
)

// auditWhenDue audits every AuditInterval, and soon after an audit that found something. At the start of a term at once:
// what was lost while nobody led shows here.
func (w *round) auditWhenDue() {
	now := w.r.d.Now()
	since := now.Sub(w.lastAudit)
	if !w.loaded || w.auditing || since < w.r.cfg.AuditInterval && (since < auditAgain || !w.auditSoon.Load()) {
		return
	}
	w.auditSoon.Store(false)
	w.lastAudit = now
	w.auditAll()
}

// auditAll compares every sale that is not settled with the database, beside the rounds. A difference that is still
// there at the next audit is mended: one look may fall between two steps of a crash that is being made good (S25).
func (w *round) auditAll() {
	var ids []string
	for _, a := range w.activities {
		if !w.rebuilding[a.ID] && !w.gone(a) {
			ids = append(ids, a.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	w.auditing = true
	w.rebuilds.Go(func() {
		total := 0
		for _, id := range ids {
			n, err := w.auditOne(w.term, id)
			if err != nil && w.term.Err() == nil {
				w.r.d.Log.Warn("reconciler: audit", "activity", id, "err", err)
			}
			total += n
		}
		w.r.differences.Set(float64(total))
		select {
		case w.audited <- struct{}{}:
		case <-w.term.Done():
		}
	})
}

func (w *round) auditOne(ctx context.Context, id string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, w.r.cfg.AuditTimeout)
	defer cancel()
	rep, err := w.r.d.Audit(ctx, id, false)
	if err != nil {
		return 0, err
	}
	if rep.OK() {
		delete(w.differed, id)
		return 0, nil
	}
	w.r.d.Log.Error("reconciler: redis and the database differ", "activity", id, "differences", len(rep.Differences), "first", fmt.Sprintf("%+v", rep.Differences[0]))
	if !w.differed[id] {
		w.differed[id] = true
		w.auditSoon.Store(true)
		return len(rep.Differences), nil
	}
	delete(w.differed, id)
	_, err = w.r.d.Audit(ctx, id, true)
	return len(rep.Differences), err
}

// cleanUp removes the Redis keys of settled sales whose retention is over, in small steps. They have lifetimes of their
// own; this is for what a lifetime was lost on (S27).
func (w *round) cleanUp(ctx context.Context, all []*sale.Activity) {
	for _, a := range all {
		if a.State != sale.StateSettled || !w.gone(a) || w.purged[a.ID] {
			continue
		}
		w.r.step(ctx, "clean up "+a.ID, func(ctx context.Context) error {
			if err := w.r.d.Stock.Purge(ctx, a.ID); err != nil {
				return err
			}
			w.purged[a.ID] = true
			return nil
		})
	}
}
