package consumer

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

// forgetful is a Redis that knows none of the reservations it is asked to settle.
type forgetful struct{ *world }

func (f forgetful) Settle(ctx context.Context, id string, ds []sale.Decision) ([]sale.Settlement, error) {
	out, err := f.world.Settle(ctx, id, ds)
	for i := range out {
		out[i] = sale.SettleUnknown
	}
	return out, err
}

// R3: a reservation that Redis does not know is decided and told all the same: only the database decides.
func TestUnknownToRedisIsDecided(t *testing.T) {
	t.Parallel()
	w := &world{}
	c := New(Config{}, Deps{
		Ledger: w, Stock: forgetful{w}, Announcer: w, DeadLetters: w, Numbers: w, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err := c.Handle(t.Context(), batchOf("a", "b")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"commit 2", "settle 2", "announce 2"}; !slices.Equal(w.steps, want) || len(w.parked) > 0 {
		t.Errorf("steps %v, want %v; parked %v", w.steps, want, w.parked)
	}
}
