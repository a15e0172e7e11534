package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"seckill/internal/sale"
)

const deadColumns = "id, topic, `partition`, `offset`, msg_key, msg_value, reason, detail, state, replays, at"

// SaveDeadLetter keeps a parked message where operators can find it (S11). The same message again is no error and
// changes nothing.
func (l *Ledger) SaveDeadLetter(ctx context.Context, d sale.DeadLetter) error {
	key, value := d.Key, d.Value
	if key == nil {
		key = []byte{}
	}
	if value == nil {
		value = []byte{}
	}
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		_, err := t.ExecContext(ctx, "INSERT INTO dead_letter (topic, `partition`, `offset`, msg_key, msg_value, reason, detail, state, at, updated_at) "+
			"VALUES (?,?,?,?,?,?,?,?,?,?)", d.Topic, d.Partition, d.Offset, key, value, plainText(d.Reason, 64), plainText(d.Detail, 1000),
			string(sale.DeadParked), l.nowMS(), l.nowMS())
		return err
	})
	if err != nil && !errors.Is(err, errDuplicate) {
		return fmt.Errorf("save dead letter: %w", err)
	}
	return nil
}

// DeadLetters lists dead letters with ids above after, oldest first, at most limit; state "" means any.
func (l *Ledger) DeadLetters(ctx context.Context, state sale.DeadLetterState, after int64, limit int) ([]sale.DeadLetter, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var list []sale.DeadLetter
	err := l.query(ctx, l.read, func(r *sql.Rows) error {
		d, err := scanDead(r)
		list = append(list, d)
		return err
	}, "SELECT "+deadColumns+" FROM dead_letter WHERE id > ? AND (? = '' OR state = ?) ORDER BY id LIMIT ?",
		after, string(state), string(state), min(max(limit, 1), l.opt.MaxList))
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return list, nil
}

// DeadLetter reads one, or sale.ErrNotFound.
func (l *Ledger) DeadLetter(ctx context.Context, id int64) (*sale.DeadLetter, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var found *sale.DeadLetter
	err := l.query(ctx, l.read, func(r *sql.Rows) error {
		d, err := scanDead(r)
		found = &d
		return err
	}, "SELECT "+deadColumns+" FROM dead_letter WHERE id = ?", id)
	if err != nil {
		return nil, fmt.Errorf("read dead letter: %w", err)
	}
	if found == nil {
		return nil, fmt.Errorf("dead letter %d: %w", id, sale.ErrNotFound)
	}
	return found, nil
}

func scanDead(r *sql.Rows) (sale.DeadLetter, error) {
	var d sale.DeadLetter
	var state string
	var at int64
	err := r.Scan(&d.ID, &d.Topic, &d.Partition, &d.Offset, &d.Key, &d.Value, &d.Reason, &d.Detail, &state, &d.Replays, &at)
	d.State, d.At = sale.DeadLetterState(state), timeOf(at)
	return d, err
}

// MarkDeadLetter notes that an operator has replayed or discarded a dead letter; a replay is counted. A discarded one
// can be replayed, and a replayed one discarded. sale.ErrNotFound: no such dead letter.
func (l *Ledger) MarkDeadLetter(ctx context.Context, id int64, to sale.DeadLetterState) error {
	err := l.retryTx(ctx, func(ctx context.Context, t tx) error {
		replayed := 0
		if to == sale.DeadReplayed {
			replayed = 1
		}
		n, err := affected(t.ExecContext(ctx, "UPDATE dead_letter SET state = ?, replays = replays + ?, updated_at = ? WHERE id = ?",
			string(to), replayed, l.nowMS(), id))
		if err == nil && n == 0 {
			return sale.ErrNotFound
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("mark dead letter %d: %w", id, err)
	}
	return nil
}
