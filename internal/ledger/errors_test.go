package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/sale"
)

// S20: which failures are transient decides whether a buyer's unit is given back by mistake, so the list is pinned.
func TestClassify(t *testing.T) {
	t.Parallel()
	number := func(n uint16) error { return fmt.Errorf("exec: %w", &mysql.MySQLError{Number: n}) }
	d := mysqlDialect()
	for _, err := range []error{
		number(1213), number(1205), number(1040), number(1053), number(1290), number(1927), number(2013), number(4031),
		mysql.ErrInvalidConn, driver.ErrBadConn, sql.ErrConnDone, sql.ErrTxDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded, &net.OpError{Op: "read", Err: errors.New("reset")},
	} {
		if got := d.classify(err); !errors.Is(got, sale.ErrTransient) || !errors.Is(got, err) {
			t.Errorf("%v is classified as %v, want ErrTransient that wraps it", err, got)
		}
	}
	for _, err := range []error{number(1064), number(1146), number(1366), number(1406), number(4025), errors.New("x"), mysql.ErrPktTooLarge} {
		if got := d.classify(err); errors.Is(got, sale.ErrTransient) || !errors.Is(got, err) {
			t.Errorf("%v is classified as %v, want it as it is", err, got)
		}
	}
	if got := d.classify(number(1062)); !errors.Is(got, errDuplicate) || errors.Is(got, sale.ErrTransient) {
		t.Errorf("1062 is classified as %v", got)
	}
	if got := d.classify(sql.ErrNoRows); !errors.Is(got, sale.ErrNotFound) {
		t.Errorf("no rows: %v", got)
	}
	if d.classify(nil) != nil {
		t.Error("nil is an error")
	}
}

func TestPlainAndCutText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"", 3, ""}, {"abcd", 3, "abc"}, {"a\u00e9", 9, "a??"}, {"a\x00\x7f", 9, "a??"}} {
		if got := plainText(c.in, c.n); got != c.want {
			t.Errorf("plainText(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"", 3, ""}, {"abcd", 3, "abc"}, {"ab\u00e9", 3, "ab"}, {"\U0001F6D1", 3, ""}, {"a\xff", 9, "a\uFFFD"}, {"a\xffb", 3, "a"}} {
		if got := cutText(c.in, c.n); got != c.want {
			t.Errorf("cutText(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}
