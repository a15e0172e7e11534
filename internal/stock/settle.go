package stock

import (
	"context"
	"fmt"
	"slices"

	"seckill/internal/sale"
)

// settlements are the answers of settle.lua, return.lua and status.lua by their code.
var settlements = [...]sale.Settlement{
	1: sale.SettleDone, 2: sale.SettleAlready, 3: sale.SettleUnknown, 4: sale.SettleNotYet, 5: sale.SettleStale,
}

// Settle carries decisions of the database over to the tokens of one sale, MaxBatch in a call, and says for each what
// it found: done, already, or unknown. Unknown means that Redis had lost the token: its state is written back with a
// lifetime, and if the token belongs to the current epoch the sale counts as rewound (R15).
//
// An order moves its token from occupied to committed, whatever the order's status is by now (R5). A refusal moves it
// to released; the unit goes back only if the token was occupied, the refusal is not "sold out at the database", and
// the stock key exists (R6). The participation mark is removed if it still names the refused token, or set to
// FirstToken (R7). A decision whose token, user or status is malformed touches nothing and answers unknown.
//
// After an error a part of the decisions may have been settled: call again with all of them.
func (s *Store) Settle(ctx context.Context, activityID string, ds []sale.Decision) ([]sale.Settlement, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return nil, fmt.Errorf("settle tokens: %w", err)
	}
	out := make([]sale.Settlement, len(ds))
	for from := 0; from < len(ds); from += MaxBatch {
		to := min(from+MaxBatch, len(ds))
		if err := s.settleChunk(ctx, activityID, k, ds[from:to], out[from:to]); err != nil {
			return nil, fmt.Errorf("settle tokens: %w", err)
		}
	}
	return out, nil
}

func (s *Store) settleChunk(ctx context.Context, activityID string, k keys, ds []sale.Decision, out []sale.Settlement) error {
	sent := make([]int, 0, len(ds))
	var commodities []string
	for i := range ds {
		d := &ds[i]
		if d.UserID <= 0 || !sale.ValidToken(d.Token) || !d.Status.Valid() {
			out[i] = sale.SettleUnknown
			continue
		}
		sent = append(sent, i)
		commodities = addID(commodities, d.CommodityID)
	}
	if len(sent) == 0 {
		return nil
	}
	a := newScriptArgs(6+2*len(commodities)+18*len(sent), 512+len(sent)*400)
	a.key(k.meta())
	a.key(k.occupied())
	a.key(k.participants())
	for _, c := range commodities {
		a.keyOf(k.prefix, "stock:", c)
	}
	for _, i := range sent {
		a.keyOfInt(k.prefix, "user:", ds[i].UserID)
		a.keyOf(k.prefix, "token:", ds[i].Token)
	}
	a.int(s.fallbackExpiry())
	a.int(int64(len(commodities)))
	a.int(int64(len(sent)))
	for _, c := range commodities {
		a.str(c)
	}
	for _, i := range sent {
		addDecision(a, &ds[i], slices.Index(commodities, ds[i].CommodityID)+1)
	}
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.settle, a)
	if err != nil {
		return err
	}
	epoch, usable, err := s.settled(activityID, floor, reply, sent, out)
	if err != nil {
		return err
	}
	for _, i := range sent {
		if out[i] == sale.SettleUnknown && usable && ds[i].Epoch == epoch {
			s.markRewound(activityID, epoch)
		}
	}
	return nil
}

// addDecision adds the 16 arguments that settle.lua wants for one decision.
func addDecision(a *scriptArgs, d *sale.Decision, item int) {
	a.flag(d.Ordered)
	a.flag(!d.Ordered && !d.SoldOut && item > 0)
	a.int(int64(item))
	a.str(d.Token)
	a.int(d.UserID)
	a.str(d.CommodityID)
	a.int(int64(d.Quantity))
	a.str(sale.FormatMoney(d.Price))
	a.millis(d.At)
	a.int(d.Epoch)
	a.str(string(d.Status))
	a.str(string(d.Reason))
	a.str(d.OrderNo)
	a.millis(d.PayBefore)
	a.int(d.Version)
	if d.Ordered || d.Reason != sale.ReasonParticipated || !sale.ValidToken(d.FirstToken) {
		a.str("")
	} else {
		a.str(d.FirstToken)
	}
}

