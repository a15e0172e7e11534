package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

func sqliteDialect() *dialect {
	return &dialect{
		name:  DriverSQLite,
		nowMS: "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)",
		isDuplicate: func(err error) bool {
			n, ok := sqliteCode(err)
			return ok && (n == sqlite3.SQLITE_CONSTRAINT_UNIQUE || n == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
		},
		isTransient: func(err error) bool {
			n, ok := sqliteCode(err)
			if !ok {
				return false
			}
			switch n & 0xff {
			case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR,
				sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL:
				return true
			}
			return false
		},
		noTable:    func(err error) bool { return strings.Contains(err.Error(), "no such table") },
		snapshot:   &sql.TxOptions{ReadOnly: true},
		migrations: mustSub("migrations/sqlite"),
		shard:      sqliteShard,
		// One connection writes, and the migration holds it; a second process waits for the file lock.
		migrateLock: func(context.Context, *sql.DB) (func(), error) { return func() {}, nil },
	}
}

func sqliteCode(err error) (int, bool) {
	var se *sqlite.Error
	if errors.As(err, &se) {
		return se.Code(), true
	}
	return 0, false
}

// openSQLite prepares a pool for one file: WAL, so that readers never wait for the writer; synchronous FULL, so
// that an order that was committed survives a power cut. The writer pool has one connection and takes the write
// lock when a transaction begins, so that no transaction fails half-way for a lock it could not upgrade.
func openSQLite(path string, o *Options, writer bool) (*sql.DB, error) {
	if path == ":memory:" || strings.HasPrefix(path, "file:") || strings.ContainsAny(path, "?#") {
		return nil, fmt.Errorf("ledger: SQLite DSN %q: must be a plain file path", path)
	}
	q := url.Values{}
	q.Set("_busy_timeout", strconv.FormatInt(o.LockWait.Milliseconds(), 10))
	q.Set("_foreign_keys", "1")
	conns := o.MaxOpenConns
	if writer {
		q.Set("_journal_mode", "WAL")
		q.Set("_synchronous", "FULL")
		q.Set("_txlock", "immediate")
		conns = 1
	} else {
		q.Set("_query_only", "1")
	}
	db, err := sql.Open("sqlite", path+"?"+q.Encode())
	if err != nil {
		return nil, fmt.Errorf("ledger: open %s: %w", path, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}
