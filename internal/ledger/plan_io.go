package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// part is one SELECT of a UNION ALL.
type part struct {
	q    string
	args []any
}

// maxParts bounds the SELECTs of one UNION ALL; SQLite takes at most 500.
const maxParts = 64

// unionAll runs many small lookups, one for each table, as few statements.
func (l *Ledger) unionAll(ctx context.Context, t tx, parts []part, scan func(*sql.Rows) error) error {
	for some := range slices.Chunk(parts, maxParts) {
		var q strings.Builder
		var args []any
		for i, p := range some {
			if i > 0 {
				q.WriteString(" UNION ALL ")
			}
			q.WriteString(p.q)
			args = append(args, p.args...)
		}
		if err := l.query(ctx, t, scan, q.String(), args...); err != nil {
			return err
		}
	}
	return nil
}

// readLog finds the tokens of the batch that are decided.
func (p *plan) readLog(ctx context.Context, t tx) error {
	var tokens [sale.Tables][]any
	for i := range p.batch {
		if m := &p.batch[i]; storable(m) {
			n := sale.TableOf(m.UserID)
			tokens[n] = append(tokens[n], m.Token)
		}
	}
	var parts []part
	for n, list := range tokens {
		for some := range slices.Chunk(list, p.l.opt.MaxRows) {
			parts = append(parts, part{"SELECT " + logColumns + " FROM " + logTable(n) +
				" WHERE version = 1 AND token IN (" + marks(len(some)) + ")", some})
		}
	}
	return p.l.unionAll(ctx, t, parts, func(r *sql.Rows) error {
		g, err := scanLog(r)
		if err == nil {
			p.known[g.Token] = g
		}
		return err
	})
}

// readActivities reads what the undecided messages are checked against. The epoch and its boundary are read in
// this transaction, from the primary, on purpose: a message that was published after a boundary was read is read
// after the epoch was raised, so no cache may stand in between (R10).
func (p *plan) readActivities(ctx context.Context, t tx) error {
	ids := map[string]bool{}
	for i := range p.batch {
		if m := &p.batch[i]; storable(m) && p.known[m.Token] == nil {
			ids[m.ActivityID] = true
		}
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(ids)), p.l.opt.MaxRows) {
		err := p.l.query(ctx, t, p.scanActivityItem, "SELECT a.id, a.ends_at, a.pay_within_s, a.close_grace_s, a.state, a.epoch, "+
			"a.boundary_epoch, s.commodity_id, s.price, s.max_per_user "+
			"FROM activity a JOIN stock_table s ON s.activity_id = a.id WHERE a.id IN ("+marks(len(some))+")", anys(some)...)
		if err != nil {
			return err
		}
	}
	return p.readBoundaries(ctx, t)
}

func (p *plan) scanActivityItem(r *sql.Rows) error {
	var a activityRow
	var it sale.Item
	var price, state string
	var ends, within, grace int64
	err := r.Scan(&a.ID, &ends, &within, &grace, &state, &a.Epoch, &a.boundaryEpoch, &it.CommodityID, &price, &it.MaxPerUser)
	if err != nil {
		return err
	}
	if it.Price, err = decimal.NewFromString(price); err != nil {
		return err
	}
	known := p.activities[a.ID]
	if known == nil {
		known = &a
		a.EndsAt, a.State = timeOf(ends), sale.State(state)
		a.PayWithin, a.CloseGrace = time.Duration(within)*time.Second, time.Duration(grace)*time.Second
		p.activities[a.ID] = known
	}
	known.Items = append(known.Items, it)
	return nil
}

