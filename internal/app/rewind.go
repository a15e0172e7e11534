package app

import (
	"context"
	"time"

	"seckill/internal/sale"
)

// noticeRewind takes what the stock adapter has seen, in whatever call, and hands it to reportRewinds.
func (a *App) noticeRewind(activityID string) {
	a.log.Error("redis went backwards", "activity", activityID)
	select {
	case a.rewinds <- activityID:
	default: // many at once: the watch below reports them all
	}
}

// watchRedis lets every process, not only the leader, notice that Redis lost data: a leader that starts after the loss
// has no memory of what was there before (R15). What was noticed is recorded in the database, where the leader sees that
// epochs differ and rebuilds.
func (a *App) watchRedis(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var ids []string
	var listed time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-a.rewinds:
			a.suspect(ctx, id)
		case <-tick.C:
			if time.Since(listed) > 5*time.Second {
				ids, listed = a.salesInRedis(ctx), time.Now()
			}
			cctx, cancel := context.WithTimeout(ctx, a.cfg.Redis.CallTimeout)
			if _, err := a.stock.CheckServers(cctx, ids); err != nil && ctx.Err() == nil {
				a.log.Debug("redis watch", "err", err)
			}
			cancel()
			for _, id := range ids {
				if a.stock.Rewound(id) {
					a.suspect(ctx, id)
				}
			}
		}
	}
}

// salesInRedis lists the sales that are warmed up and not settled.
func (a *App) salesInRedis(ctx context.Context) (ids []string) {
	cctx, cancel := context.WithTimeout(ctx, a.cfg.Database.TxTimeout)
	defer cancel()
	all, err := a.ledger.Activities(cctx)
	if err != nil {
		a.log.Debug("redis watch", "err", err)
		return nil
	}
	for _, act := range all {
		if act.State != sale.StateDraft && act.State != sale.StateSettled && time.Now().Before(act.KeysUntil(a.cfg.Retention)) {
			ids = append(ids, act.ID)
		}
	}
	return ids
}

// suspect records it; until a rebuild raises the epoch here too, it is recorded again each second, which changes nothing.
func (a *App) suspect(ctx context.Context, id string) {
	epoch, _ := a.stock.Position(id)
	cctx, cancel := context.WithTimeout(ctx, a.cfg.Database.TxTimeout)
	defer cancel()
	if err := a.ledger.Suspect(cctx, id, epoch); err != nil && ctx.Err() == nil {
		a.log.Warn("redis watch: not recorded yet", "activity", id, "err", err)
	}
}
