package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/sale"
)

// mysqlTransient reports the server errors after which the same transaction, run again as a whole, may well
// succeed. Sources: MySQL 8 server error reference, MariaDB error codes.
func mysqlTransient(number uint16) bool {
	switch number {
	case 1205, // lock wait timeout: the statement was undone, the transaction is still open (FS-053)
		1213, // deadlock: the whole transaction was undone (FS-052)
		1614, // XA deadlock
		1206, // lock table full
		1020, // record has changed since last read (MariaDB, innodb_snapshot_isolation)
		1412, // table definition has changed
		3572, // row lock not available
		1180: // error during commit
		return true
	case 1290, 1792, 1836: // the server has become read-only: a fail-over is under way
		return true
	case 1040, 1203, 1226: // too many connections, of all or of this user; a resource limit
		return true
	case 1021, 1041: // disk full, out of memory
		return true
	case 1053, 1077, 1927, 3169, 4031, // shutdown; connection or session killed; disconnected for inactivity
		1042, 1129, 1158, 1159, 1160, 1161, 2006, 2013: // network, host cache
		return true
	case 1317, 1969, 3024: // query interrupted, time limits of the server
		return true
	}
	return false
}

func mysqlDialect() *dialect {
	return &dialect{
		name:      DriverMySQL,
		forUpdate: " FOR UPDATE",
		nowMS:     "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
		isDuplicate: func(err error) bool {
			n, ok := mysqlNumber(err)
			return ok && (n == 1062 || n == 1586)
		},
		isTransient: func(err error) bool {
			n, ok := mysqlNumber(err)
			return ok && mysqlTransient(n) || errors.Is(err, mysql.ErrInvalidConn) ||
				errors.Is(err, mysql.ErrPktSync) || errors.Is(err, mysql.ErrBusyBuffer) || errors.Is(err, mysql.ErrMalformPkt)
		},
		noTable: func(err error) bool {
			n, ok := mysqlNumber(err)
			return ok && n == 1146
		},
		snapshot:    &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		migrations:  mustSub("migrations/mysql"),
		shard:       mysqlShard,
		migrateLock: mysqlMigrateLock,
	}
}

func mysqlNumber(err error) (uint16, bool) {
	var me *mysql.MySQLError
	if errors.As(err, &me) {
		return me.Number, true
	}
	return 0, false
}

// openMySQL prepares a pool. It sets everything the ledger depends on, whatever the DSN and the server's
// configuration say: a DSN copied from another program must not change the meaning of a statement.
func openMySQL(dsn string, o *Options) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("ledger: MySQL DSN: %w", err)
	}
	cfg.ParseTime = false // times are bigint columns
	cfg.Loc = time.UTC
	// Affected rows are the rows that met the condition, as in SQLite, so that an update that changes nothing is
	// not taken for one that found nothing (FS-056).
	cfg.ClientFoundRows = true
	// One round trip a statement instead of three. The driver refuses it with the multi-byte character sets whose
	// escaping is unsafe; ours is utf8mb4.
	cfg.InterpolateParams = true
	cfg.MultiStatements = false
	cfg.RejectReadOnly = true // after a fail-over, leave a server that has become read-only
	cfg.CheckConnLiveness = true
	cfg.Logger = &mysql.NopLogger{} // whatever it would print is returned as an error too
	// Statements are bounded to MaxRows rows of a few hundred bytes; a packet above this is our mistake and is
	// refused here with an error, while the server would answer it by hanging up.
	cfg.MaxAllowedPacket = 8 << 20
	cfg.Collation = "utf8mb4_bin"
	setDuration(&cfg.Timeout, o.DialTimeout)
	setDuration(&cfg.ReadTimeout, o.SnapshotTimeout)
	setDuration(&cfg.WriteTimeout, o.SnapshotTimeout)
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	for k := range cfg.Params { // isolation has one owner, below
		if k == "transaction_isolation" || k == "tx_isolation" {
			delete(cfg.Params, k)
		}
	}
	cfg.Params["time_zone"] = "'+00:00'"
	cfg.Params["sql_mode"] = "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"
	cfg.Params["innodb_lock_wait_timeout"] = strconv.Itoa(max(1, int(o.LockWait/time.Second)))
	base, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("ledger: MySQL connector: %w", err)
	}
	db := sql.OpenDB(&mysqlConnector{Connector: base})
	db.SetMaxOpenConns(o.MaxOpenConns)
	db.SetMaxIdleConns(o.MaxOpenConns)
	db.SetConnMaxLifetime(o.ConnMaxLifetime)
	db.SetConnMaxIdleTime(o.ConnMaxIdleTime)
	return db, nil
}

// mysqlConnector gives every new connection READ COMMITTED as its default. Commit depends on no range it has
// read: unique keys and the conditional update decide (S12, S13). REPEATABLE READ would add gap locks that make
// inserts of two consumers dead-lock, and would hide, after a wait for a unique key, the very row that won. It is
// set by statement because MySQL and MariaDB name the variable differently.
type mysqlConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c *mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	const set = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, set, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// limitIdle lowers the idle time of a pool to half of the server's wait_timeout.
func limitIdle(ctx context.Context, db *sql.DB, idle time.Duration) error {
	var seconds int64
	if err := db.QueryRowContext(ctx, "SELECT @@wait_timeout").Scan(&seconds); err != nil {
		return err
	}
	if half := time.Duration(seconds) * time.Second / 2; half > 0 && half < idle {
		db.SetConnMaxIdleTime(half)
	}
	return nil
}

// mysqlMigrateLock takes the server's named lock on a connection of its own; it ends with that connection, so a
// process that dies leaves no lock behind.
func mysqlMigrateLock(ctx context.Context, db *sql.DB) (func(), error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got sql.NullInt64
	const q = "SELECT GET_LOCK(CONCAT('seckill_migrate_', MD5(DATABASE())), 60)"
	if err := conn.QueryRowContext(ctx, q).Scan(&got); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if got.Int64 != 1 {
		return nil, errors.Join(fmt.Errorf("another process is migrating: %w", sale.ErrTransient), conn.Close())
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK(CONCAT('seckill_migrate_', MD5(DATABASE())))")
		_ = conn.Close()
	}, nil
}
