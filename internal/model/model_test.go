package model

import (
	"math/rand/v2"
	"os"
	"testing"

	"seckill/internal/sale"
)

// Every interleaving of three users, two units, one crash each of gateway, consumer and reconciler: R1-R6, R9, S9.
// The searches differ in what else may happen; SECKILL_LONG=1 lets more of it happen at once.
func TestEveryInterleaving(t *testing.T) {
	searches := []Limits{
		{Losses: 1, Repeats: 1, Cancels: 1, Refusals: 1, Moves: 1},
		{Cancels: 2, EarlyRelays: 1, Moves: 1},
	}
	switch {
	case testing.Short():
		searches = []Limits{{Losses: 1, Repeats: 1, Cancels: 1, Refusals: 1}}
	case os.Getenv("SECKILL_LONG") != "":
		searches = append(searches, Limits{Losses: 1, Repeats: 1, Cancels: 2, EarlyRelays: 1, Refusals: 1, Moves: 1})
	}
	edges := map[string]int{}
	for _, l := range searches {
		r := Search(l, Bugs{})
		t.Logf("%+v: %d states, %d steps, %d ends", l, r.States, r.Steps, r.Ends)
		if r.Wrong != "" {
			t.Fatalf("%s, after %q", r.Wrong, r.Path)
		}
		for e, n := range r.Edges {
			edges[e] += n
		}
	}
	// The model takes every edge of the token machine, and Search has checked that it takes no other.
	states := []sale.TokenState{sale.TokenOccupied, sale.TokenCommitted, sale.TokenReleased}
	for _, from := range states {
		for _, to := range states {
			if edge := string(from) + " -> " + string(to); from.CanBecome(to) != (edges[edge] > 0) {
				t.Errorf("%s: allowed %t, taken %d times", edge, from.CanBecome(to), edges[edge])
			}
		}
	}
}

// The search must be able to fail.
func TestPlantedBugsAreFound(t *testing.T) {
	l := Limits{Losses: 1, Repeats: 1, Cancels: 1, Refusals: 1, Moves: 1}
	for name, b := range map[string]Bugs{
		"decision row not unique per token":          {DecisionNotUnique: true},
		"a relay that releases":                      {RelayReleases: true},
		"an offset committed past a hole":            {OffsetPastHole: true},
		"a return that treats not_yet as done":       {NotYetIsDone: true},
		"committed acknowledged without settling it": {RepeatNotSettled: true},
		"a status written without the version check": {StatusUnchecked: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := Search(l, b)
			if r.Wrong == "" {
				t.Fatalf("not found in %d states", r.States)
			}
			t.Logf("%s, in %d states, after %q", r.Wrong, r.States, r.Path)
		})
	}
}

// A state survives its packing, or the search would look at something else.
func TestPackedStateIsTheState(t *testing.T) {
	full := Limits{3, 3, 3, 3, 3, 3}
	r := rand.New(rand.NewPCG(1, 1))
	s := start(full)
	for range 20_000 {
		ms := moves(&s, Bugs{}, nil)
		if len(ms) == 0 {
			s = start(full)
			continue
		}
		s = ms[r.IntN(len(ms))].to
		k := s.pack() // renames the users
		if u := unpack(k); u != s {
			t.Fatalf("packed\n%+v, unpacked\n%+v", s, u)
		}
	}
}
