package sale

import (
	"testing"
	"time"
)

// R16: an order has the time to pay from its reservation, at most to the end of the sale plus its grace; one that is decided
// later than that has the whole time from its decision.
func TestPayBefore(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	a := Activity{EndsAt: end, PayWithin: 15 * time.Minute, CloseGrace: 5 * time.Minute}
	for _, c := range []struct {
		name              string
		reserved, decided time.Duration // from the end
		want              time.Duration
	}{
		{"well before the end", -time.Hour, -time.Hour, -45 * time.Minute},
		{"decided late, still in time", -time.Hour, -50 * time.Minute, -45 * time.Minute},
		{"ten minutes before the end", -10 * time.Minute, -10 * time.Minute, 5 * time.Minute},
		{"in the last second", -time.Second, -time.Second, 5 * time.Minute},
		{"decided at its deadline", -time.Hour, -45 * time.Minute, -30 * time.Minute},
		{"decided after its deadline", -time.Hour, -20 * time.Minute, -5 * time.Minute},
		{"decided after the grace", -time.Minute, 6 * time.Minute, 21 * time.Minute},
		{"promoted after the end", 20 * time.Minute, 20 * time.Minute, 35 * time.Minute},
	} {
		if got := a.PayBefore(end.Add(c.reserved), end.Add(c.decided)); !got.Equal(end.Add(c.want)) {
			t.Errorf("%s: %v after the end, want %v", c.name, got.Sub(end), c.want)
		}
	}
}
