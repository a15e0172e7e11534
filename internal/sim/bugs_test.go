package sim

import "testing"

// The simulation must be able to fail: each of these mistakes, planted in a port or a mirror, is found within so many
// seeds, in each of which the product without the mistake is right.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		bugs   Bugs
		within uint64
	}{
		{"decision row not unique per token", Bugs{DecisionNotUnique: true}, 5_000},
		{"return script treats not_yet as done", Bugs{NotYetIsDone: true}, 5_000},
		{"second token of a user acknowledged without a decision", Bugs{SecondTokenUndecided: true}, 5_000},
		{"status written without the version check", Bugs{StatusUnchecked: true}, 5_000},
		{"a repeat that finds occupied and does not publish", Bugs{RepeatNotPublished: true}, 5_000},
		{"rebuild without epoch", Bugs{NoEpoch: true}, 5_000},
		{"rebuilt stock that ignores pending returns", Bugs{ReturnsIgnored: true}, 5_000},
		{"rebuilt stock that forgets what it owes", Bugs{DebtForgotten: true}, 5_000},
		{"audit that writes although seq moved", Bugs{RepairUnconditional: true}, 5_000},
		{"sold-out flag that answers participants", Bugs{FlagForAll: true}, 5_000},
		{"committed acknowledged without telling again", Bugs{RepeatNotTold: true}, 5_000},
		{"an offset committed past a hole", Bugs{OffsetPastHole: true}, 5_000},
		{"a relay that releases", Bugs{RelayReleases: true}, 5_000},
		{"a rewind that only the record shows", Bugs{Unwitnessed: true}, 5_000},
		{"a late mark of a return", Bugs{LateMark: true}, 5_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range c.within {
				rep := play(t, Config{Seed: seed, Bugs: c.bugs})
				if len(rep.Violations) == 0 {
					continue
				}
				if rep := play(t, Config{Seed: seed}); len(rep.Violations) > 0 {
					t.Errorf("seed %d fails without the mistake too", seed)
				}
				t.Logf("found within %d seeds: %s", seed+1, rep.Violations[0])
				return
			}
			t.Errorf("not found within %d seeds", c.within)
		})
	}
}
