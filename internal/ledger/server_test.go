package ledger_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/ledger/ledgertest"
	"seckill/internal/sale"
	"seckill/internal/testenv"
)

// S30, FS-065: through a replica that is seconds behind, a result that was just decided is never "not found", and
// with minVersion never older than what the caller has seen.
func TestReplicaLagNeverShows(t *testing.T) {
	t.Parallel()
	dsn := database.dsn(t)
	cfg := withDatabase(testenv.MySQLReplica(t), database.name)
	l := openDSN(t, dsn, func(o *ledger.Options) { o.ReplicaDSN = cfg })
	s := newStall(t, l, 2)
	batch := s.messages(3)
	out, err := l.Commit(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	read := func(d sale.Decision, minVersion int64) *sale.Decision {
		t.Helper()
		got, err := l.DecisionByToken(t.Context(), s.id, d.UserID, d.Token, minVersion)
		if err != nil {
			t.Fatalf("decision of %s: %v", d.Token, err)
		}
		return got
	}
	for _, d := range out { // two orders and a refusal
		if got := read(d, 0); got.Result() != d.Result() {
			t.Fatalf("read %+v\nmade %+v", got, d)
		}
	}
	// Wait until the replica has it, by asking the replica alone.
	replica, err := ledger.Open(t.Context(), ledger.Options{Driver: ledger.DriverMySQL, DSN: cfg})
	for deadline := time.Now().Add(30 * time.Second); ; {
		if err == nil {
			if _, err = replica.DecisionByToken(t.Context(), s.id, out[0].UserID, out[0].Token, 0); err == nil {
				break
			}
		} else {
			replica, err = ledger.Open(t.Context(), ledger.Options{Driver: ledger.DriverMySQL, DSN: cfg})
		}
		if time.Now().After(deadline) {
			t.Fatalf("the replica never got it: %v", err)
		}
		time.Sleep(100 * time.Millisecond) // replication gives no signal
	}
	t.Cleanup(func() { _ = replica.Close() })
	if _, _, err := l.Pay(t.Context(), out[0].OrderNo, out[0].UserID, time.Now(), "demo"); err != nil {
		t.Fatal(err)
	}
	if got := read(out[0], 0); got.Version != 1 {
		t.Fatalf("version %d: the replica was not asked first, or does not lag", got.Version)
	}
	if got := read(out[0], 2); got.Status != sale.StatusPaid {
		t.Fatalf("with version 2 seen: %+v", got)
	}
}

// A replica that is down costs nothing but the attempt.
func TestReplicaDown(t *testing.T) {
	t.Parallel()
	l := openMySQL(t, func(o *ledger.Options) { o.ReplicaDSN = "root@tcp(127.0.0.1:1)/x" })
	s := newStall(t, l, 2)
	m := s.messages(1)
	if _, err := l.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if d, err := l.DecisionByToken(t.Context(), s.id, m[0].UserID, m[0].Token, 0); err != nil || !d.Ordered {
		t.Fatalf("%+v %v", d, err)
	}
}

// Environment of the child process of TestTimeZones.
const (
	zoneDSN = "SECKILL_LEDGER_ZONE_DSN"
	zoneID  = "SECKILL_LEDGER_ZONE_ID"
)

// FS-034: processes in several zones, servers and DSNs that say otherwise: one stored start, one instant.
func TestTimeZones(t *testing.T) {
	t.Parallel()
	dsn := database.dsn(t)
	l := openMySQL(t, nil)
	start := time.Date(2026, 11, 1, 1, 30, 0, 123e6, time.UTC) // an hour that comes twice in America
	id := "Z-" + rand.Text()[:10]
	err := l.CreateActivity(t.Context(), &sale.Activity{
		ID: id, Title: "zones", StartsAt: start.In(time.FixedZone("x", 8*3600)), EndsAt: start.Add(time.Hour), PayWithin: time.Minute,
		Items: []sale.Item{{CommodityID: "C0", Title: "x", Price: decimal.NewFromInt(5), Total: 1, MaxPerUser: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tz := range []string{"UTC", "Asia/Shanghai", "America/Sao_Paulo", "America/New_York"} {
		for _, params := range []string{"", "?parseTime=true&loc=Asia%2FShanghai&time_zone=%27%2B08%3A00%27"} {
			c := exec.CommandContext(t.Context(), self, "-test.run=^TestZoneChild$", "-test.v")
			c.Env = append(os.Environ(), "TZ="+tz, zoneDSN+"="+dsn+params, zoneID+"="+id)
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", tz, err, out)
			}
			if want := "starts at " + strconv.FormatInt(start.UnixMilli(), 10) + "\n"; !strings.Contains(string(out), want) {
				t.Errorf("TZ=%s, DSN parameters %q:\n%s\nwant %s", tz, params, out, want)
			}
		}
	}
}

// TestZoneChild is a process of TestTimeZones; by itself it does nothing.
func TestZoneChild(t *testing.T) {
	if os.Getenv(zoneDSN) == "" {
		t.Skip("only as a child of TestTimeZones")
	}
	l, err := ledger.Open(t.Context(), ledger.Options{Driver: ledger.DriverMySQL, DSN: os.Getenv(zoneDSN)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := l.Activity(t.Context(), os.Getenv(zoneID))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("starts at %d\n", a.StartsAt.UnixMilli())
	// A lease for an hour is one for an hour, whatever zone the session was asked for.
	if _, err := l.AcquireLease(t.Context(), "zone-"+rand.Text()[:8], "a", time.Hour); err != nil {
		t.Fatal(err)
	}
}

// Several processes migrate a new database at once; before that, the error names the command to run.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	root := testenv.MySQL(t)
	_ = database.dsn(t)
	name := "seckill_ledger_" + strings.ToLower(rand.Text()[:8])
	if err := database.exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.exec("DROP DATABASE " + name) })
	migrateTogether(t, 3, func() *ledger.Ledger {
		return openDSN(t, withDatabase(root, name), nil)
	})
	var n int
	q := "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ? AND (table_name LIKE 'seckill\\_order\\___' OR table_name LIKE 'stock\\_token\\_log\\___')"
	if err := rawDB(t, withDatabase(root, name)).QueryRow(q, name).Scan(&n); err != nil || n != 32 {
		t.Fatalf("%d sharded tables, %v", n, err)
	}
}

func TestMigrateTogetherSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	migrateTogether(t, 1, func() *ledger.Ledger {
		l, err := ledger.Open(t.Context(), ledger.Options{Driver: ledger.DriverSQLite, DSN: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	})
}

func migrateTogether(t *testing.T, n int, open func() *ledger.Ledger) {
	t.Helper()
	l := open()
	if err := l.CheckSchema(t.Context()); err == nil || !strings.Contains(err.Error(), "seckill migrate") || errors.Is(err, sale.ErrTransient) {
		t.Fatalf("empty database: %v, want an error that names `seckill migrate`", err)
	}
	errs := make(chan error, n)
	for range n {
		l := open()
		go func() { errs <- l.Migrate(t.Context()) }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := l.CheckSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	newStall(t, l, 1)
}

// Bad options are refused with a word about what is wrong, a server that is away is transient, and no error shows
// the password.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		driver, dsn, want string
		transient         bool
	}{
		{"", "x", "unknown driver", false},
		{"postgres", "x", "unknown driver", false},
		{ledger.DriverMySQL, "", "DSN is empty", false},
		{ledger.DriverMySQL, "user:secret@nonsense", "MySQL DSN", false},
		{ledger.DriverMySQL, "user:secret@tcp(127.0.0.1:1)/x", "ping mysql", true},
		{ledger.DriverSQLite, ":memory:", "plain file path", false},
		{ledger.DriverSQLite, "/no/such/folder/x.db", "ping sqlite", false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		l, err := ledger.Open(ctx, ledger.Options{Driver: c.driver, DSN: c.dsn})
		cancel()
		if l != nil || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") ||
			errors.Is(err, sale.ErrTransient) != c.transient {
			t.Errorf("%s %s: %v", c.driver, c.dsn, err)
		}
	}
}

// An embedded shop that is started again finds its orders: the file is durable, and two ledgers may share it.
func TestSQLiteReopen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	o := ledger.Options{Driver: ledger.DriverSQLite, DSN: path}
	ledgertest.Defaults(&o)
	first, err := ledger.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newStall(t, first, 5)
	m := s.messages(2)
	if _, err := first.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	second, err := ledger.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := second.CheckSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := second.Commit(t.Context(), m)
	if err != nil || !out[0].Repeated || !out[1].Ordered {
		t.Fatalf("%+v %v", out, err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var mode string
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Fatalf("journal mode %s %v", mode, err)
	}
}
