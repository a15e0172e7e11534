package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/sale"
	"seckill/internal/testenv"
)

// stall is one sale with one item, and messages for it.
type stall struct {
	*testing.T
	l    *ledger.Ledger
	id   string
	user int64
}

func newStall(t *testing.T, l *ledger.Ledger, total int64) *stall {
	t.Helper()
	s := &stall{T: t, l: l, id: fmt.Sprintf("H-%d", mathrand.Int64()), user: mathrand.Int64N(1 << 50)}
	now := time.Now().Truncate(time.Millisecond)
	err := l.CreateActivity(t.Context(), &sale.Activity{
		ID: s.id, Title: "hurt", StartsAt: now, EndsAt: now.Add(time.Hour), PayWithin: time.Minute, State: sale.StateScheduled,
		Items: []sale.Item{{CommodityID: "C0", Title: "x", Price: decimal.NewFromInt(5), Total: total, MaxPerUser: 5}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stall) message() sale.Pending {
	s.user++
	return sale.Pending{
		Reservation: sale.Reservation{Token: fmt.Sprintf("h-%d-%d", s.user, mathrand.Int64()), UserID: s.user, ActivityID: s.id,
			CommodityID: "C0", Price: decimal.NewFromInt(5), Quantity: 1, At: time.Now()},
		OrderNo: s.number(s.user),
	}
}

func (s *stall) number(user int64) string { return sale.OrderNo(mathrand.Int64N(1<<62), user) }

func (s *stall) messages(n int) []sale.Pending {
	list := make([]sale.Pending, n)
	for i := range list {
		list[i] = s.message()
	}
	return list
}

// redeliver is the batch as it comes again: the same tokens, newly drawn order numbers.
func (s *stall) redeliver(batch []sale.Pending) []sale.Pending {
	again := make([]sale.Pending, len(batch))
	for i, m := range batch {
		m.OrderNo = s.number(m.UserID)
		again[i] = m
	}
	return again
}

// check compares the stock with the orders and with what is expected.
func (s *stall) check(sold int64) {
	s.Helper()
	b, err := s.l.Balance(s.Context(), s.id)
	if err != nil {
		s.Fatal(err)
	}
	if b[0].Sold != sold || b[0].Orders != sold {
		s.Fatalf("sold %d, orders %d, want %d: never an order without its stock change or the reverse", b[0].Sold, b[0].Orders, sold)
	}
}

// rawDB is a session beside the ledger.
func rawDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, q string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), q, args...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

// lockStock holds the stock row of a sale in an open transaction.
func (s *stall) lockStock(db *sql.DB) *sql.Tx {
	s.Helper()
	tx, err := db.BeginTx(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	execute(s.T, tx, "UPDATE stock_table SET title = 'locked' WHERE activity_id = ? AND commodity_id = 'C0'", s.id)
	return tx
}

// waitBlocked returns once a transaction waits for a lock on the sale's stock row.
func (s *stall) waitBlocked(db *sql.DB) {
	s.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		var n int
		err := db.QueryRowContext(s.Context(), "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE ?",
			"%"+s.id+"%").Scan(&n)
		if err != nil {
			s.Fatal(err)
		}
		if n > 0 {
			return
		}
		time.Sleep(150 * time.Millisecond) // the server gives no signal, and refreshes this view 100 ms after its last reader
	}
	s.Fatal("nothing waits for the lock")
}

// FS-052: a real deadlock. The ledger's transaction has its order and waits for the stock; the other session has
// the stock and wants the order's key, and has changed more rows, so the server undoes the ledger's.
func TestDeadlockUndoesAllAndIsTransient(t *testing.T) {
	t.Parallel()
	dsn := database.dsn(t)
	l := openMySQL(t, nil)
	db := rawDB(t, dsn)
	for _, size := range []int{1, 20} {
		s := newStall(t, l, 100)
		batch := s.messages(size)
		tx := s.lockStock(db)
		for i := range 200 {
			execute(t, tx, "INSERT INTO user_list (activity_id, list, user_id, added_at) VALUES (?, 'weight', ?, 0)", s.id, i+1)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := l.Commit(t.Context(), batch)
			failed <- err
		}()
		s.waitBlocked(db)
		m := batch[0]
		execute(t, tx, fmt.Sprintf("INSERT INTO seckill_order_%02d (order_no, request_token, user_id, commodity_id, activity_id, quantity, "+
			"pay_amount, pay_before, created_at) VALUES (?, ?, ?, 'C0', ?, 1, 5, 0, 0)", sale.TableOf(m.UserID)), "1"+m.OrderNo, m.Token, m.UserID, s.id)
		err := <-failed
		if !errors.Is(err, sale.ErrTransient) || !strings.Contains(err.Error(), "1213") {
			t.Fatalf("got %v, want error 1213 as ErrTransient", err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		s.check(0)
		out, err := l.Commit(t.Context(), s.redeliver(batch))
		if err != nil || !out[0].Ordered || out[0].Repeated {
			t.Fatalf("run again as a whole: %+v %v", out, err)
		}
		s.check(int64(size))
	}
}

// FS-053: the stock row is held beyond the lock wait timeout. MySQL undoes only the last statement then; the ledger
// must roll the order back too.
func TestLockWaitTimeoutLeavesNothing(t *testing.T) {
	t.Parallel()
	dsn := database.dsn(t)
	l := openMySQL(t, func(o *ledger.Options) { o.LockWait = time.Second })
	db := rawDB(t, dsn)
	s := newStall(t, l, 100)
	batch := s.messages(3)
	tx := s.lockStock(db)
	_, err := l.Commit(t.Context(), batch)
	if !errors.Is(err, sale.ErrTransient) || !strings.Contains(err.Error(), "1205") {
		t.Fatalf("got %v, want error 1205 as ErrTransient", err)
	}
	if use := l.Stats().InUse; use != 0 {
		t.Fatalf("%d connections still in use", use)
	}
	// Whoever committed next on that connection would have committed the orphaned orders with it.
	if err := l.AdminLog(t.Context(), "x", "x", s.id, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := l.DecisionByToken(t.Context(), s.id, batch[0].UserID, batch[0].Token, 0); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("half of the transaction is there: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.check(0)
	out, err := l.Commit(t.Context(), s.redeliver(batch))
	if err != nil || !out[2].Ordered || out[2].Repeated {
		t.Fatalf("again: %+v %v", out, err)
	}
	s.check(3)
}

// S20: a transaction that outlasts its deadline is transient, and nothing of it stays.
func TestTxTimeoutIsTransient(t *testing.T) {
	t.Parallel()
	dsn := database.dsn(t)
	l := openMySQL(t, func(o *ledger.Options) { o.TxTimeout, o.LockWait = 300*time.Millisecond, 30*time.Second })
	s := newStall(t, l, 100)
	tx := s.lockStock(rawDB(t, dsn))
	m := s.message()
	if _, err := l.Commit(t.Context(), []sale.Pending{m}); !errors.Is(err, sale.ErrTransient) {
		t.Fatalf("got %v, want ErrTransient", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; { // the server notices the cut connection when it gets the lock
		out, err := l.Commit(t.Context(), []sale.Pending{m})
		if err == nil && out[0].Ordered {
			break
		}
		if !errors.Is(err, sale.ErrTransient) || time.Now().After(deadline) {
			t.Fatalf("again: %+v %v", out, err)
		}
	}
	s.check(1)
}

// FS-054: the server hangs up on idle connections; no caller may notice. The long run uses the case's own times.
func TestIdleConnectionsCutByServer(t *testing.T) {
	t.Parallel()
	timeout, idle, rounds := 1, 1500*time.Millisecond, 2
	if testenv.Long() {
		timeout, idle, rounds = 5, 10*time.Second, 20
	}
	dsn := database.dsn(t) + fmt.Sprintf("?wait_timeout=%d", timeout)
	l := openDSN(t, dsn, nil)
	s := newStall(t, l, 100)
	for i := range rounds {
		time.Sleep(idle) // idleness is the point
		out, err := l.Commit(t.Context(), s.messages(1))
		if err != nil || !out[0].Ordered || out[0].Repeated {
			t.Fatalf("after idling: %+v %v", out, err)
		}
		s.check(int64(i + 1))
	}
	if closed := l.Stats().MaxIdleTimeClosed; closed == 0 {
		t.Error("the pool kept connections for longer than half of wait_timeout")
	}
}

// FS-054: connections that died while idle (restart, firewall) are replaced before they are used.
func TestDeadConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	p, dsn := newProxy(t, database.dsn(t))
	l := openDSN(t, dsn, nil)
	s := newStall(t, l, 100)
	for i := range 20 {
		p.cutAll()
		out, err := l.Commit(t.Context(), s.messages(1))
		for n := 0; errors.Is(err, sale.ErrTransient) && n < 3; n++ { // the cut may not have arrived yet
			out, err = l.Commit(t.Context(), s.messages(1))
		}
		if err != nil || !out[0].Ordered {
			t.Fatalf("round %d: %+v %v", i, out, err)
		}
	}
	s.check(20)
}

// FS-055, R1, R7: the link is cut right after COMMIT was sent: applied, not applied, and not known even to the proxy.
// The same batch again finds what stands; there is one order, and what was committed stays.
func TestUnknownCommit(t *testing.T) {
	t.Parallel()
	p, dsn := newProxy(t, database.dsn(t))
	l := openDSN(t, dsn, nil)
	for _, c := range []struct {
		name    string
		cut     commitCut
		applied bool
	}{{"applied", cutAfter, true}, {"not applied", cutBefore, false}, {"in flight", cutMidWait, true}} {
		for _, size := range []int{1, 20} {
			t.Run(fmt.Sprintf("%s, %d", c.name, size), func(t *testing.T) {
				s := newStall(t, l, 100)
				batch := s.messages(size)
				before := p.done()
				p.arm(c.cut)
				out, err := l.Commit(t.Context(), batch)
				if p.done() != before+1 || !errors.Is(err, sale.ErrTransient) || out != nil {
					t.Fatalf("cut at COMMIT: %+v %v, want ErrTransient", out, err)
				}
				again := s.redeliver(batch)
				out, err = l.Commit(t.Context(), again)
				if err != nil {
					t.Fatal(err)
				}
				for i, d := range out {
					want := again[i].OrderNo
					if c.applied {
						want = batch[i].OrderNo
					}
					if !d.Ordered || d.Repeated != c.applied || d.OrderNo != want {
						t.Fatalf("message %d: %+v, want order %s", i, d, want)
					}
				}
				s.check(int64(size))
			})
		}
	}
}

// FS-055 for a payment, whose caller is a user: the ledger itself repeats it and answers with what stands.
func TestUnknownCommitOfPayment(t *testing.T) {
	t.Parallel()
	p, dsn := newProxy(t, database.dsn(t))
	l := openDSN(t, dsn, nil)
	for _, cut := range []commitCut{cutAfter, cutBefore} {
		s := newStall(t, l, 10)
		m := s.message()
		out, err := l.Commit(t.Context(), []sale.Pending{m})
		if err != nil {
			t.Fatal(err)
		}
		before := p.done()
		p.arm(cut)
		o, changed, err := l.Pay(t.Context(), out[0].OrderNo, m.UserID, time.Now(), "demo")
		if err != nil || o.Status != sale.StatusPaid || o.Version != 2 || changed != (cut == cutBefore) || p.done() != before+1 {
			t.Fatalf("pay: %+v %v %v", o, changed, err)
		}
		rows, err := l.TokenStory(t.Context(), m.UserID, m.Token)
		if err != nil || len(rows) != 3 {
			t.Fatalf("log rows %d, %v, want 3", len(rows), err)
		}
		s.check(1)
	}
}
