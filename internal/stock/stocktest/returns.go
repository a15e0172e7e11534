package stocktest

import (
	"testing"

	"seckill/internal/sale"
)

// FS-002: the counter never went below zero, so a returned unit sells at the first try.
func returnOnlyAfterCommit(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = 1 })
	r := e.accepted()
	for range 20 {
		e.want(sale.ReserveSoldOut)
	}
	e.stock("SP1", 0)
	d := order(r)
	e.giveBack(d, sale.StatusClosed, 2, sale.SettleNotYet) // occupied
	unknown := d
	unknown.Token = "nobody"
	e.giveBack(unknown, sale.StatusClosed, 2, sale.SettleNotYet)
	e.settle(d, sale.SettleDone)
	e.giveBack(d, sale.StatusClosed, 2, sale.SettleDone)
	e.giveBack(d, sale.StatusClosed, 2, sale.SettleAlready)
	e.settle(d, sale.SettleAlready)
	e.stock("SP1", 1)
	e.field(r.Token, "state", "released")
	e.field(r.Token, "status", "closed")
	e.field(r.Token, "reason", "expired")
	e.outcome(e.reserve(r.UserID, "again", "SP1", 1), sale.ReserveParticipated) // R18: one participation a sale
	e.want(sale.ReserveAccepted)
	e.want(sale.ReserveSoldOut)
}

func returnWhileNotReady(t *testing.T, b Backend) {
	e := newEnv(t, b)
	d := order(e.accepted())
	e.settle(d, sale.SettleDone)
	for _, v := range []string{"x", "-1", "1.0"} {
		e.spoil("stock:SP1", v)
		e.giveBack(d, sale.StatusCancelled, 2, sale.SettleNotYet)
	}
	// Closed for a rebuild, its keys not removed yet: what goes into the old stock would be lost.
	e.spoil("stock:SP1", "7")
	r := e.accepted()
	e.must(e.keys.SetField(e.ctx, e.key("meta"), "state", "rebuilding"))
	e.giveBack(d, sale.StatusCancelled, 2, sale.SettleNotYet)
	e.settle(refusal(r, sale.ReasonInvalid), sale.SettleDone)
	e.stock("SP1", 6)
	e.a.Epoch = 2
	e.must(e.s.BeginRebuild(e.ctx, e.a, 2))
	e.giveBack(d, sale.StatusCancelled, 2, sale.SettleNotYet)
	snap := sale.Snapshot{Activity: e.a, Entries: []sale.SnapshotEntry{{Decision: d, Returned: 0}}}
	snap.Entries[0].Status, snap.Entries[0].Version = sale.StatusCancelled, 2
	e.must(e.s.FinishRebuild(e.ctx, &snap, 2))
	e.stock("SP1", 9)
	e.giveBack(d, sale.StatusCancelled, 2, sale.SettleDone)
	e.stock("SP1", 10)
}
