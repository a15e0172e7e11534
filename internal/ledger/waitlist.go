package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"seckill/internal/sale"
)

// States of a waitlist row.
const (
	waiting  = "waiting"
	promoted = "promoted"
	left     = "left"
	expired  = "expired"
)

// JoinWaitlist puts a user at the end of the waitlist of a commodity and returns the row's time (R12). One who waits
// already keeps the place: sale.ErrExists with the time of joining. One who left joins again at the end, at a later time
// than before, whatever the clocks say; one who was promoted cannot: sale.ErrWrongState.
func (l *Ledger) JoinWaitlist(ctx context.Context, activityID, commodityID string, userID int64) (joined time.Time, err error) {
	now := l.nowMS()
	err = l.retryTx(ctx, func(ctx context.Context, t tx) error {
		var state string
		var at int64
		err := t.QueryRowContext(ctx, "SELECT state, joined_at FROM waitlist WHERE activity_id = ? AND commodity_id = ? AND user_id = ?"+l.d.forUpdate,
			activityID, commodityID, userID).Scan(&state, &at)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			joined = timeOf(now)
			_, err = t.ExecContext(ctx, "INSERT INTO waitlist (activity_id, commodity_id, user_id, joined_at, state, updated_at) VALUES (?,?,?,?,?,?)",
				activityID, commodityID, userID, now, waiting, now)
			return err
		case err != nil:
			return err
		case state == waiting:
			joined = timeOf(at)
			return sale.ErrExists
		case state == promoted:
			return sale.ErrWrongState
		}
		at = max(now, at+1) // Redis keeps the later of two times
		joined = timeOf(at)
		_, err = t.ExecContext(ctx, "UPDATE waitlist SET state = ?, joined_at = ?, updated_at = ? WHERE activity_id = ? AND commodity_id = ? AND user_id = ?",
			waiting, at, now, activityID, commodityID, userID)
		return err
	})
	if errors.Is(err, errDuplicate) { // the same user, side by side
		return timeOf(now), fmt.Errorf("join waitlist: %w", sale.ErrExists)
	}
	if err != nil {
		return joined, fmt.Errorf("join waitlist: %w", err)
	}
	return joined, nil
}

// LeaveWaitlist takes a user off every waitlist of an activity, and returns the commodities it was waiting for.
func (l *Ledger) LeaveWaitlist(ctx context.Context, activityID string, userID int64) ([]string, error) {
	var commodities []string
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		commodities = nil
		err := l.query(ctx, t, func(r *sql.Rows) error {
			var c string
			err := r.Scan(&c)
			commodities = append(commodities, c)
			return err
		}, "SELECT commodity_id FROM waitlist WHERE activity_id = ? AND user_id = ? AND state = ? ORDER BY commodity_id"+l.d.forUpdate, activityID, userID, waiting)
		if err != nil || len(commodities) == 0 {
			return err
		}
		_, err = t.ExecContext(ctx, "UPDATE waitlist SET state = ?, updated_at = ? WHERE activity_id = ? AND user_id = ? AND state = ?",
			left, l.nowMS(), activityID, userID, waiting)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("leave waitlist: %w", err)
	}
	return commodities, nil
}

// Waiters lists who waits in an activity, by commodity and in line, at most MaxUsers.
func (l *Ledger) Waiters(ctx context.Context, activityID string) ([]sale.Waiter, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	list, err := l.waiters(ctx, l.read, activityID)
	if err != nil {
		return nil, fmt.Errorf("waiters of %.40q: %w", activityID, err)
	}
	return list, nil
}

func (l *Ledger) waiters(ctx context.Context, db tx, activityID string) ([]sale.Waiter, error) {
	var list []sale.Waiter
	err := l.query(ctx, db, func(r *sql.Rows) error {
		w := sale.Waiter{ActivityID: activityID}
		var at int64
		err := r.Scan(&w.CommodityID, &w.UserID, &at)
		w.JoinedAt = timeOf(at)
		list = append(list, w)
		return err
	}, "SELECT commodity_id, user_id, joined_at FROM waitlist WHERE activity_id = ? AND state = ? ORDER BY commodity_id, joined_at, user_id LIMIT ?",
		knownID(activityID), waiting, l.opt.MaxUsers)
	return list, err
}

