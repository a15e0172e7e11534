package ledger_test

import (
	"path/filepath"
	"testing"

	"seckill/internal/ledger"
	"seckill/internal/ledger/ledgertest"
)

// openSQLite opens a new file with its tables made.
func openSQLite(t *testing.T, edit func(*ledger.Options)) *ledger.Ledger {
	t.Helper()
	o := ledger.Options{Driver: ledger.DriverSQLite, DSN: filepath.Join(t.TempDir(), "seckill.db")}
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
	if err := l.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, openSQLite)
}
