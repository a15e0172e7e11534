package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// mariadbGrace is how long Stop waits for a database to flush.
	mariadbGrace = 20 * time.Second
	// Server ids must differ between a primary and its replica.
	primaryID = 1
	replicaID = 2
)

// StartMariaDB starts a private MariaDB with full durability (the redo log is flushed at every commit) and a row-format
// binary log from its first change on, so that a replica can follow it. The user root has no password on 127.0.0.1.
// The context bounds the start only; Close ends the server.
func StartMariaDB(ctx context.Context) (*Server, error) {
	return startMariaDB(ctx, "mariadb", primaryID)
}

// StartMariaDBReplica starts a private MariaDB that follows primary, a server of StartMariaDB, and applies every
// change delay after the primary made it. The delay is in whole seconds; 0 is as fast as it can.
func StartMariaDBReplica(ctx context.Context, primary *Server, delay time.Duration) (*Server, error) {
	s, err := startMariaDB(ctx, "mariadb replica", replicaID, "--read-only=1", "--slave-net-timeout=10")
	if err != nil {
		return nil, err
	}
	if err := follow(ctx, s.DSN, primary.ports[0].number, delay); err != nil {
		return nil, errors.Join(fmt.Errorf("follow the primary: %w", err), s.Close())
	}
	return s, nil
}

func startMariaDB(ctx context.Context, name string, id int, extra ...string) (*Server, error) {
	daemon, err := findDaemon()
	if err != nil {
		return nil, err
	}
	ports, err := reservePorts(1)
	if err != nil {
		return nil, err
	}
	dir, err := newDir("mariadb")
	if err != nil {
		releasePorts(ports)
		return nil, err
	}
	p := ports[0]
	s := &Server{Name: name, Addr: p.addr(), Dir: dir, ports: ports, grace: mariadbGrace}
	s.DSN = "root@tcp(" + s.Addr + ")/"
	s.ready = func(ctx context.Context) error { return pingMySQL(ctx, s.DSN) }
	if err := installMariaDB(ctx, dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	args := append(commonArgs(dir), "--port="+strconv.Itoa(p.number), "--bind-address=127.0.0.1",
		// A relative path: the whole one may be longer than a Unix socket's name can be.
		"--socket=s.sock", "--pid-file=s.pid", "--skip-name-resolve",
		"--server-id="+strconv.Itoa(id), "--log-bin=binlog", "--binlog-format=ROW", "--gtid-strict-mode=1",
		"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=128M", "--max-connections=400",
		"--character-set-server=utf8mb4", "--performance-schema=OFF")
	s.run = command{path: daemon, args: append(args, extra...), dir: dir}
	return startServer(ctx, s)
}

// findDaemon finds MariaDB's server program. Debian puts it where only root's PATH looks.
func findDaemon() (string, error) {
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("mariadbd: %w", ErrNotInstalled)
}

// commonArgs are the options that the installer and the server must agree on. --no-defaults keeps the machine's own
// configuration out; it has to come first. Root must say that running as root is meant.
func commonArgs(dir string) []string {
	args := []string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--innodb-log-file-size=32M"}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// installMariaDB makes the system tables.
func installMariaDB(ctx context.Context, dir string) error {
	path, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return fmt.Errorf("mariadb-install-db: %w", ErrNotInstalled)
	}
	cmd := exec.CommandContext(ctx, path, append(commonArgs(dir),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--tmpdir="+dir)...)
	cmd.SysProcAttr = ChildAttr()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install mariadb tables: %w: %s", err, out)
	}
	return nil
}

// pingMySQL opens one connection and closes it again.
func pingMySQL(ctx context.Context, dsn string) error {
	db, err := openQuiet(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

// openQuiet opens dsn without the driver's log lines about a server that is not up yet.
func openQuiet(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("parse DSN: %w", err)
	}
	cfg.Logger = &mysql.NopLogger{}
	conn, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return sql.OpenDB(conn), nil
}

// follow points the replica at the primary's port and waits until both of its threads run.
func follow(ctx context.Context, dsn string, primaryPort int, delay time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	db, err := openQuiet(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, fmt.Sprintf(`CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d,
		MASTER_USER='root', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_DELAY=%d`,
		primaryPort, int(delay/time.Second))); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "START SLAVE"); err != nil {
		return err
	}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		state, err := replicaState(ctx, db)
		if err != nil {
			return err
		}
		if state["Slave_IO_Running"] == "Yes" && state["Slave_SQL_Running"] == "Yes" {
			return nil
		}
		if e := state["Last_Error"] + state["Last_IO_Error"]; e != "" {
			return errors.New(e)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// replicaState reads SHOW SLAVE STATUS, whose columns differ from version to version, by name.
func replicaState(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, "SHOW SLAVE STATUS")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	state := map[string]string{}
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		targets := make([]any, len(names))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		for i, n := range names {
			state[n] = strings.TrimSpace(values[i].String)
		}
	}
	return state, rows.Err()
}
