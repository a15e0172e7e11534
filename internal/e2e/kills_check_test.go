package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// saleWatch looks at a sale in the database all the time: at no moment are more units sold than there are, or other
// orders than units sold.
type saleWatch struct {
	stop, done chan struct{}
	sold       atomic.Int64
	epoch      atomic.Int64
	id         string
	total      int64
	looks      int
	bad        []string
}

// liveOrders counts the orders of a sale that hold a unit, in all tables; it needs the sale's id 16 times.
func liveOrders() string {
	parts := make([]string, 16)
	for i := range parts {
		parts[i] = fmt.Sprintf("(SELECT COUNT(*) FROM seckill_order_%02d WHERE activity_id = ? AND status IN (0, 1))", i)
	}
	return strings.Join(parts, " + ")
}

func times(n int, v any) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// watchSale starts to look; end ends it.
func (s *stack) watchSale(id string, total int64) *saleWatch {
	w := &saleWatch{stop: make(chan struct{}), done: make(chan struct{}), id: id, total: total}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
				w.look(s.db)
			}
		}
	}()
	return w
}

// look reads both numbers in one statement, which sees one state of the database.
func (w *saleWatch) look(db *sql.DB) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var epoch, sold, orders int64
	err := db.QueryRowContext(ctx, "SELECT (SELECT epoch FROM activity WHERE id = ?), "+
		"(SELECT sold_count FROM stock_table WHERE activity_id = ? AND commodity_id = 'C1'), "+liveOrders(),
		times(18, w.id)...).Scan(&epoch, &sold, &orders)
	if err != nil {
		return // the database is down
	}
	w.looks++
	w.sold.Store(sold)
	w.epoch.Store(epoch)
	if (sold > w.total || orders != sold) && len(w.bad) < 5 {
		w.bad = append(w.bad, fmt.Sprintf("look %d: sold %d of %d, %d orders", w.looks, sold, w.total, orders))
	}
}

// selling reports whether there was something left to sell at the last look.
func (w *saleWatch) selling() bool { return w.sold.Load() < w.total }

// end stops looking and returns what was wrong.
func (w *saleWatch) end() []string {
	close(w.stop)
	<-w.done
	if w.looks == 0 {
		w.bad = append(w.bad, "the sale could never be looked at")
	}
	return w.bad
}

// gather adds up the workers' reports and fails what should not have happened.
func gather(t *testing.T, reports []crowdReport) (sum crowdReport) {
	t.Helper()
	refused, cancelled := 0, 0
	for _, r := range reports {
		sum.Accepted += r.Accepted
		sum.Told += r.Told
		sum.SoldOut += r.SoldOut
		sum.Retries += r.Retries
		sum.Polled += r.Polled
		sum.Outcomes = append(sum.Outcomes, r.Outcomes...)
		sum.Unsure = append(sum.Unsure, r.Unsure...)
		for _, u := range r.Unknown {
			t.Error(u)
		}
	}
	for _, o := range sum.Outcomes {
		if o.refused() {
			refused++
		}
		if o.Cancelled {
			cancelled++
		}
	}
	t.Logf("accepted %d, told %d (%d by polling), refused after acceptance %d, cancelled by the user %d, sold out %d (%d unsure), retries %d",
		sum.Accepted, sum.Told, sum.Polled, refused, cancelled, sum.SoldOut, len(sum.Unsure), sum.Retries)
	if sum.Told != sum.Accepted {
		t.Errorf("%d accepted, %d told", sum.Accepted, sum.Told)
	}
	return sum
}

// saleCheck is a sale whose faults are over, and what its users were told.
type saleCheck struct {
	id               string
	stock            int64
	outcomes, unsure []crowdOutcome
}

// orderState is an order row.
type orderState struct {
	user             int64
	status, returned int64 // returned is -1 while there is nothing to return
}

// checkSale waits until everything is decided and holds the invariants against the servers.
func (s *stack) checkSale(c saleCheck) {
	t := s.t
	t.Helper()
	start := time.Now()
	eventually(t, 90*time.Second, "the sale is whole again", func() (bool, string) { return s.whole(c) })
	took := time.Since(start)
	orders, decided := s.orderRows(c.id), s.decisions(c.id)
	learned := map[string]bool{} // tokens with an order of which the user knows
	byUser := map[int64]string{}
	for token, o := range orders {
		byUser[o.user] = token
	}
	for _, o := range c.outcomes {
		row, ordered := orders[o.Token]
		switch state, ok := decided[o.Token]; {
		case !ok:
			t.Errorf("user %d was accepted and told %s, and token %s has no decision", o.User, o.Status, o.Token)
		case o.refused() && (ordered || byUser[o.User] != ""):
			t.Errorf("user %d was told %s and has order of token %s", o.User, o.Status, byUser[o.User])
		case !o.refused() && (!ordered || state != "committed"):
			t.Errorf("user %d was told %s, token %s was decided %q and has order %v", o.User, o.Status, o.Token, state, ordered)
		case o.Cancelled && (row.status != 2 || row.returned != 1):
			t.Errorf("user %d cancelled, the row has status %d, stock_returned %d", o.User, row.status, row.returned)
		}
		learned[o.Token] = ordered && !o.refused()
	}
	for _, o := range c.unsure { // such a client goes on listening, or asks again
		if _, ok := orders[o.Token]; !ok {
			continue
		}
		r, err := s.api("gateway1").Result(t.Context(), user(t, o.User), o.Token, 0)
		learned[o.Token] = err == nil && r.Status == "pending_payment"
	}
	for token, o := range orders {
		if !learned[token] {
			t.Errorf("user %d has an order of token %s and never learned it", o.user, token)
		}
	}
	s.checkReturned(c.id, orders)
	t.Logf("sale %s: %d orders, %d tokens decided, whole %v after the last result; audit: %s",
		c.id, len(orders), len(decided), took.Round(10*time.Millisecond), s.auditClean(c.id))
}

