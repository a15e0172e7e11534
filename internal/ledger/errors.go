package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"seckill/internal/sale"
)

// ErrOrderNoTaken is returned by Commit when an order number given with a reservation belongs to another order
// and Options.NewOrderNo is not set or keeps drawing taken numbers (FS-096). It is final for that number only:
// call again with another one.
var ErrOrderNoTaken = errors.New("order number taken")

// Errors inside the package.
var (
	errDuplicate  = errors.New("duplicate key")                    // a unique key decided against this transaction
	errLookCloser = errors.New("look up users before refusing")    // a refusal depends on it
	errSoldOut    = errors.New("conditional stock update: 0 rows") // S12
)

// classify turns a driver's error into the package's: transient ones satisfy sale.ErrTransient, duplicates
// errDuplicate; everything else, and what is classified already, passes as it is.
func (d *dialect) classify(err error) error {
	switch {
	case err == nil,
		errors.Is(err, sale.ErrTransient), errors.Is(err, errDuplicate), errors.Is(err, errSoldOut),
		errors.Is(err, sale.ErrNotFound), errors.Is(err, sale.ErrExists),
		errors.Is(err, sale.ErrConflict), errors.Is(err, sale.ErrWrongState):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w", sale.ErrNotFound)
	case d.isDuplicate(err):
		return fmt.Errorf("%w: %w", errDuplicate, err)
	case d.isTransient(err), lostConnection(err):
		return fmt.Errorf("%w: %w", sale.ErrTransient, err)
	}
	return err
}

// lostConnection reports errors after which nobody can say what the server did: a closed or cut connection, a
// transaction that ended under us, a deadline that cut a statement or a commit. None of them is a verdict, so the
// whole call is to be repeated and finds what stands.
func lostConnection(err error) bool {
	var ne net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &ne)
}

// asExists turns a duplicate key into sale.ErrExists, for tables where that is all it can mean.
func asExists(err error) error {
	if errors.Is(err, errDuplicate) {
		return fmt.Errorf("%w: %w", sale.ErrExists, err)
	}
	return err
}
