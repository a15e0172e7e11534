package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"seckill/internal/sale"
)

// RaiseEpoch starts a rebuild (R10): it raises the epoch of an activity and returns the new one; epoch_at notes when, for
// whoever looks into the database. fence is the
// leader's fence number; a leader that has been replaced by one with a higher fence gets sale.ErrConflict.
func (l *Ledger) RaiseEpoch(ctx context.Context, id string, fence int64) (int64, error) {
	var epoch int64
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		now := l.nowMS()
		n, err := affected(t.ExecContext(ctx, "UPDATE activity SET epoch = epoch + 1, epoch_at = ?, fence = ?, updated_at = ? "+
			"WHERE id = ? AND fence <= ?", now, fence, now, knownID(id), fence))
		if err != nil {
			return err
		}
		if n == 0 {
			return l.missingActivity(ctx, t, id)
		}
		return t.QueryRowContext(ctx, "SELECT epoch FROM activity WHERE id = ?", id).Scan(&epoch)
	})
	if err != nil {
		return 0, fmt.Errorf("raise epoch of %.40q: %w", id, err)
	}
	return epoch, nil
}

// Suspect records that a process, of whatever role, has seen Redis lose data of an activity at this epoch (R15): the
// epoch is raised, so that what Redis holds no longer fits the database and the leader rebuilds it. Of many processes
// that see the same, one raises it; the others change nothing.
func (l *Ledger) Suspect(ctx context.Context, id string, epoch int64) error {
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		now := l.nowMS()
		_, err := t.ExecContext(ctx, "UPDATE activity SET epoch = epoch + 1, epoch_at = ?, updated_at = ? WHERE id = ? AND epoch = ? AND state NOT IN (?,?)",
			now, now, knownID(id), epoch, string(sale.StateDraft), string(sale.StateSettled))
		return err
	})
	if err != nil {
		return fmt.Errorf("suspect epoch %d of %.40q: %w", epoch, id, err)
	}
	return nil
}

// SaveBoundary stores the end offsets of the topic at this epoch, by partition: an undecided token of an older
// epoch at or above them is refused; a partition not listed counts as 0 (R10). A repeat replaces them. Errors:
// sale.ErrConflict when the activity has another epoch by now, sale.ErrNotFound.
func (l *Ledger) SaveBoundary(ctx context.Context, id string, epoch int64, offsets map[int]int64) error {
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		n, err := affected(t.ExecContext(ctx, "UPDATE activity SET boundary_epoch = ? WHERE id = ? AND epoch = ?", epoch, knownID(id), epoch))
		if err != nil {
			return err
		}
		if n == 0 {
			return l.missingActivity(ctx, t, id)
		}
		if _, err := t.ExecContext(ctx, "DELETE FROM epoch_boundary WHERE activity_id = ? AND epoch = ?", id, epoch); err != nil {
			return err
		}
		for _, p := range slices.Sorted(maps.Keys(offsets)) {
			_, err := t.ExecContext(ctx, "INSERT INTO epoch_boundary (activity_id, epoch, `partition`, `offset`) VALUES (?,?,?,?)",
				id, epoch, p, offsets[p])
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("save boundary of %.40q: %w", id, err)
	}
	return nil
}

// RebuildSnapshot reads an activity, its orders, its refusals and its user lists from the primary, all as of one
// moment (R10, R11). It holds no locks. Its memory grows with the decisions of the activity, a few hundred bytes
// each.
func (l *Ledger) RebuildSnapshot(ctx context.Context, id string) (*sale.Snapshot, error) {
	s := &sale.Snapshot{}
	err := l.inSnapshot(ctx, func(ctx context.Context, t tx) error {
		list, err := l.activities(ctx, t, "WHERE id = ?", knownID(id))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return sale.ErrNotFound
		}
		s.Activity = *list[0]
		for n := range sale.Tables {
			if err := l.snapshotOrders(ctx, t, n, s); err != nil {
				return err
			}
		}
		for n := range sale.Tables {
			if err := l.snapshotRefusals(ctx, t, n, s); err != nil {
				return err
			}
		}
		if s.Blocked, err = l.userList(ctx, t, id, ListBlocked); err != nil {
			return err
		}
		s.Eligible, err = l.userList(ctx, t, id, ListEligible)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot of %.40q: %w", id, err)
	}
	return s, nil
}

// inSnapshot runs reads that must agree with one another: REPEATABLE READ in MySQL, where the view is taken by
// the first read; a read transaction in SQLite.
func (l *Ledger) inSnapshot(ctx context.Context, fn func(ctx context.Context, t tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.opt.SnapshotTimeout)
	defer cancel()
	t, err := l.read.BeginTx(ctx, l.d.snapshot)
	if err != nil {
		return l.d.classify(err)
	}
	defer func() { _ = t.Rollback() }() // it has only read
	return l.d.classify(fn(ctx, t))
}

func (l *Ledger) snapshotOrders(ctx context.Context, t tx, n int, s *sale.Snapshot) error {
	return l.query(ctx, t, func(r *sql.Rows) error {
		row, err := scanOrder(r)
		if err != nil {
			return err
		}
		d, err := row.decision()
		if err != nil {
			return err
		}
		s.Entries = append(s.Entries, sale.SnapshotEntry{Decision: d, Returned: row.returned, At: row.CreatedAt})
		return nil
	}, "SELECT "+orderColumns+" FROM "+orderTable(n)+" WHERE activity_id = ?", s.Activity.ID)
}

func (l *Ledger) snapshotRefusals(ctx context.Context, t tx, n int, s *sale.Snapshot) error {
	return l.query(ctx, t, func(r *sql.Rows) error {
		row, err := scanLog(r)
		if err != nil {
			return err
		}
		s.Entries = append(s.Entries, sale.SnapshotEntry{Decision: row.refusal(), Returned: -1, At: row.At})
		return nil
	}, "SELECT "+logColumns+" FROM "+logTable(n)+" WHERE activity_id = ? AND status IN (?,?)",
		s.Activity.ID, logSoldOut, logFailed)
}
