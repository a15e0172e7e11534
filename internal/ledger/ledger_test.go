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

// The conformance suite on the embedded dialect. It protects S1, S9, S12, S13, S15, S16, S17, S23, S31 and S34; FS-001,
// FS-003, FS-007, FS-016, FS-020, FS-034, FS-050, FS-056, FS-057, FS-058, FS-059, FS-060, FS-076, FS-087 and FS-096.
func TestSQLite(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t *testing.T, edit func(*ledger.Options)) ledgertest.Ledger { return openSQLite(t, edit) })
}
