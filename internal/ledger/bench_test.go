package ledger_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/ledger/ledgertest"
	"seckill/internal/sale"
)

// BenchmarkCommit measures orders committed a second (P4) by one worker: Commit, and beside it the ceiling, which
// writes the same rows (order, two log rows) as multi-row INSERTs in one transaction and does nothing else: no
// look-up, no check, no stock. "raw" spreads them over the 16 tables as Commit does; "raw one table" puts all
// into one. Run: SECKILL_TEST_MYSQL=… go test -bench Commit -run '^$' ./internal/ledger
func BenchmarkCommit(b *testing.B) {
	dsn := database.dsn(b)
	for _, size := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("mysql/%d", size), func(b *testing.B) {
			benchCommit(b, ledger.Options{Driver: ledger.DriverMySQL, DSN: dsn}, size)
		})
		b.Run(fmt.Sprintf("raw/%d", size), func(b *testing.B) { benchRaw(b, dsn, size, sale.Tables) })
		b.Run(fmt.Sprintf("raw one table/%d", size), func(b *testing.B) { benchRaw(b, dsn, size, 1) })
	}
}

// BenchmarkCommitSQLite is the embedded default on this machine's disk.
func BenchmarkCommitSQLite(b *testing.B) {
	for _, size := range []int{1, 100, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			benchCommit(b, ledger.Options{Driver: ledger.DriverSQLite, DSN: b.TempDir() + "/x.db"}, size)
		})
	}
}

func benchCommit(b *testing.B, o ledger.Options, size int) {
	ledgertest.Defaults(&o)
	l, err := ledger.Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if err := l.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	r := newBenchRows(b)
	err = l.CreateActivity(b.Context(), &sale.Activity{
		ID: r.id, Title: "bench", StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), PayWithin: time.Minute, State: sale.StateScheduled,
		Items: []sale.Item{{CommodityID: "C0", Title: "x", Price: decimal.NewFromInt(99), Total: sale.MaxStock, MaxPerUser: 1}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		out, err := l.Commit(b.Context(), r.batch(size))
		if err != nil || !out[size-1].Ordered || out[0].Repeated {
			b.Fatalf("%+v %v", out, err)
		}
	}
	b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}

// benchRows makes messages as large as real ones: tokens of 60 characters, snowflakes, trace ids.
type benchRows struct {
	id   string
	next int64
}

func newBenchRows(b *testing.B) *benchRows {
	b.Helper()
	n := time.Now().UnixNano()
	return &benchRows{id: fmt.Sprintf("BENCH-%d", n%1e15), next: n % 1e15}
}

func (r *benchRows) batch(size int) []sale.Pending {
	list := make([]sale.Pending, size)
	for i := range list {
		r.next++
		u := r.next
		list[i] = sale.Pending{
			Reservation: sale.Reservation{Token: fmt.Sprintf("%020d%s%020d", u*7919%1e12, "abcdefghijklmnopqrst", u), UserID: u, ActivityID: r.id,
				CommodityID: "C0", Price: decimal.NewFromInt(99), Quantity: 1, At: time.Now(), TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"},
			OrderNo: sale.OrderNo(1e18+u, u), Partition: 1, Offset: u,
		}
	}
	return list
}

func benchRaw(b *testing.B, dsn string, size, tables int) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		b.Fatal(err)
	}
	cfg.InterpolateParams = true
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	r := newBenchRows(b)
	for b.Loop() {
		if err := rawBatch(b, db, r.batch(size), tables); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}

// rawBatch inserts the rows of a batch and commits.
func rawBatch(b *testing.B, db *sql.DB, batch []sale.Pending, tables int) error {
	by := make([][]sale.Pending, tables)
	for _, m := range batch {
		n := int(m.UserID % int64(tables))
		by[n] = append(by[n], m)
	}
	tx, err := db.BeginTx(b.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	now := time.Now().UnixMilli()
	for n, list := range by {
		if len(list) == 0 {
			continue
		}
		var logs, orders []any
		for _, m := range list {
			logs = append(logs, m.Token, 0, m.UserID, m.ActivityID, "C0", 1, "", "occupied", nil, "", "", "tester", "node-1", m.TraceID, now,
				m.Token, 1, m.UserID, m.ActivityID, "C0", 1, "occupied", "committed", 0, "", "", "tester", "node-1", m.TraceID, now)
			orders = append(orders, m.OrderNo, m.Token, m.UserID, m.ActivityID, "C0", 1, "99.00", 0, 1, now, now, 1)
		}
		q := fmt.Sprintf("INSERT INTO stock_token_log_%02d (token, version, user_id, activity_id, commodity_id, quantity, from_state, to_state, status, "+
			"reason, first_token, role, node, trace_id, at) VALUES ", n) + rows(2*len(list), 15)
		if _, err := tx.ExecContext(b.Context(), q, logs...); err != nil {
			return err
		}
		q = fmt.Sprintf("INSERT INTO seckill_order_%02d (order_no, request_token, user_id, activity_id, commodity_id, quantity, pay_amount, status, "+
			"version, created_at, pay_before, told_version) VALUES ", n) + rows(len(list), 12)
		if _, err := tx.ExecContext(b.Context(), q, orders...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func rows(n, columns int) string {
	one := "(" + strings.TrimSuffix(strings.Repeat("?,", columns), ",") + "),"
	return strings.TrimSuffix(strings.Repeat(one, n), ",")
}
