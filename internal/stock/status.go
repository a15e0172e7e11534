package stock

import (
	"context"
	"fmt"

	"seckill/internal/sale"
)

// SetStatus writes the status of decided tokens, of any sales, only with a higher version (R4). It answers for each:
// done, the hash now holds this version; stale, it holds a higher one; unknown, the hash was missing and is written
// back with a lifetime. All three confirm a version at least as high as the one given (R8).
//
// It never moves a token from one state to another. A result still processing, or malformed, touches nothing and
// answers unknown. After an error a part may have been written: call again with all of them.
func (s *Store) SetStatus(ctx context.Context, rs []sale.UserResult) ([]sale.Settlement, error) {
	out := make([]sale.Settlement, len(rs))
	byActivity := make(map[string][]int)
	for i := range rs {
		r := &rs[i]
		out[i] = sale.SettleUnknown
		if r.UserID > 0 && sale.ValidToken(r.RequestToken) && r.Status.Valid() && r.Version > 0 {
			byActivity[r.ActivityID] = append(byActivity[r.ActivityID], i)
		}
	}
	for activityID, places := range byActivity {
		k, err := keysOf(activityID)
		if err != nil {
			return nil, fmt.Errorf("set status: %w", err)
		}
		for from := 0; from < len(places); from += MaxBatch {
			sent := places[from:min(from+MaxBatch, len(places))]
			if err := s.statusChunk(ctx, activityID, k, rs, sent, out); err != nil {
				return nil, fmt.Errorf("set status: %w", err)
			}
		}
	}
	return out, nil
}

func (s *Store) statusChunk(ctx context.Context, activityID string, k keys, rs []sale.UserResult, sent []int, out []sale.Settlement) error {
	a := newScriptArgs(3+10*len(sent), 256+len(sent)*250)
	a.key(k.meta())
	for _, i := range sent {
		a.keyOf(k.prefix, "token:", rs[i].RequestToken)
	}
	a.int(s.fallbackExpiry())
	a.int(int64(len(sent)))
	for _, i := range sent {
		r := &rs[i]
		// Written back, an order is committed: if its unit is on its way back, the return script will find it so.
		if r.Status.Number() >= 0 {
			a.str(string(sale.TokenCommitted))
		} else {
			a.str(string(sale.TokenReleased))
		}
		a.int(r.UserID)
		a.str(r.CommodityID)
		a.int(int64(r.Quantity))
		a.str(string(r.Status))
		a.str(string(r.Reason))
		a.str(r.OrderNo)
		a.millis(r.PayBefore)
		a.int(r.Version)
	}
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.status, a)
	if err != nil {
		return err
	}
	_, _, err = s.settled(activityID, floor, reply, sent, out)
	return err
}