// settled reads {epoch, seq, usable, codes}.
func (s *Store) settled(activityID string, floor position, reply []any, sent []int, out []sale.Settlement) (epoch int64, usable bool, err error) {
	epoch, _, err = s.header(activityID, floor, reply, 0)
	if err != nil {
		return 0, false, err
	}
	use, err := number(reply, 2)
	if err != nil {
		return 0, false, err
	}
	for j, i := range sent {
		code, err := number(reply, 3+j)
		if err != nil {
			return 0, false, err
		}
		if code < 1 || int(code) >= len(settlements) {
			return 0, false, fmt.Errorf("answer %d: unknown code %d", j, code)
		}
		out[i] = settlements[code]
	}
	return epoch, use == 1, nil
}

// addID appends a legal commodity id that is not there yet.
func addID(ids []string, id string) []string {
	if sale.ValidID(id) && !slices.Contains(ids, id) {
		return append(ids, id)
	}
	return ids
}

// fallbackExpiry is the end of life of a key written for a sale that has no meta to say it, in epoch ms.
func (s *Store) fallbackExpiry() int64 {
	return s.o.Now().Add(s.o.Retention).UnixMilli()
}

// Return puts the units of cancelled and closed orders of one sale back on sale, each once (R5): done, already, or
// not_yet when the token is occupied or unknown, the sale is not ready or its stock key is missing. Whether the
// keys are gone for good is for the caller to know; Redis cannot tell that from a loss, so the answer is not_yet then too.
// The order's status is written along with it, if its version is higher (R4). epoch is the one the answers belong to,
// and the lowest of them when there was more than one: what is recorded of them must be bound to it, since a rebuild
// wipes what they say (R10).
//
// After an error a part may have been returned: call again with all of them.
func (s *Store) Return(ctx context.Context, activityID string, rs []sale.Return) (found []sale.Settlement, epoch int64, err error) {
	k, err := keysOf(activityID)
	if err != nil {
		return nil, 0, fmt.Errorf("return units: %w", err)
	}
	out := make([]sale.Settlement, len(rs))
	for from := 0; from < len(rs); from += MaxBatch {
		to := min(from+MaxBatch, len(rs))
		at, err := s.returnChunk(ctx, activityID, k, rs[from:to], out[from:to])
		if err != nil {
			return nil, 0, fmt.Errorf("return units: %w", err)
		}
		if from == 0 || at < epoch {
			epoch = at
		}
	}
	return out, epoch, nil
}

func (s *Store) returnChunk(ctx context.Context, activityID string, k keys, rs []sale.Return, out []sale.Settlement) (epoch int64, err error) {
	sent := make([]int, 0, len(rs))
	var commodities []string
	for i := range rs {
		out[i] = sale.SettleNotYet
		if sale.ValidToken(rs[i].Token) && sale.ValidID(rs[i].CommodityID) {
			sent = append(sent, i)
			commodities = addID(commodities, rs[i].CommodityID)
		}
	}
	if len(sent) == 0 {
		return 0, nil
	}
	a := newScriptArgs(3+2*len(commodities)+6*len(sent), 256+len(sent)*200)
	a.key(k.meta())
	for _, c := range commodities {
		a.keyOf(k.prefix, "stock:", c)
	}
	for _, i := range sent {
		a.keyOf(k.prefix, "token:", rs[i].Token)
	}
	a.int(int64(len(commodities)))
	a.int(int64(len(sent)))
	for _, c := range commodities {
		a.str(c)
	}
	for _, i := range sent {
		a.int(int64(slices.Index(commodities, rs[i].CommodityID) + 1))
		a.str(string(rs[i].Status))
		a.str(string(endReason(rs[i].Status)))
		a.str(rs[i].OrderNo)
		a.int(rs[i].Version)
	}
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.giveBack, a)
	if err != nil {
		return 0, err
	}
	epoch, _, err = s.settled(activityID, floor, reply, sent, out)
	return epoch, err
}

// endReason is the reason a user is told of an order that ended in this status.
func endReason(st sale.Status) sale.Reason {
	o := sale.Order{Status: st}
	r := o.Result()
	return r.Reason
}