// whole: nothing undecided or on its way back, and units in Redis + sold = total, orders = sold.
func (s *stack) whole(c saleCheck) (bool, string) {
	ctx := context.Background()
	units, err := s.rdb.Get(ctx, "seckill:{"+c.id+"}:stock:C1").Int64()
	if err != nil {
		return false, err.Error()
	}
	occupied, err := s.rdb.ZCard(ctx, "seckill:{"+c.id+"}:occupied").Result()
	if err != nil {
		return false, err.Error()
	}
	var sold, orders int64
	if err := s.db.QueryRow("SELECT (SELECT sold_count FROM stock_table WHERE activity_id = ? AND commodity_id = 'C1'), "+liveOrders(),
		times(17, c.id)...).Scan(&sold, &orders); err != nil {
		return false, err.Error()
	}
	returning := 0
	for _, o := range s.orderRows(c.id) {
		if o.returned == 0 {
			returning++
		}
	}
	ok := occupied == 0 && returning == 0 && units+sold == c.stock && orders == sold && sold <= c.stock
	return ok, fmt.Sprintf("redis %d + sold %d of %d, %d orders, occupied %d, returning %d", units, sold, c.stock, orders, occupied, returning)
}

// orderRows reads the orders of a sale by token.
func (s *stack) orderRows(id string) map[string]orderState {
	s.t.Helper()
	all := map[string]orderState{}
	for n := range 16 {
		s.rows(fmt.Sprintf("SELECT request_token, user_id, status, COALESCE(stock_returned, -1) FROM seckill_order_%02d WHERE activity_id = ?", n), id, func(r *sql.Rows) error {
			var token string
			var o orderState
			err := r.Scan(&token, &o.user, &o.status, &o.returned)
			all[token] = o
			return err
		})
	}
	return all
}

// decisions reads the first log row of each token of a sale: its decision, committed or released.
func (s *stack) decisions(id string) map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for n := range 16 {
		s.rows(fmt.Sprintf("SELECT token, to_state FROM stock_token_log_%02d WHERE activity_id = ? AND version = 1", n), id, func(r *sql.Rows) error {
			var token, state string
			err := r.Scan(&token, &state)
			if all[token] != "" {
				s.t.Errorf("token %s is decided in two tables", token)
			}
			all[token] = state
			return err
		})
	}
	return all
}

func (s *stack) rows(query, id string, each func(*sql.Rows) error) {
	s.t.Helper()
	rows, err := s.db.Query(query, id)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
}

// checkReturned: a cancelled order's reservation is released in Redis too, and no other is.
func (s *stack) checkReturned(id string, orders map[string]orderState) {
	for token, o := range orders {
		state, err := s.rdb.HGet(context.Background(), "seckill:{"+id+"}:token:"+token, "state").Result()
		want := "committed"
		if o.status == 2 || o.status == 3 {
			want = "released"
		}
		if state != want {
			s.t.Errorf("token %s of an order with status %d is %q in Redis, want %s (%v)", token, o.status, state, want, err)
		}
	}
}

// auditClean runs `seckill audit`, which must find nothing, if need be after one repair, and says which.
func (s *stack) auditClean(id string) string {
	s.t.Helper()
	server := "http://" + s.procs["gateway1"].addr
	first, err := s.tryCommand("audit", id, "--server", server)
	if err == nil {
		return "clean at the first look"
	}
	if out, err := s.tryCommand("audit", id, "--repair", "--server", server); err == nil {
		return "clean at the second look, without a repair; the first: " + short(first)
	} else if !strings.Contains(out, "ifference") {
		s.t.Errorf("repair of %s: %v %s", id, err, short(out))
	}
	if out, err := s.tryCommand("audit", id, "--server", server); err != nil {
		s.t.Errorf("the audit of %s after the repair: %v %s\nbefore it: %s", id, err, short(out), short(first))
	}
	return "clean after a repair of: " + short(first)
}

func short(text string) string { return fmt.Sprintf("%.600s", strings.Join(strings.Fields(text), " ")) }
