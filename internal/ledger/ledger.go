package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"seckill/internal/sale"
)

// Ledger is the database of all sales. It is safe for concurrent use.
type Ledger struct {
	opt     Options
	d       *dialect
	primary *sql.DB // writes, and reads that must see them
	read    *sql.DB // reads of the same state: the primary, or the readers of an SQLite file
	replica *sql.DB // reads that may lag; nil without a replica
}

// Open connects to the database and checks that it answers. It creates no tables: see Migrate and CheckSchema. A
// replica that cannot be reached is no error, since every replica read falls back to the primary.
func Open(ctx context.Context, o Options) (*Ledger, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	l := &Ledger{opt: o}
	var err error
	if o.Driver == DriverSQLite {
		err = l.openSQLite()
	} else {
		err = l.openMySQL()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := l.Ping(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if o.Driver == DriverMySQL {
		err := limitIdle(ctx, l.primary, o.ConnMaxIdleTime)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ledger: read wait_timeout: %w", l.d.classify(err)), l.Close())
		}
	}
	return l, nil
}

func (l *Ledger) openSQLite() (err error) {
	l.d = sqliteDialect()
	if l.primary, err = openSQLite(l.opt.DSN, &l.opt, true); err != nil {
		return err
	}
	l.read, err = openSQLite(l.opt.DSN, &l.opt, false)
	return err
}

func (l *Ledger) openMySQL() (err error) {
	l.d = mysqlDialect()
	if l.primary, err = openMySQL(l.opt.DSN, &l.opt); err != nil {
		return err
	}
	l.read = l.primary
	if l.opt.ReplicaDSN != "" {
		l.replica, err = openMySQL(l.opt.ReplicaDSN, &l.opt)
	}
	return err
}

// Close closes all connections; it waits for queries that have started.
func (l *Ledger) Close() error {
	var errs []error
	if l.replica != nil {
		errs = append(errs, l.replica.Close())
	}
	if l.read != nil && l.read != l.primary {
		errs = append(errs, l.read.Close())
	}
	if l.primary != nil {
		errs = append(errs, l.primary.Close())
	}
	return errors.Join(errs...)
}

// Ping reports whether the primary answers, within TxTimeout.
func (l *Ledger) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.opt.TxTimeout)
	defer cancel()
	if err := l.primary.PingContext(ctx); err != nil {
		return fmt.Errorf("ping %s: %w", l.d.name, l.d.classify(err))
	}
	return nil
}

// Stats are the connection statistics of the primary's pool.
func (l *Ledger) Stats() sql.DBStats { return l.primary.Stats() }

func (l *Ledger) nowMS() int64 { return l.opt.Now().UnixMilli() }

// tx is what statements run on: a transaction, or a pool for single queries.
type tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// inTx runs fn in one transaction with a deadline of TxTimeout. Whatever goes wrong, the transaction is rolled
// back as a whole: after a lock wait timeout MySQL leaves it open with its earlier statements in place (FS-053).
// An error of the commit itself means that the outcome is unknown, which is transient, never a failure (FS-055).
func (l *Ledger) inTx(ctx context.Context, fn func(ctx context.Context, t tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.opt.TxTimeout)
	defer cancel()
	t, err := l.primary.BeginTx(ctx, nil)
	if err != nil {
		return l.d.classify(err)
	}
	if err := fn(ctx, t); err != nil {
		_ = t.Rollback() // the first error counts; a connection that cannot roll back is dropped with its transaction
		return l.d.classify(err)
	}
	if err := t.Commit(); err != nil {
		if err := l.d.classify(err); errors.Is(err, sale.ErrTransient) {
			return fmt.Errorf("commit, outcome unknown: %w", err)
		}
		return fmt.Errorf("commit, outcome unknown: %w: %w", sale.ErrTransient, err)
	}
	return nil
}

// retryTx is inTx, repeated on transient failures with a growing random pause. Only for transactions that are
// harmless to repeat after an unknown commit.
func (l *Ledger) retryTx(ctx context.Context, fn func(ctx context.Context, t tx) error) error {
	var err error
	for i := range l.opt.Attempts {
		if i > 0 {
			pause := time.Duration(1+rand.IntN(5<<i)) * time.Millisecond
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pause):
			}
		}
		if err = l.inTx(ctx, fn); !errors.Is(err, sale.ErrTransient) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// query runs one read with a deadline and gives each row to scan. Rows are always read to the end and closed, so
// that no connection is kept (FS-057).
func (l *Ledger) query(ctx context.Context, db tx, scan func(*sql.Rows) error, q string, args ...any) error {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return l.d.classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return l.d.classify(err)
		}
	}
	return l.d.classify(rows.Err())
}

func (l *Ledger) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.opt.TxTimeout)
}
