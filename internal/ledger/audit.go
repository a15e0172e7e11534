package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"seckill/internal/sale"
)

// ItemBalance is what the database says about the units of one item.
type ItemBalance struct {
	CommodityID string
	Total       int64 // put on sale
	Sold        int64 // sold_count
	Orders      int64 // units in orders that are pending payment or paid; equals Sold
	Returning   int64 // units of cancelled and closed orders on their way back (stock_returned = 0)
}

// Balance reads the balance of each item of an activity, in the order of its items, all as of one moment (S25).
func (l *Ledger) Balance(ctx context.Context, activityID string) ([]ItemBalance, error) {
	var list []ItemBalance
	err := l.inSnapshot(ctx, func(ctx context.Context, t tx) error {
		at := map[string]int{}
		err := l.query(ctx, t, func(r *sql.Rows) error {
			var b ItemBalance
			err := r.Scan(&b.CommodityID, &b.Total, &b.Sold)
			at[b.CommodityID] = len(list)
			list = append(list, b)
			return err
		}, "SELECT commodity_id, stock_total, sold_count FROM stock_table WHERE activity_id = ? ORDER BY position", knownID(activityID))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return sale.ErrNotFound
		}
		for n := range sale.Tables {
			err := l.query(ctx, t, func(r *sql.Rows) error {
				var id string
				var orders, returning int64
				if err := r.Scan(&id, &orders, &returning); err != nil {
					return err
				}
				i, ok := at[id]
				if !ok {
					return fmt.Errorf("orders of %.40q, which the activity does not sell", id)
				}
				list[i].Orders += orders
				list[i].Returning += returning
				return nil
			}, "SELECT commodity_id, SUM(CASE WHEN status IN (0,1) THEN quantity ELSE 0 END), "+
				"SUM(CASE WHEN stock_returned = 0 THEN quantity ELSE 0 END) FROM "+orderTable(n)+
				" WHERE activity_id = ? GROUP BY commodity_id", activityID)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("balance of %.40q: %w", activityID, err)
	}
	return list, nil
}

// AdminLog records what an operator did: who (any text, cut at 128 bytes), what (ASCII, cut at 64), on which
// activity ("" for none), and details (cut at 16,000 bytes).
func (l *Ledger) AdminLog(ctx context.Context, who, what, activityID, detail string) error {
	if activityID != "" && !sale.ValidID(activityID) {
		return fmt.Errorf("admin log: %w", sale.ErrBadID)
	}
	err := l.inTx(ctx, func(ctx context.Context, t tx) error {
		_, err := t.ExecContext(ctx, "INSERT INTO admin_log (at, who, what, activity_id, detail) VALUES (?,?,?,?,?)",
			l.nowMS(), cutText(who, 128), plainText(what, 64), activityID, cutText(detail, 16_000))
		return err
	})
	if err != nil {
		return fmt.Errorf("admin log: %w", err)
	}
	return nil
}

// cutText makes s valid UTF-8 of at most n bytes, never cutting a character in two.
func cutText(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// TokenStory reads all log rows of a user's token, by version: when, by whom and why it moved (S9). Empty when
// the token is undecided or another user's.
func (l *Ledger) TokenStory(ctx context.Context, userID int64, token string) ([]LogRow, error) {
	if !sale.ValidToken(token) || userID <= 0 {
		return nil, nil
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var list []LogRow
	err := l.query(ctx, l.read, func(r *sql.Rows) error {
		g, err := scanLog(r)
		if err == nil {
			list = append(list, *g)
		}
		return err
	}, "SELECT "+logColumns+" FROM "+logTable(sale.TableOf(userID))+" WHERE token = ? AND user_id = ? ORDER BY version", token, userID)
	if err != nil && !errors.Is(err, sale.ErrNotFound) {
		return nil, fmt.Errorf("story of a token: %w", err)
	}
	return list, nil
}