// readBoundaries reads the boundary of each activity that has a message of an older epoch, if there is one yet. It goes by
// the activities' ids, so that two batches lock their rows in the same order.
func (p *plan) readBoundaries(ctx context.Context, t tx) error {
	older := map[string]*activityRow{}
	for i := range p.batch {
		if a := p.activities[p.batch[i].ActivityID]; a != nil && p.batch[i].Epoch < a.Epoch {
			older[a.ID] = a
		}
	}
	for _, id := range slices.Sorted(maps.Keys(older)) {
		a := older[id]
		a.boundary = map[int]int64{}
		if a.boundaryEpoch != a.Epoch {
			if err := p.lockEpoch(ctx, t, a); err != nil {
				return err
			}
			continue
		}
		err := p.l.query(ctx, t, func(r *sql.Rows) error {
			var partition int
			var offset int64
			err := r.Scan(&partition, &offset)
			a.boundary[partition] = offset
			return err
		}, "SELECT `partition`, `offset` FROM epoch_boundary WHERE activity_id = ? AND epoch = ?", a.ID, a.Epoch)
		if err != nil {
			return err
		}
	}
	return nil
}

// lockEpoch holds the row of an activity whose epoch was raised and has no boundary yet, until this transaction ends: a
// rebuild stores its boundary, and after it takes its snapshot, when what is decided here is there to be seen (R10).
// sale.ErrTransient: the epoch or its boundary has changed meanwhile.
func (p *plan) lockEpoch(ctx context.Context, t tx, a *activityRow) error {
	var epoch, boundary int64
	q := "SELECT epoch, boundary_epoch FROM activity WHERE id = ?" + p.l.d.forUpdate
	if err := t.QueryRowContext(ctx, q, a.ID).Scan(&epoch, &boundary); err != nil {
		return err
	}
	if epoch != a.Epoch || boundary != a.boundaryEpoch {
		return fmt.Errorf("activity %s is being rebuilt: %w", a.ID, sale.ErrTransient)
	}
	return nil
}

// readOrders finds the orders of the decided tokens, and those that the users of undecided ones have already
// (unless the unique key is to find these).
func (p *plan) readOrders(ctx context.Context, t tx) error {
	var tokens [sale.Tables][]any
	var users [sale.Tables]map[string][]any // activity -> users
	for i := range p.batch {
		m := &p.batch[i]
		if !storable(m) {
			continue
		}
		n := sale.TableOf(m.UserID)
		switch g := p.known[m.Token]; {
		case g == nil && p.how == tokensOnly:
		case g == nil:
			if users[n] == nil {
				users[n] = map[string][]any{}
			}
			users[n][m.ActivityID] = append(users[n][m.ActivityID], m.UserID)
		case !g.refused() && g.UserID == m.UserID:
			tokens[n] = append(tokens[n], m.Token)
		}
	}
	var parts []part
	for n := range sale.Tables {
		from := "SELECT " + orderColumns + " FROM " + orderTable(n) + " WHERE "
		for some := range slices.Chunk(tokens[n], p.l.opt.MaxRows) {
			parts = append(parts, part{from + "request_token IN (" + marks(len(some)) + ")", some})
		}
		for _, id := range slices.Sorted(maps.Keys(users[n])) {
			for some := range slices.Chunk(users[n][id], p.l.opt.MaxRows) {
				parts = append(parts, part{from + "activity_id = ? AND user_id IN (" + marks(len(some)) + ")", append([]any{id}, some...)})
			}
		}
	}
	return p.l.unionAll(ctx, t, parts, func(r *sql.Rows) error {
		o, err := scanOrder(r)
		if err == nil {
			p.byToken[o.RequestToken] = o
			p.byUser[userKey{o.ActivityID, o.UserID}] = o
		}
		return err
	})
}

