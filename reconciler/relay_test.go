package reconciler

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

// outbox is what a relay needs of Redis and Kafka.
type outbox struct {
	Stock
	tokens    map[string]time.Time // occupied since
	published map[string][]int     // by token: the number of relays each message carried
}

func (o *outbox) Occupied(_ context.Context, _ string, before time.Time, _ int) (rs []sale.Reservation, err error) {
	for token, at := range o.tokens {
		if at.Before(before) {
			rs = append(rs, sale.Reservation{Token: token, At: at})
		}
	}
	return rs, nil
}

func (o *outbox) Publish(_ context.Context, rs []sale.Reservation) []error {
	for _, r := range rs {
		o.published[r.Token] = append(o.published[r.Token], r.Relays)
	}
	return nil
}

// relaying is a leader's round at a moment of the test's.
func relaying(o *outbox, now *time.Time) *round {
	r := New(Config{RelayAfter: 5 * time.Second, RelayMax: time.Minute, RelayMargin: 3 * time.Second}, Deps{
		Stock: o, Queue: o, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return *now },
	})
	return &round{r: r}
}

// R17: a reservation that stays occupied is enqueued after 5 s, then after twice the wait each time, at most a minute; each
// message says its number.
func TestRelayDoublesItsWait(t *testing.T) {
	t.Parallel()
	start := time.Now()
	now := start
	o := &outbox{tokens: map[string]time.Time{"stuck": start}, published: map[string][]int{}}
	w := relaying(o, &now)
	var after []int
	for second := range 300 {
		now = start.Add(time.Duration(second) * time.Second)
		w.passedAt = now // the consumers keep up
		before := len(o.published["stuck"])
		if err := w.relayOccupied(t.Context(), "A"); err != nil {
			t.Fatal(err)
		}
		if len(o.published["stuck"]) > before {
			after = append(after, second)
		}
	}
	// Held from 0: due above 5 s of age, and not within the margin of what the consumers have passed.
	if want := "[6 11 21 41 81 141 201 261]"; fmt.Sprint(after) != want {
		t.Errorf("relayed after %v seconds, want %v", after, want)
	}
	if got := fmt.Sprint(o.published["stuck"]); got != "[1 2 3 4 5 6 7 8]" {
		t.Errorf("numbers of the relays %v", got)
	}
}

// R17: what the consumers may just not have come to is left alone, however long it waits: a relay would make a backlog
// longer.
func TestRelayLeavesTheBacklogAlone(t *testing.T) {
	t.Parallel()
	start := time.Now()
	now := start.Add(10 * time.Minute)
	o := &outbox{tokens: map[string]time.Time{"old": start, "behind": start.Add(3 * time.Minute)}, published: map[string][]int{}}
	w := relaying(o, &now)
	w.passedAt = start.Add(2 * time.Minute) // every message of that time is finished, none that came later for sure
	if err := w.relayOccupied(t.Context(), "A"); err != nil {
		t.Fatal(err)
	}
	if len(o.published["old"]) != 1 || len(o.published["behind"]) != 0 {
		t.Errorf("published %v: want the one whose message is lost for sure, alone", o.published)
	}
}
