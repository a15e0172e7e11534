package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"seckill/internal/sale"
)

// SetMeta is as of package stock.
func (s *store) SetMeta(ctx context.Context, a *sale.Activity) error {
	return s.script(ctx, a.ID, "set meta", "", func(k *keysOfSale) error { return k.setMeta(a) })
}

// SetUserList is as of package stock.
func (s *store) SetUserList(ctx context.Context, id, list string, user int64, on bool) error {
	if list != "blocked" && list != "eligible" {
		return sale.ErrBadID
	}
	return s.script(ctx, id, "set user list", list, func(k *keysOfSale) error {
		set := k.blocked
		if list == "eligible" {
			set = k.eligible
		}
		return k.list(0, set, []int64{user}, on)
	})
}

// BeginRebuild is as of package stock: the script that closes the sale, a scan, and removal in two steps.
func (s *store) BeginRebuild(ctx context.Context, a sale.Activity, epoch int64) error {
	if !a.KeysUntil(sale.DefaultRetention).After(s.now()) {
		return fmt.Errorf("begin rebuild: retention passed: %w", sale.ErrWrongState)
	}
	err := s.script(ctx, a.ID, "begin rebuild", "", func(k *keysOfSale) error {
		s.r.begun = s.r.run
		return k.begin(&a, epoch)
	})
	if err != nil {
		return fmt.Errorf("begin rebuild: %w", err)
	}
	var names []string
	err = s.by.call(ctx, toRedis, "scan", "", func() error { names = s.r.of(a.ID).names(); return nil })
	if err != nil {
		return fmt.Errorf("begin rebuild: %w", err)
	}
	slices.Sort(names)
	half := len(names) / 2
	for _, some := range [][]string{names[:half], names[half:]} {
		err = s.script(ctx, a.ID, "wipe", "", func(k *keysOfSale) error { return k.wipe(epoch, some) })
		if err != nil {
			return fmt.Errorf("begin rebuild: %w", err)
		}
	}
	return nil
}

// FinishRebuild is as of package stock: lists, tokens, then stock and meta together.
func (s *store) FinishRebuild(ctx context.Context, snap *sale.Snapshot, epoch int64) error {
	id := snap.Activity.ID
	if !s.r.bugs.ReturnsIgnored && !s.r.bugs.DebtForgotten {
		snap.Overdrawn()
	}
	for name, users := range map[string][]int64{"blocked": snap.Blocked, "eligible": snap.Eligible} {
		if len(users) == 0 {
			continue
		}
		err := s.script(ctx, id, "write list", name, func(k *keysOfSale) error {
			set := k.blocked
			if name == "eligible" {
				set = k.eligible
			}
			return k.list(epoch, set, users, true)
		})
		if err != nil {
			return fmt.Errorf("finish rebuild: %w", err)
		}
	}
	for some := range slices.Chunk(snap.Entries, s.chunk) {
		err := s.script(ctx, id, "restore", some[0].Token, func(k *keysOfSale) error { return k.restore(s.r.bugs, epoch, some) })
		if err != nil {
			return fmt.Errorf("finish rebuild: %w", err)
		}
	}
	err := s.script(ctx, id, "open", "", func(k *keysOfSale) error {
		if err := k.open(s.r.bugs, snap, epoch); err != nil {
			return err
		}
		if s.r.begun == s.r.run {
			s.r.rebuilt = s.r.run
			s.r.lineRead()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("finish rebuild: %w", err)
	}
	return nil
}

// Audit is as of package stock: the script, then the reservations of the tokens it listed.
func (s *store) Audit(ctx context.Context, id string, commodities, closed []string) (out sale.StockAudit, err error) {
	var ids []string
	err = s.script(ctx, id, "audit", "", func(k *keysOfSale) error {
		out, ids = k.audit(commodities, closed)
		return nil
	})
	if err != nil {
		return out, err
	}
	out.Occupied = make([]sale.Reservation, len(ids))
	err = s.by.call(ctx, toRedis, "read tokens", "", func() error {
		for i, name := range ids {
			if t := s.r.of(id).tokens[name]; t != nil {
				out.Occupied[i] = t.reservation(id, name)
			} else {
				out.Occupied[i] = sale.Reservation{Token: name, ActivityID: id}
			}
		}
		return nil
	})
	return out, err
}

// Repair is as of package stock.
func (s *store) Repair(ctx context.Context, id string, epoch, seq int64, units map[string]int64) error {
	for c, n := range units {
		if !sale.ValidID(c) || n < 0 {
			return sale.ErrBadID
		}
	}
	return s.script(ctx, id, "repair", "", func(k *keysOfSale) error { return k.repair(s.r.bugs, epoch, seq, units) })
}

// Marks is as of package stock.
func (s *store) Marks(ctx context.Context, id string) (out map[int64]string, err error) {
	err = s.by.call(ctx, toRedis, "marks", "", func() error { out = maps.Clone(s.r.of(id).marks); return nil })
	return out, err
}

// SetMark is as of package stock.
func (s *store) SetMark(ctx context.Context, id string, user int64, was, name string) error {
	return s.script(ctx, id, "set mark", name, func(k *keysOfSale) error { return k.setMark(user, was, name) })
}

// Purge is as of package stock.
func (s *store) Purge(ctx context.Context, id string) error {
	err := s.by.call(ctx, toRedis, "purge", "", func() error { delete(s.r.sales, id); return nil })
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.seen, id)
	}
	return err
}
