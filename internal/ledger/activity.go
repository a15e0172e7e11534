package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

const activityColumns = "id, title, starts_at, ends_at, pay_within_s, close_grace_s, waitlist_until, allow_list, state, epoch"

// CreateActivity stores a new activity with its items. State defaults to draft; epoch and sold counts start at 0
// whatever the struct says. A WaitlistUntil of zero means DefaultWaitlistAfterEnd after the end. Errors:
// sale.ErrExists when the id is taken, *sale.Error (invalid_request) for what Validate refuses or for durations
// that are not whole seconds.
func (l *Ledger) CreateActivity(ctx context.Context, a *sale.Activity) error {
	if err := a.Validate(); err != nil {
		return sale.Errorf(sale.CodeInvalidRequest, "%v", err)
	}
	if a.PayWithin%time.Second != 0 || a.CloseGrace%time.Second != 0 {
		return sale.Errorf(sale.CodeInvalidRequest, "payWithin, closeGrace: must be whole seconds")
	}
	state := a.State
	if state == "" {
		state = sale.StateDraft
	}
	if !storedState(state) {
		return sale.Errorf(sale.CodeInvalidRequest, "state: %q is never stored", state)
	}
	until := a.WaitlistUntil
	if until.IsZero() {
		until = a.EndsAt.Add(sale.DefaultWaitlistAfterEnd)
	}
	err := l.inTx(ctx, func(ctx context.Context, t tx) error {
		now := l.nowMS()
		_, err := t.ExecContext(ctx, "INSERT INTO activity ("+activityColumns+", created_at, updated_at) VALUES (?,?,?,?,?,?,?,?,?,0,?,?)",
			a.ID, a.Title, a.StartsAt.UnixMilli(), a.EndsAt.UnixMilli(), int64(a.PayWithin/time.Second),
			int64(a.CloseGrace/time.Second), until.UnixMilli(), boolInt(a.AllowList), string(state), now, now)
		if err != nil {
			return err
		}
		for i := range a.Items {
			it := &a.Items[i]
			_, err := t.ExecContext(ctx, "INSERT INTO stock_table "+
				"(activity_id, commodity_id, position, title, price, stock_total, sold_count, max_per_user) VALUES (?,?,?,?,?,?,0,?)",
				a.ID, it.CommodityID, i, it.Title, sale.FormatMoney(it.Price), it.Total, it.MaxPerUser)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create activity %s: %w", a.ID, asExists(err))
	}
	return nil
}

func storedState(s sale.State) bool {
	return slices.Contains([]sale.State{sale.StateDraft, sale.StateScheduled, sale.StatePaused, sale.StateEnded, sale.StateSettled}, s)
}

// Activity reads one activity with its items from the primary, or sale.ErrNotFound.
func (l *Ledger) Activity(ctx context.Context, id string) (*sale.Activity, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	list, err := l.activities(ctx, l.read, "WHERE id = ?", knownID(id))
	if err == nil && len(list) == 0 {
		err = sale.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("activity %.40q: %w", id, err)
	}
	return list[0], nil
}

// Activities reads the activities with the newest starts, at most MaxList, newest first, from the primary.
func (l *Ledger) Activities(ctx context.Context) ([]*sale.Activity, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	list, err := l.activities(ctx, l.read, "ORDER BY starts_at DESC, id LIMIT ?", l.opt.MaxList)
	if err != nil {
		return nil, fmt.Errorf("activities: %w", err)
	}
	return list, nil
}

// activities reads activities by a condition, in its order, and their items.
func (l *Ledger) activities(ctx context.Context, db tx, where string, args ...any) ([]*sale.Activity, error) {
	var list []*sale.Activity
	byID := map[string]*sale.Activity{}
	err := l.query(ctx, db, func(r *sql.Rows) error {
		a, err := scanActivity(r)
		if err == nil {
			list = append(list, a)
			byID[a.ID] = a
		}
		return err
	}, "SELECT "+activityColumns+" FROM activity "+where, args...)
	if err != nil || len(list) == 0 {
		return list, err
	}
	for part := range slices.Chunk(list, l.opt.MaxRows) {
		ids := make([]any, len(part))
		for i, a := range part {
			ids[i] = a.ID
		}
		err := l.query(ctx, db, func(r *sql.Rows) error {
			var id string
			it, err := scanItem(r, &id)
			if err == nil {
				byID[id].Items = append(byID[id].Items, it)
			}
			return err
		}, "SELECT activity_id, "+itemColumns+" FROM stock_table WHERE activity_id IN ("+marks(len(ids))+
			") ORDER BY activity_id, position", ids...)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func scanActivity(r *sql.Rows) (*sale.Activity, error) {
	var a sale.Activity
	var state string
	var starts, ends, within, grace, until, allow int64
	err := r.Scan(&a.ID, &a.Title, &starts, &ends, &within, &grace, &until, &allow, &state, &a.Epoch)
	if err != nil {
		return nil, err
	}
	a.StartsAt, a.EndsAt, a.WaitlistUntil = timeOf(starts), timeOf(ends), timeOf(until)
	a.PayWithin, a.CloseGrace = time.Duration(within)*time.Second, time.Duration(grace)*time.Second
	a.AllowList, a.State = allow != 0, sale.State(state)
	return &a, nil
}

const itemColumns = "commodity_id, title, price, stock_total, sold_count, max_per_user"

func scanItem(r *sql.Rows, activityID *string) (sale.Item, error) {
	var it sale.Item
	var price string
	err := r.Scan(activityID, &it.CommodityID, &it.Title, &price, &it.Total, &it.Sold, &it.MaxPerUser)
	if err != nil {
		return it, err
	}
	it.Price, err = decimal.NewFromString(price)
	return it, err
}

// SetActivityState moves an activity from one of the given states to another. Errors: sale.ErrConflict when it is
// in none of them, sale.ErrNotFound.
func (l *Ledger) SetActivityState(ctx context.Context, id string, from []sale.State, to sale.State) error {
	if !storedState(to) || len(from) == 0 {
		return fmt.Errorf("set state %q of %.40q: %w", to, id, sale.ErrWrongState)
	}
	args := []any{string(to), l.nowMS(), knownID(id)}
	for _, s := range from {
		args = append(args, string(s))
	}
	return l.updateActivity(ctx, id, "set state",
		"UPDATE activity SET state = ?, updated_at = ? WHERE id = ? AND state IN ("+marks(len(from))+")", args...)
}

// Reschedule changes the window of an activity; waitlist_until moves with the end. Pay deadlines that were told
// stay. Errors: sale.ErrNotFound, *sale.Error when the end is not after the start.
func (l *Ledger) Reschedule(ctx context.Context, id string, startsAt, endsAt time.Time) error {
	if !endsAt.After(startsAt) {
		return sale.Errorf(sale.CodeInvalidRequest, "endsAt: must be after startsAt")
	}
	// MySQL assigns from left to right, SQLite all at once: waitlist_until must come before ends_at.
	return l.updateActivity(ctx, id, "reschedule",
		"UPDATE activity SET waitlist_until = waitlist_until + (? - ends_at), starts_at = ?, ends_at = ?, updated_at = ? WHERE id = ?",
		endsAt.UnixMilli(), startsAt.UnixMilli(), endsAt.UnixMilli(), l.nowMS(), knownID(id))
}

// updateActivity runs one conditional update of an activity row.
func (l *Ledger) updateActivity(ctx context.Context, id, what, q string, args ...any) error {
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		n, err := affected(t.ExecContext(ctx, q, args...))
		if err != nil || n > 0 {
			return err
		}
		return l.missingActivity(ctx, t, id)
	})
	if err != nil {
		return fmt.Errorf("%s of activity %.40q: %w", what, id, err)
	}
	return nil
}

// missingActivity tells why a conditional write of an activity met no row: sale.ErrNotFound when there is none,
// else sale.ErrConflict.
func (l *Ledger) missingActivity(ctx context.Context, t tx, id string) error {
	var one int
	if err := t.QueryRowContext(ctx, "SELECT 1 FROM activity WHERE id = ?", knownID(id)).Scan(&one); err != nil {
		return l.d.classify(err)
	}
	return sale.ErrConflict
}

// knownID is an activity id as a query may use it, or one that no row has. MySQL's ascii_bin compares "A" and "A "
// as equal, which Redis does not (FS-058): only well-formed ids may reach it.
func knownID(id string) string {
	if !sale.ValidID(id) {
		return ""
	}
	return id
}

func affected(r sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// marks is n question marks, for an IN list.
func marks(n int) string {
	if n <= 0 {
		panic("BUG: empty IN list")
	}
	return strings.Repeat("?,", n-1) + "?"
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// timeOf is the instant of a column in epoch milliseconds, in UTC.
func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// timeOrZero is timeOf for a column that may be NULL.
func timeOrZero(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return timeOf(ms.Int64)
}
