package stock

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// BeginRebuild closes a sale under a new epoch and removes its keys (R10). The caller has raised the epoch in the
// database before. sale.ErrConflict: a later epoch is there, or this one is open already. sale.ErrWrongState: the
// retention of the sale has passed, its keys are gone for good.
//
// The order matters. First one script sets meta to {epoch, rebuilding}: from then on no reserve passes, on any
// gateway, and a process that still works on an older epoch gets ErrConflict. Only then are the other keys removed, in
// small steps: removing them first would leave moments in which a gateway finds marks gone and stock still there.
// What a settle writes back meanwhile may be removed too; the snapshot, taken later, holds it.
func (s *Store) BeginRebuild(ctx context.Context, a sale.Activity, epoch int64) error {
	k, err := keysOf(a.ID)
	if err != nil {
		return fmt.Errorf("begin rebuild: %w", err)
	}
	until := a.KeysUntil(s.o.Retention)
	if !until.After(s.o.Now()) {
		return fmt.Errorf("begin rebuild: retention passed at %s: %w", until.UTC(), sale.ErrWrongState)
	}
	args := newScriptArgs(5, 256)
	args.key(k.meta())
	args.int(epoch)
	args.millis(until)
	args.millis(a.StartsAt)
	args.millis(a.EndsAt)
	floor := s.floor(a.ID)
	reply, err := s.run(ctx, s.sc.begin, args)
	if err != nil {
		return fmt.Errorf("begin rebuild: %w", err)
	}
	if err := s.outcome(a.ID, floor, reply); err != nil {
		return fmt.Errorf("begin rebuild: %w", err)
	}
	if err := s.wipe(ctx, a.ID, k, epoch); err != nil {
		return fmt.Errorf("begin rebuild: %w", err)
	}
	return nil
}

// wipe removes every key of a sale but its meta, as long as it is being rebuilt under this epoch.
func (s *Store) wipe(ctx context.Context, activityID string, k keys, epoch int64) error {
	return s.scan(ctx, k.all(), func(ctx context.Context, _ redis.UniversalClient, names []string) error {
		for from := 0; from < len(names); from += MaxBatch {
			a := newScriptArgs(2+MaxBatch, 64*MaxBatch)
			a.key(k.meta())
			for _, name := range names[from:min(from+MaxBatch, len(names))] {
				if name != k.meta() {
					a.key(name)
				}
			}
			a.int(epoch)
			floor := s.floor(activityID)
			reply, err := s.run(ctx, s.sc.wipe, a)
			if err != nil {
				return err
			}
			if err := s.outcome(activityID, floor, reply); err != nil {
				return err
			}
		}
		return nil
	})
}

// FinishRebuild writes a snapshot of the database and opens the sale: lists, marks, token hashes in bounded calls,
// then stock and meta in one. Every call checks that meta still has this epoch and is rebuilding, else
// sale.ErrConflict, also when the sale is open already. States follow R11; a status of a higher version that was
// written since the snapshot stays. An activity that is still a draft answers not_ready until SetMeta says otherwise.
//
// Changes that an operator made since the snapshot (pause, lists) are not in it: call SetMeta with the current row
// once more afterwards.
func (s *Store) FinishRebuild(ctx context.Context, snap *sale.Snapshot, epoch int64) error {
	a := &snap.Activity
	k, err := keysOf(a.ID)
	if err != nil {
		return fmt.Errorf("finish rebuild: %w", err)
	}
	snap.Overdrawn()
	for _, list := range []struct {
		key   string
		users []int64
	}{{k.blocked(), snap.Blocked}, {k.eligible(), snap.Eligible}} {
		for from := 0; from < len(list.users); from += MaxBatch {
			users := list.users[from:min(from+MaxBatch, len(list.users))]
			if err := s.writeList(ctx, a.ID, k, list.key, epoch, users, true); err != nil {
				return fmt.Errorf("finish rebuild: user lists: %w", err)
			}
		}
	}
	for from := 0; from < len(snap.Entries); from += MaxBatch {
		entries := snap.Entries[from:min(from+MaxBatch, len(snap.Entries))]
		if err := s.restore(ctx, a.ID, k, entries, epoch); err != nil {
			return fmt.Errorf("finish rebuild: tokens: %w", err)
		}
	}
	if err := s.open(ctx, k, snap, epoch); err != nil {
		return fmt.Errorf("finish rebuild: open: %w", err)
	}
	return nil
}