// write stores the new decisions: for each table in turn its log rows, then its order rows, both in the order of
// their tokens; then the stock, in the order of its keys. The same order in every transaction keeps two of them
// from waiting for each other, and the stock rows, which all transactions of a sale share, are locked last.
func (p *plan) write(ctx context.Context, t tx) error {
	for n := range p.rows {
		list := p.rows[n]
		slices.SortFunc(list, func(a, b int) int { return cmp.Compare(p.batch[a].Token, p.batch[b].Token) })
		for some := range slices.Chunk(list, max(1, p.l.opt.MaxRows/2)) {
			if err := p.insertLog(ctx, t, n, some); err != nil {
				return fmt.Errorf("insert into %s: %w", logTable(n), err)
			}
		}
		orders := slices.DeleteFunc(slices.Clone(list), func(i int) bool { return !p.out[i].Ordered })
		for some := range slices.Chunk(orders, p.l.opt.MaxRows) {
			if err := p.insertOrders(ctx, t, n, some); err != nil {
				return fmt.Errorf("insert into %s: %w", orderTable(n), err)
			}
		}
	}
	for _, k := range sortedKeys(p.sold) {
		units := p.sold[k]
		n, err := affected(t.ExecContext(ctx, "UPDATE stock_table SET sold_count = sold_count + ? "+
			"WHERE activity_id = ? AND commodity_id = ? AND sold_count + ? <= stock_total", units, k.activityID, k.commodityID, units))
		if err != nil {
			return fmt.Errorf("update stock: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("%s/%s + %d: %w", k.activityID, k.commodityID, units, errSoldOut)
		}
	}
	return nil
}

// insertLog writes two rows for each decision: version 0, occupied, from the time of the message; version 1, what
// became of it. The second is the decision itself (R1).
func (p *plan) insertLog(ctx context.Context, t tx, n int, list []int) error {
	o := &p.l.opt
	values := make([]string, 0, 2*len(list))
	args := make([]any, 0, 22*len(list))
	now := p.now.UnixMilli()
	for _, i := range list {
		m, d := &p.batch[i], &p.out[i]
		quantity, trace := logQuantity(m.Quantity), plainText(m.TraceID, 64)
		values = append(values, "(?,0,?,?,?,?,'','occupied',NULL,'','',?,?,?,?)")
		args = append(args, m.Token, m.UserID, m.ActivityID, m.CommodityID, quantity, o.Role, o.Node, trace, p.at(m))
		switch {
		case d.Ordered:
			values = append(values, "(?,1,?,?,?,?,'occupied','committed',0,'','',?,?,?,?)")
			args = append(args, m.Token, m.UserID, m.ActivityID, m.CommodityID, quantity, o.Role, o.Node, trace, now)
		default:
			status := logFailed
			if d.SoldOut {
				status = logSoldOut
			}
			values = append(values, "(?,1,?,?,?,?,'occupied','released',?,?,?,?,?,?,?)")
			args = append(args, m.Token, m.UserID, m.ActivityID, m.CommodityID, quantity, status, string(d.Reason), d.FirstToken,
				o.Role, o.Node, trace, now)
		}
	}
	return insertRows(ctx, t, "INSERT INTO "+logTable(n)+" ("+logColumns+") VALUES ", values, args)
}

func (p *plan) insertOrders(ctx context.Context, t tx, n int, list []int) error {
	values := make([]string, len(list))
	args := make([]any, 0, 9*len(list))
	now := p.now.UnixMilli()
	for k, i := range list {
		d := &p.out[i]
		amount, err := sale.Amount(d.Price, d.Quantity)
		if err != nil {
			return err
		}
		values[k] = "(?,?,?,?,?,?,?,0,1,?,?,1)"
		args = append(args, d.OrderNo, d.Token, d.UserID, d.ActivityID, d.CommodityID, d.Quantity, sale.FormatMoney(amount),
			now, d.PayBefore.UnixMilli())
	}
	return insertRows(ctx, t, "INSERT INTO "+orderTable(n)+" (order_no, request_token, user_id, activity_id, commodity_id, quantity, "+
		"pay_amount, status, version, created_at, pay_before, told_version) VALUES ", values, args)
}

// insertRows runs one multi-row INSERT and insists that every row went in.
func insertRows(ctx context.Context, t tx, into string, values []string, args []any) error {
	n, err := affected(t.ExecContext(ctx, into+strings.Join(values, ","), args...))
	if err != nil {
		return err
	}
	if n != int64(len(values)) {
		return fmt.Errorf("BUG: inserted %d of %d rows", n, len(values))
	}
	return nil
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}
