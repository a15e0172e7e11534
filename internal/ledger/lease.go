package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"seckill/internal/sale"
)

// AcquireLease takes a named lease for ttl, also from another process of the same name, which is taken for one that has
// crashed. It returns the fence number, which grows each time: the higher number is the later holder (R17). Time is the
// database's own, so that the clocks of the processes do not matter. sale.ErrConflict: another holder has it.
func (l *Ledger) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (int64, error) {
	if holder == "" || len(holder) > 128 || len(name) > 64 || plainText(holder+name, 192) != holder+name {
		return 0, sale.Errorf(sale.CodeInvalidRequest, "lease: name and holder must be plain ASCII of at most 64 and 128 bytes")
	}
	var fence int64
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		var who string
		var expires, now int64
		err := t.QueryRowContext(ctx, "SELECT holder, fence, expires_at, "+l.d.nowMS+" FROM lease WHERE name = ?"+l.d.forUpdate, name).
			Scan(&who, &fence, &expires, &now)
		if errors.Is(err, sql.ErrNoRows) {
			fence = 1
			_, err := t.ExecContext(ctx, "INSERT INTO lease (name, holder, fence, expires_at) VALUES (?,?,1,"+l.d.nowMS+" + ?)",
				name, holder, ttl.Milliseconds())
			return err
		}
		if err != nil {
			return err
		}
		if expires > now && who != holder {
			return sale.ErrConflict
		}
		fence++
		_, err = t.ExecContext(ctx, "UPDATE lease SET holder = ?, fence = ?, expires_at = "+l.d.nowMS+" + ? WHERE name = ?",
			holder, fence, ttl.Milliseconds(), name)
		return err
	})
	if errors.Is(err, errDuplicate) { // another holder was the first ever
		err = sale.ErrConflict
	}
	if err != nil {
		return 0, fmt.Errorf("acquire lease %s: %w", name, err)
	}
	return fence, nil
}

// RenewLease extends a lease to ttl from now. sale.ErrConflict: it ran out or belongs to another; the caller must
// stop acting as its holder.
func (l *Ledger) RenewLease(ctx context.Context, name, holder string, fence int64, ttl time.Duration) error {
	return l.updateLease(ctx, "renew", name, "UPDATE lease SET expires_at = "+l.d.nowMS+" + ? "+
		"WHERE name = ? AND holder = ? AND fence = ? AND expires_at > "+l.d.nowMS, ttl.Milliseconds(), name, holder, fence)
}

// ReleaseLease gives a lease up, so that the next holder need not wait for it to run out. sale.ErrConflict: it
// belonged to another already.
func (l *Ledger) ReleaseLease(ctx context.Context, name, holder string, fence int64) error {
	return l.updateLease(ctx, "release", name,
		"UPDATE lease SET expires_at = 0 WHERE name = ? AND holder = ? AND fence = ?", name, holder, fence)
}

func (l *Ledger) updateLease(ctx context.Context, what, name, q string, args ...any) error {
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		n, err := affected(t.ExecContext(ctx, q, args...))
		if err == nil && n == 0 {
			return sale.ErrConflict
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s lease %s: %w", what, name, err)
	}
	return nil
}

// Clock reads the database's clock.
func (l *Ledger) Clock(ctx context.Context) (time.Time, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var ms int64
	if err := l.primary.QueryRowContext(ctx, "SELECT "+l.d.nowMS).Scan(&ms); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", l.d.classify(err))
	}
	return timeOf(ms), nil
}