func (s *Store) restore(ctx context.Context, activityID string, k keys, entries []sale.SnapshotEntry, epoch int64) error {
	a := newScriptArgs(4+15*len(entries), 256+len(entries)*400)
	a.key(k.meta())
	a.key(k.participants())
	sent := make([]*sale.SnapshotEntry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		if e.UserID > 0 && sale.ValidToken(e.Token) {
			sent = append(sent, e)
			a.keyOfInt(k.prefix, "user:", e.UserID)
			a.keyOf(k.prefix, "token:", e.Token)
		}
	}
	a.int(epoch)
	a.int(int64(len(sent)))
	for _, e := range sent {
		a.str(string(restoredState(e)))
		if e.Ordered {
			a.str(e.Token)
		} else {
			a.str("")
		}
		a.int(e.UserID)
		a.str(e.CommodityID)
		a.int(int64(e.Quantity))
		a.str(sale.FormatMoney(e.Price))
		a.millis(e.Decision.At)
		a.int(e.Epoch)
		a.str(string(e.Status))
		a.str(string(e.Reason))
		a.str(e.OrderNo)
		a.millis(e.PayBefore)
		a.int(e.Version)
	}
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.restore, a)
	if err != nil {
		return err
	}
	return s.outcome(activityID, floor, reply)
}

// restoredState is the state of a token after a rebuild (R11): an order whose unit is on its way back is committed,
// because its return is still to come; one whose unit is back, and a refusal, are released.
func restoredState(e *sale.SnapshotEntry) sale.TokenState {
	if !e.Ordered {
		return sale.TokenReleased
	}
	ended := e.Status == sale.StatusCancelled || e.Status == sale.StatusClosed
	if ended && e.Returned != 0 {
		return sale.TokenReleased
	}
	return sale.TokenCommitted
}

// open writes the stock keys and opens the sale in one step.
func (s *Store) open(ctx context.Context, k keys, snap *sale.Snapshot, epoch int64) error {
	act := &snap.Activity
	a := newScriptArgs(8+10*len(act.Items), 512+len(act.Items)*256)
	a.key(k.meta())
	for i := range act.Items {
		a.keyOf(k.prefix, "stock:", act.Items[i].CommodityID)
	}
	a.int(epoch)
	a.int(int64(len(act.Items)))
	a.millis(act.KeysUntil(s.o.Retention))
	for i := range act.Items {
		// Below zero only if the database contradicts itself; the audit names that, the sale must not sell on.
		a.int(max(0, snap.Remaining(act.Items[i].CommodityID)))
	}
	addMeta(a, act)
	floor := s.floor(act.ID)
	reply, err := s.run(ctx, s.sc.open, a)
	if err != nil {
		return err
	}
	return s.outcome(act.ID, floor, reply)
}

// addMeta adds the fields of meta that follow from an activity, each with its value.
func addMeta(a *scriptArgs, act *sale.Activity) {
	a.str("state")
	a.str(metaState(act.State))
	a.str("startsAt")
	a.millis(act.StartsAt)
	a.str("endsAt")
	a.millis(act.EndsAt)
	a.str("allowList")
	a.flag(act.AllowList)
	ids := make([]string, len(act.Items))
	for i := range act.Items {
		it := &act.Items[i]
		ids[i] = it.CommodityID
		a.str("price:" + it.CommodityID)
		a.str(sale.FormatMoney(it.Price))
		a.str("total:" + it.CommodityID)
		a.int(it.Total)
		a.str("max:" + it.CommodityID)
		a.str(strconv.Itoa(it.MaxPerUser))
	}
	a.str("items")
	a.str(strings.Join(ids, ","))
}
