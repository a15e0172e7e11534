package ledger

import (
	"context"
	"database/sql"
	"io/fs"
)

// dialect is everything that differs between the two databases. Statements are otherwise the same text: both take
// ? for values and backquotes around names that are reserved words.
type dialect struct {
	name      string
	forUpdate string // appended to a SELECT that must lock its rows
	nowMS     string // SQL expression: the database's clock in epoch milliseconds

	isDuplicate func(error) bool // a unique key was violated
	isTransient func(error) bool // deadlock, lock wait, read-only after fail-over, …
	noTable     func(error) bool // the table does not exist

	// snapshot are the options of a transaction whose reads all see one state of the database.
	snapshot *sql.TxOptions

	migrations fs.FS  // goose files
	shard      string // statements that create the tables of one shard, with NN for its number
	// migrateLock lets one process migrate at a time; it returns the function that unlocks.
	migrateLock func(ctx context.Context, db *sql.DB) (func(), error)
}
