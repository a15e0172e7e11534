package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"seckill/internal/sale"
)

// Names of the user lists of an activity.
const (
	ListBlocked  = "blocked"  // may not buy
	ListEligible = "eligible" // may buy, where the activity has an allow-list
)

// SetUserList puts a user on a list of an activity, or takes the user off it. A repeat changes nothing and is no
// error. sale.ErrNotFound: no such activity; *sale.Error: no such list.
func (l *Ledger) SetUserList(ctx context.Context, activityID, list string, userID int64, on bool) error {
	if list != ListBlocked && list != ListEligible || userID <= 0 {
		return sale.Errorf(sale.CodeInvalidRequest, "list: must be %s or %s, with a positive user id", ListBlocked, ListEligible)
	}
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		var one int
		if err := t.QueryRowContext(ctx, "SELECT 1 FROM activity WHERE id = ?", knownID(activityID)).Scan(&one); err != nil {
			return err
		}
		if !on {
			_, err := t.ExecContext(ctx, "DELETE FROM user_list WHERE activity_id = ? AND list = ? AND user_id = ?", activityID, list, userID)
			return err
		}
		_, err := t.ExecContext(ctx, "INSERT INTO user_list (activity_id, list, user_id, added_at) VALUES (?,?,?,?)",
			activityID, list, userID, l.nowMS())
		return err
	})
	if err != nil && !errors.Is(err, errDuplicate) {
		return fmt.Errorf("set %s list of %.40q: %w", list, activityID, err)
	}
	return nil
}

// UserList reads the users on a list, by number. More than MaxUsers is an error, never a part of the list.
func (l *Ledger) UserList(ctx context.Context, activityID, list string) ([]int64, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	users, err := l.userList(ctx, l.read, activityID, list)
	if err != nil {
		return nil, fmt.Errorf("%.16q list of %.40q: %w", list, activityID, err)
	}
	return users, nil
}

func (l *Ledger) userList(ctx context.Context, db tx, activityID, list string) ([]int64, error) {
	var users []int64
	err := l.query(ctx, db, func(r *sql.Rows) error {
		var id int64
		err := r.Scan(&id)
		users = append(users, id)
		return err
	}, "SELECT user_id FROM user_list WHERE activity_id = ? AND list = ? ORDER BY user_id LIMIT ?", knownID(activityID), list, l.opt.MaxUsers+1)
	if err == nil && len(users) > l.opt.MaxUsers {
		err = fmt.Errorf("more than %d users", l.opt.MaxUsers)
	}
	return users, err
}
