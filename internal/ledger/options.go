package ledger

import (
	"context"
	"fmt"
	"time"
)

// Drivers that Options.Driver may name.
const (
	DriverMySQL  = "mysql"
	DriverSQLite = "sqlite"
)

// Options say where the database is and bound what the ledger may use of it. Zero values mean the defaults.
type Options struct {
	Driver string // "mysql" or "sqlite"
	// DSN of the primary. MySQL: the go-sql-driver form, user:password@tcp(host:port)/database; what the ledger
	// depends on (time zone, SQL mode, found rows, time-outs) it sets itself. SQLite: the path of the file.
	DSN string
	// ReplicaDSN of a read replica (MySQL only); empty: all reads go to the primary.
	ReplicaDSN string

	MaxOpenConns    int           // connections to each server; default 16 (SQLite: readers, default 4, and one writer)
	ConnMaxLifetime time.Duration // age at which a connection is replaced; default 3 min
	// ConnMaxIdleTime is how long an unused connection is kept; default 1 min, and never more than half of the
	// server's wait_timeout, so that the server does not hang up first (FS-054).
	ConnMaxIdleTime time.Duration
	DialTimeout     time.Duration // default 5 s
	TxTimeout       time.Duration // longest transaction or query, from begin to commit; default 5 s
	LockWait        time.Duration // longest wait for one row lock (MySQL: whole seconds); default 3 s
	SnapshotTimeout time.Duration // longest RebuildSnapshot or Balance; default 2 min
	Attempts        int           // tries of a status change, list or lease call on transient failures; default 4. Commit is never repeated here
	MaxBatch        int           // reservations in one Commit; default 2000
	MaxRows         int           // rows in one INSERT and values in one IN list; default 500
	MaxList         int           // rows of Activities (newest first), Untold and PendingReturns at most; default 1000
	MaxUsers        int           // users of one list that UserList and RebuildSnapshot read; default 1,000,000

	Now func() time.Time // default time.Now
	// NewOrderNo draws another order number when the one given with a reservation is taken (FS-096). Without it
	// such a Commit fails with ErrOrderNoTaken.
	NewOrderNo func(userID int64) string
	TraceID    func(ctx context.Context) string // trace id for log rows of status changes; default none
	Node       string                           // this process, in every log row; ASCII, at most 64
	Role       string                           // gateway, consumer, …, in every log row; ASCII, at most 16
}

func (o *Options) setDefaults() error {
	if o.Driver != DriverMySQL && o.Driver != DriverSQLite {
		return fmt.Errorf("ledger: unknown driver %q, want %q or %q", o.Driver, DriverMySQL, DriverSQLite)
	}
	if o.DSN == "" {
		return fmt.Errorf("ledger: DSN is empty")
	}
	conns := 16
	if o.Driver == DriverSQLite {
		conns = 4
	}
	setInt(&o.MaxOpenConns, conns)
	setInt(&o.Attempts, 4)
	setInt(&o.MaxBatch, 2000)
	setInt(&o.MaxRows, 500)
	setInt(&o.MaxList, 1000)
	setInt(&o.MaxUsers, 1_000_000)
	setDuration(&o.ConnMaxLifetime, 3*time.Minute)
	setDuration(&o.ConnMaxIdleTime, time.Minute)
	setDuration(&o.DialTimeout, 5*time.Second)
	setDuration(&o.TxTimeout, 5*time.Second)
	setDuration(&o.LockWait, 3*time.Second)
	setDuration(&o.SnapshotTimeout, 2*time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.TraceID == nil {
		o.TraceID = func(context.Context) string { return "" }
	}
	o.Node = plainText(o.Node, 64)
	o.Role = plainText(o.Role, 16)
	return nil
}

func setInt(p *int, def int) {
	if *p <= 0 {
		*p = def
	}
}

func setDuration(p *time.Duration, def time.Duration) {
	if *p <= 0 {
		*p = def
	}
}

// plainText makes s fit an ASCII column: other bytes become '?', what is too long is cut. Only for words that
// describe (reason, node, trace id), never for ids.
func plainText(s string, maxBytes int) string {
	if len(s) > maxBytes {
		s = s[:maxBytes]
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			b := []byte(s)
			for j := range b {
				if b[j] < ' ' || b[j] > '~' {
					b[j] = '?'
				}
			}
			return string(b)
		}
	}
	return s
}
