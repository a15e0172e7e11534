package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/sale"
)

const (
	benchSale  = "BENCH"
	commodity  = "C1"
	units      = 1_000_000
	epoch      = 1       // of the sale in Redis
	firstBuyer = 1 << 40 // users without a socket
)

// makeSale makes a database and a stock with one sale that is on.
func (b *pushBench) makeSale(ctx context.Context) error {
	l, err := ledger.Open(ctx, ledger.Options{Driver: "sqlite", DSN: database(b.dir), Role: "bench", Node: "bench"})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	if err := l.Migrate(ctx); err != nil {
		return err
	}
	now := time.Now()
	a := sale.Activity{
		ID: benchSale, Title: "Bench", State: sale.StateScheduled, StartsAt: now.Add(-time.Minute), EndsAt: now.Add(time.Hour), PayWithin: time.Minute,
		WaitlistUntil: now.Add(time.Hour), Items: []sale.Item{{CommodityID: commodity, Title: "Unit", Total: units, MaxPerUser: 1, Price: decimal.NewFromInt(1)}},
	}
	if err := l.CreateActivity(ctx, &a); err != nil {
		return err
	}
	if err := b.stock.Purge(ctx, benchSale); err != nil {
		return err
	}
	if err := b.stock.BeginRebuild(ctx, a, epoch); err != nil {
		return err
	}
	return b.stock.FinishRebuild(ctx, &sale.Snapshot{Activity: a}, epoch)
}

// sellOne sells a unit and tells the state, as a gateway and a reconciler do.
func (b *pushBench) sellOne(ctx context.Context, i int) error {
	replies, err := b.stock.Reserve(ctx, benchSale, time.Now(), []sale.ReserveRequest{
		{Token: "live-" + strconv.Itoa(i), UserID: firstBuyer + int64(i), CommodityID: commodity, Quantity: 1},
	})
	if err != nil {
		return err
	}
	if replies[0].Outcome != sale.ReserveAccepted {
		return fmt.Errorf("bench: a unit could not be sold: %s", replies[0].Outcome)
	}
	lives, err := b.stock.Live(ctx, []string{benchSale})
	if err != nil {
		return err
	}
	return b.out.Live(ctx, lives[benchSale])
}