// NotWaiting returns those of some users in line for a commodity who do not wait, as the primary has it: they left, got
// their unit, or have an order in this activity, be it of another commodity: that was their one participation, and in line
// they would stand in front for ever. One who has joined again waits, whatever time is given.
func (l *Ledger) NotWaiting(ctx context.Context, activityID, commodityID string, ws []sale.Waiter) ([]sale.Waiter, error) {
	if len(ws) == 0 {
		return nil, nil
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	args := make([]any, 0, 3+len(ws))
	args = append(args, knownID(activityID), commodityID, waiting)
	for _, w := range ws {
		args = append(args, w.UserID)
	}
	waits := make(map[int64]bool, len(ws))
	err := l.query(ctx, l.read, func(r *sql.Rows) error {
		var user int64
		err := r.Scan(&user)
		waits[user] = true
		return err
	}, "SELECT user_id FROM waitlist WHERE activity_id = ? AND commodity_id = ? AND state = ? AND user_id IN ("+marks(len(ws))+")", args...)
	if err == nil {
		err = l.dropBuyers(ctx, activityID, waits)
	}
	if err != nil {
		return nil, fmt.Errorf("who of %.40q still waits: %w", activityID, err)
	}
	var gone []sale.Waiter
	for _, w := range ws {
		if !waits[w.UserID] {
			gone = append(gone, w)
		}
	}
	return gone, nil
}

// dropBuyers takes the users out of a set who have an order in an activity, whatever became of it.
func (l *Ledger) dropBuyers(ctx context.Context, activityID string, users map[int64]bool) error {
	var ids [sale.Tables][]any
	for u := range users {
		n := sale.TableOf(u)
		ids[n] = append(ids[n], u)
	}
	var parts []part
	for n, list := range ids {
		for some := range slices.Chunk(list, l.opt.MaxRows) {
			q := "SELECT user_id FROM " + orderTable(n) + " WHERE activity_id = ? AND user_id IN (" + marks(len(some)) + ")"
			parts = append(parts, part{q, append([]any{knownID(activityID)}, some...)})
		}
	}
	return l.unionAll(ctx, l.read, parts, func(r *sql.Rows) error {
		var user int64
		err := r.Scan(&user)
		delete(users, user)
		return err
	})
}

// MarkPromoted records that a waiter got a reservation under this token. A repeat changes nothing.
func (l *Ledger) MarkPromoted(ctx context.Context, w sale.Waiter, token string) error {
	return l.endWait(ctx, w, promoted, token)
}

// EndWait takes a waiter off the list who needs no unit any more.
func (l *Ledger) EndWait(ctx context.Context, w sale.Waiter) error {
	return l.endWait(ctx, w, left, "")
}

func (l *Ledger) endWait(ctx context.Context, w sale.Waiter, state, token string) error {
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		_, err := t.ExecContext(ctx, "UPDATE waitlist SET state = ?, token = ?, updated_at = ? "+
			"WHERE activity_id = ? AND commodity_id = ? AND user_id = ? AND state = ?",
			state, token, l.nowMS(), w.ActivityID, w.CommodityID, w.UserID, waiting)
		return err
	})
	if err != nil {
		return fmt.Errorf("waiter becomes %s: %w", state, err)
	}
	return nil
}

// ExpireWaitlist ends the wait of everybody in an activity whose promotion is over, and returns who waited.
func (l *Ledger) ExpireWaitlist(ctx context.Context, activityID string) ([]sale.Waiter, error) {
	var list []sale.Waiter
	err := l.retryTx(ctx, func(ctx context.Context, t tx) (err error) {
		if list, err = l.waiters(ctx, t, activityID); err != nil || len(list) == 0 {
			return err
		}
		_, err = t.ExecContext(ctx, "UPDATE waitlist SET state = ?, updated_at = ? WHERE activity_id = ? AND state = ?",
			expired, l.nowMS(), activityID, waiting)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("expire waitlist: %w", err)
	}
	return list, nil
}
