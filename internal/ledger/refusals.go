package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"seckill/internal/sale"
)

// RecentRefusals reads what was refused in these activities at or after a time, by the clock of whoever refused it, from
// the primary, in no set order. limit bounds them: of each table the latest are read, in equal shares.
func (l *Ledger) RecentRefusals(ctx context.Context, activityIDs []string, since time.Time, limit int) ([]sale.Decision, error) {
	ids := slices.DeleteFunc(slices.Clone(activityIDs), func(id string) bool { return !sale.ValidID(id) })
	if len(ids) == 0 || limit <= 0 {
		return nil, nil
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	share := (limit + sale.Tables - 1) / sale.Tables
	var list []sale.Decision
	for some := range slices.Chunk(ids, l.opt.MaxRows) {
		args := append(anys(some), logSoldOut, logFailed, since.UnixMilli(), share)
		for n := range sale.Tables {
			err := l.query(ctx, l.read, func(r *sql.Rows) error {
				row, err := scanLog(r)
				if err == nil {
					list = append(list, row.refusal())
				}
				return err
			}, "SELECT "+logColumns+" FROM "+logTable(n)+" WHERE activity_id IN ("+marks(len(some))+") AND status IN (?,?) AND at >= ? "+
				"ORDER BY at DESC LIMIT ?", args...)
			if err != nil {
				return nil, fmt.Errorf("recent refusals: %w", err)
			}
		}
	}
	return list[:min(len(list), limit)], nil
}
