// Package ledger is the owner of all SQL tables: activities and their stock, the 16 order tables, the 16 token
// logs, leases, user lists and the admin log. It decides reservations (Commit), moves orders from status to
// status, and answers what a token, a user or an order number stands for.
//
// The database is the truth of a sale (R1): whatever Redis or Kafka say, an order exists when its row does, and a
// token is decided when stock_token_log has its row of version 1. The package never talks to Redis, Kafka or a
// user, and never compensates: a failure that may have had an effect is returned as sale.ErrTransient, and the
// caller repeats the whole call, which finds what stands (S20).
//
// There are two dialects, MySQL 8 / MariaDB 10.11 and SQLite; one conformance suite (ledgertest) runs against
// both. Times are epoch milliseconds in bigint columns, money is decimal(10,2) or text with two places, ids are
// compared byte by byte.
//
// Errors: sale.ErrNotFound, sale.ErrExists, sale.ErrConflict (a conditional write lost), sale.ErrWrongState (no
// such edge in the state machine), sale.ErrTransient (repeat the whole call), *sale.Error for bad input, and
// anything else is final.
package ledger
