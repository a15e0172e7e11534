package ledger_test

import (
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/ledger"
	"seckill/internal/ledger/ledgertest"
	"seckill/internal/testenv"
)

// testDatabase is a database of this test process on the shared server, made at the first use and dropped at the
// end.
type testDatabase struct {
	once sync.Once
	root string // DSN without a database
	name string
	err  error
}

// database is shared by the tests of this process, because its 40 tables take seconds to make.
var database testDatabase

func TestMain(m *testing.M) {
	code := m.Run()
	database.drop()
	os.Exit(code)
}

// dsn returns the DSN of the test database, and skips the test when there is no server.
func (d *testDatabase) dsn(t testing.TB) string {
	t.Helper()
	root := testenv.MySQL(t)
	d.once.Do(func() {
		d.root, d.name = root, "seckill_ledger_"+strings.ToLower(rand.Text()[:8])
		if d.err = d.exec("CREATE DATABASE " + d.name); d.err != nil {
			return
		}
		var l *ledger.Ledger
		if l, d.err = ledger.Open(t.Context(), ledger.Options{Driver: ledger.DriverMySQL, DSN: withDatabase(root, d.name)}); d.err != nil {
			return
		}
		d.err = l.Migrate(t.Context())
		_ = l.Close()
	})
	if d.err != nil {
		t.Fatal(d.err)
	}
	return withDatabase(root, d.name)
}

func (d *testDatabase) exec(q string) error {
	db, err := sql.Open("mysql", d.root)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(q)
	return err
}

func (d *testDatabase) drop() {
	if d.name != "" {
		_ = d.exec("DROP DATABASE IF EXISTS " + d.name)
	}
}

// withDatabase is a DSN with another database name.
func withDatabase(dsn, name string) string {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		panic(err)
	}
	cfg.DBName = name
	return cfg.FormatDSN()
}

// openMySQL opens the test database.
func openMySQL(t *testing.T, edit func(*ledger.Options)) *ledger.Ledger {
	t.Helper()
	return openDSN(t, database.dsn(t), edit)
}

// openDSN opens another database, or the same one by another way.
func openDSN(t *testing.T, dsn string, edit func(*ledger.Options)) *ledger.Ledger {
	t.Helper()
	o := ledger.Options{Driver: ledger.DriverMySQL, DSN: dsn, MaxOpenConns: 8}
	ledgertest.Defaults(&o)
	if edit != nil {
		edit(&o)
	}
	l, err := ledger.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// The same suite, see TestSQLite, on a real server.
func TestMySQL(t *testing.T) {
	t.Parallel()
	database.dsn(t)
	ledgertest.Run(t, func(t *testing.T, edit func(*ledger.Options)) ledgertest.Ledger { return openMySQL(t, edit) })
}
