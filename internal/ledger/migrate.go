package ledger

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"

	"seckill/internal/sale"
)

//go:embed migrations/mysql/*.sql migrations/sqlite/*.sql
var migrationFiles embed.FS

//go:embed migrations/shard/mysql.sql
var mysqlShard string

//go:embed migrations/shard/sqlite.sql
var sqliteShard string

// Versions of the schema: the files under migrations, and the sharded tables, which are made from one template.
const (
	versionTable  = "seckill_schema"
	shardsVersion = 2
)

func mustSub(dir string) fs.FS {
	sub, err := fs.Sub(migrationFiles, dir)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return sub
}

// Migrate brings the tables up to the version of this program; it does nothing when they are. Processes that
// migrate at the same time wait for each other. Do not run it while a sale is open.
func (l *Ledger) Migrate(ctx context.Context) error {
	unlock, err := l.d.migrateLock(ctx, l.primary)
	if err != nil {
		return fmt.Errorf("migrate: %w", l.d.classify(err))
	}
	defer unlock()
	p, err := l.provider()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", l.d.classify(err))
	}
	return nil
}

// CheckSchema returns an error that names the command to run when the tables are older than this program.
func (l *Ledger) CheckSchema(ctx context.Context) error {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	p, err := l.provider()
	if err != nil {
		return fmt.Errorf("check schema: %w", err)
	}
	want := int64(0)
	for _, s := range p.ListSources() {
		want = max(want, s.Version)
	}
	var have sql.NullInt64
	err = l.read.QueryRowContext(ctx, "SELECT MAX(version_id) FROM "+versionTable+" WHERE is_applied = 1").Scan(&have)
	if err != nil && !l.d.noTable(err) {
		return fmt.Errorf("check schema: %w", l.d.classify(err))
	}
	if err != nil || have.Int64 < want {
		return fmt.Errorf("check schema: tables are at version %d, this program needs %d: run `seckill migrate`: %w",
			have.Int64, want, sale.ErrNotFound)
	}
	return nil
}

func (l *Ledger) provider() (*goose.Provider, error) {
	name := goose.DialectMySQL
	if l.d.name == DriverSQLite {
		name = goose.DialectSQLite3
	}
	shards := goose.NewGoMigration(shardsVersion, &goose.GoFunc{RunTx: l.createShards}, &goose.GoFunc{RunTx: dropShards})
	return goose.NewProvider(name, l.primary, l.d.migrations, goose.WithGoMigrations(shards),
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
}

func (l *Ledger) createShards(ctx context.Context, t *sql.Tx) error {
	for n := range sale.Tables {
		for stmt := range strings.SplitSeq(strings.ReplaceAll(l.d.shard, "NN", fmt.Sprintf("%02d", n)), ";") {
			if strings.TrimSpace(stmt) == "" {
				continue
			}
			if _, err := t.ExecContext(ctx, stmt); err != nil {
				return fmt.Errorf("shard %02d: %w", n, err)
			}
		}
	}
	return nil
}

func dropShards(ctx context.Context, t *sql.Tx) error {
	var errs []error
	for n := range sale.Tables {
		for _, table := range []string{orderTable(n), logTable(n)} {
			_, err := t.ExecContext(ctx, "DROP TABLE "+table)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func orderTable(n int) string { return fmt.Sprintf("seckill_order_%02d", n) }

func logTable(n int) string { return fmt.Sprintf("stock_token_log_%02d", n) }
