package ledger

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"seckill/internal/sale"
)

// MaxOrdersPage is the most orders OrdersOfUser returns at once.
const MaxOrdersPage = 100

// DecisionByToken reads what was decided about a user's token: its order, else its refusal in the log (R18). The
// replica is asked first; what it does not have, has with a version below minVersion, or fails to answer, the
// primary is asked for, so that a lagging replica never turns a decision into "not found" (S30, FS-065).
// sale.ErrNotFound: undecided, unknown, or not this user's or this activity's.
func (l *Ledger) DecisionByToken(ctx context.Context, activityID string, userID int64, token string, minVersion int64) (*sale.Decision, error) {
	if !sale.ValidToken(token) || !sale.ValidID(activityID) || userID <= 0 {
		return nil, fmt.Errorf("decision by token: %w", sale.ErrNotFound)
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	if l.replica != nil {
		d, err := l.decisionByToken(ctx, l.replica, activityID, userID, token)
		if err == nil && d.Version >= minVersion {
			return d, nil
		}
	}
	d, err := l.decisionByToken(ctx, l.read, activityID, userID, token)
	if err != nil {
		return nil, fmt.Errorf("decision by token: %w", err)
	}
	return d, nil
}

func (l *Ledger) decisionByToken(ctx context.Context, db *sql.DB, activityID string, userID int64, token string) (*sale.Decision, error) {
	n := sale.TableOf(userID)
	o, err := l.oneOrder(ctx, db, n, "request_token = ? AND user_id = ? AND activity_id = ?", token, userID, activityID)
	if err == nil {
		d, err := o.decision()
		return &d, err
	}
	if !errors.Is(err, sale.ErrNotFound) {
		return nil, err
	}
	g, err := scanLog(db.QueryRowContext(ctx, "SELECT "+logColumns+" FROM "+logTable(n)+
		" WHERE token = ? AND version = 1 AND user_id = ? AND activity_id = ? AND status IN (?,?)",
		token, userID, activityID, logSoldOut, logFailed))
	if err != nil {
		return nil, l.d.classify(err)
	}
	d := g.refusal()
	return &d, nil
}

// oneOrder reads one order row by a condition, or sale.ErrNotFound.
func (l *Ledger) oneOrder(ctx context.Context, db tx, table int, where string, args ...any) (*orderRow, error) {
	o, err := scanOrder(db.QueryRowContext(ctx, "SELECT "+orderColumns+" FROM "+orderTable(table)+" WHERE "+where, args...))
	if err != nil {
		return nil, l.d.classify(err)
	}
	return o, nil
}

// DecisionOfUser reads the order a user has in an activity, of which there is at most one, from the primary. A
// user who was only refused has none: sale.ErrNotFound.
func (l *Ledger) DecisionOfUser(ctx context.Context, activityID string, userID int64) (*sale.Decision, error) {
	list, err := l.DecisionsOfUser(ctx, userID, []string{activityID})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("order of user %d in %.40q: %w", userID, activityID, sale.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

// DecisionsOfUser reads the orders a user has in these activities, from the primary, in no set order. Activities
// without an order of the user are left out.
func (l *Ledger) DecisionsOfUser(ctx context.Context, userID int64, activityIDs []string) ([]sale.Decision, error) {
	ids := slices.DeleteFunc(slices.Clone(activityIDs), func(id string) bool { return !sale.ValidID(id) })
	if len(ids) == 0 || userID <= 0 {
		return nil, nil
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var list []sale.Decision
	for some := range slices.Chunk(ids, l.opt.MaxRows) {
		err := l.query(ctx, l.read, func(r *sql.Rows) error {
			o, err := scanOrder(r)
			if err != nil {
				return err
			}
			d, err := o.decision()
			list = append(list, d)
			return err
		}, "SELECT "+orderColumns+" FROM "+orderTable(sale.TableOf(userID))+" WHERE user_id = ? AND activity_id IN ("+marks(len(some))+")",
			append([]any{userID}, anys(some)...)...)
		if err != nil {
			return nil, fmt.Errorf("orders of user %d: %w", userID, err)
		}
	}
	return list, nil
}

// OrdersOfUser reads a page of a user's orders, newest first, from one table (S17). limit is held between 1 and
// MaxOrdersPage. cursor is "" for the first page, then the next that the page before returned; next is "" after
// the last page. A cursor that is not this user's own is a *sale.Error invalid_request.
func (l *Ledger) OrdersOfUser(ctx context.Context, userID int64, limit int, cursor string) (orders []sale.Order, next string, err error) {
	if userID <= 0 {
		return nil, "", nil
	}
	limit = min(max(limit, 1), MaxOrdersPage)
	where, args := "user_id = ?", []any{userID}
	if cursor != "" {
		at, no, err := parseCursor(cursor, userID)
		if err != nil {
			return nil, "", err
		}
		where += " AND (created_at < ? OR (created_at = ? AND order_no < ?))"
		args = append(args, at, at, no)
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	err = l.query(ctx, l.read, func(r *sql.Rows) error {
		o, err := scanOrder(r)
		if err == nil {
			orders = append(orders, o.Order)
		}
		return err
	}, "SELECT "+orderColumns+" FROM "+orderTable(sale.TableOf(userID))+" WHERE "+where+
		" ORDER BY created_at DESC, order_no DESC LIMIT ?", append(args, limit+1)...)
	if err != nil {
		return nil, "", fmt.Errorf("orders of user %d: %w", userID, err)
	}
	if len(orders) > limit {
		orders = orders[:limit]
		last := &orders[limit-1]
		next = makeCursor(last.CreatedAt.UnixMilli(), last.OrderNo)
	}
	return orders, next, nil
}

// A cursor names the last order of a page: created_at and order_no, which the user has seen anyway.
func makeCursor(at int64, orderNo string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at, 10) + "." + orderNo))
}

func parseCursor(cursor string, userID int64) (at int64, orderNo string, err error) {
	bad := sale.Errorf(sale.CodeInvalidRequest, "cursor: not one that this list has given")
	if len(cursor) > 64 {
		return 0, "", bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return 0, "", bad
	}
	ms, no, ok := strings.Cut(string(raw), ".")
	at, err = strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return 0, "", bad
	}
	if n, err := sale.TableOfOrderNo(no); err != nil || n != sale.TableOf(userID) {
		return 0, "", bad
	}
	return at, no, nil
}

// OrderByNo reads an order by its number alone, which names its table (S15), from the primary. The caller checks
// that it belongs to who asks (FS-076). sale.ErrNotFound, also for a malformed number.
func (l *Ledger) OrderByNo(ctx context.Context, orderNo string) (*sale.Order, error) {
	n, err := sale.TableOfOrderNo(orderNo)
	if err != nil {
		return nil, fmt.Errorf("order by number: %w", sale.ErrNotFound)
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	o, err := l.oneOrder(ctx, l.read, n, "order_no = ?", orderNo)
	if err != nil {
		return nil, fmt.Errorf("order by number: %w", err)
	}
	return &o.Order, nil
}
