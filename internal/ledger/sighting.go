package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"seckill/internal/sale"
)

// Witness compares what the leader has just seen in Redis with what was recorded before, by whomever, and records it
// where it goes on from there: one transaction for all sales. It returns the activities that Redis has gone back in
// since (R15): their epoch is lower than one recorded, or the epoch is the same and the number is lower, or of another
// server. Of those nothing is recorded, so that it is found again until a rebuild has raised the epoch.
//
// fence is the leader's fence number. sale.ErrConflict: a leader with a higher one has recorded something; nothing is
// written. A repeat after an unknown outcome is harmless. Ids that are no activity's are recorded too: nobody asks for them.
func (l *Ledger) Witness(ctx context.Context, fence int64, seen map[string]sale.Sighting) (behind []string, err error) {
	ids := slices.Sorted(maps.Keys(seen))
	for _, id := range ids {
		if !sale.ValidID(id) {
			return nil, fmt.Errorf("witness %.40q: %w", id, sale.ErrBadID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	err = l.retryTx(ctx, func(ctx context.Context, t tx) error {
		behind = nil
		for some := range slices.Chunk(ids, l.opt.MaxRows) {
			back, err := l.witness(ctx, t, fence, some, seen)
			if err != nil {
				return err
			}
			behind = append(behind, back...)
		}
		return nil
	})
	if errors.Is(err, errDuplicate) { // two leaders were the first at the same moment
		err = sale.ErrConflict
	}
	if err != nil {
		return nil, fmt.Errorf("witness: %w", err)
	}
	return behind, nil
}

func (l *Ledger) witness(ctx context.Context, t tx, fence int64, ids []string, seen map[string]sale.Sighting) (behind []string, err error) {
	type row struct {
		sale.Sighting
		fence int64
	}
	recorded := map[string]row{}
	err = l.query(ctx, t, func(r *sql.Rows) error {
		var id string
		var w row
		err := r.Scan(&id, &w.Epoch, &w.Seq, &w.Server, &w.fence)
		recorded[id] = w
		return err
	}, "SELECT activity_id, epoch, seq, server, fence FROM redis_seen WHERE activity_id IN ("+marks(len(ids))+")"+l.d.forUpdate, anys(ids)...)
	if err != nil {
		return nil, err
	}
	var rows []any
	for _, id := range ids {
		now, before := seen[id], recorded[id]
		// The leader raises the number before it looks: the same one again is another leader's, and so lost; its own is a
		// repeat after an unknown outcome.
		again := now.Epoch == before.Epoch && now.Seq == before.Seq && before.fence != fence
		switch {
		case before.fence > fence:
			return nil, sale.ErrConflict
		case now.Behind(before.Sighting) || again:
			behind = append(behind, id)
			continue
		case now.Server == "" && now.Epoch == before.Epoch:
			now.Server = before.Server
		}
		rows = append(rows, id, now.Epoch, now.Seq, now.Server, fence, l.nowMS())
	}
	if len(rows) == 0 {
		return behind, nil
	}
	values := strings.Repeat("(?,?,?,?,?,?),", len(rows)/6)
	_, err = t.ExecContext(ctx, "REPLACE INTO redis_seen (activity_id, epoch, seq, server, fence, seen_at) VALUES "+values[:len(values)-1], rows...)
	return behind, err
}
