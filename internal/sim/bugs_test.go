package sim

import "testing"

// maxSearch is how many seeds a planted mistake may take to be found.
const maxSearch = 5_000

// The simulation must be able to fail: each of these mistakes, planted in a port or a mirror, is found within so many
// seeds, and in the one that shows it the product without the mistake is right.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		bugs  Bugs
		found uint64 // the first seed that shows it; where the short form begins
	}{
		{"decision row not unique per token", Bugs{DecisionNotUnique: true}, 356},
		{"return script treats not_yet as done", Bugs{NotYetIsDone: true}, 51},
		{"second token of a user acknowledged without a decision", Bugs{SecondTokenUndecided: true}, 356},
		{"status written without the version check", Bugs{StatusUnchecked: true}, 28},
		{"a repeat that finds occupied and does not publish", Bugs{RepeatNotPublished: true}, 0},
		{"rebuild without epoch", Bugs{NoEpoch: true}, 414},
		{"rebuilt stock that ignores pending returns", Bugs{ReturnsIgnored: true}, 14},
		{"rebuilt stock that forgets what it owes", Bugs{DebtForgotten: true}, 25},
		{"audit that writes although seq moved", Bugs{RepairUnconditional: true}, 807},
		{"sold-out flag that answers participants", Bugs{FlagForAll: true}, 19},
		{"committed acknowledged without telling again", Bugs{RepeatNotTold: true}, 106},
		{"an offset committed past a hole", Bugs{OffsetPastHole: true}, 4},
		{"a relay that releases", Bugs{RelayReleases: true}, 2},
		{"a rewind that only the record shows", Bugs{Unwitnessed: true}, 1206},
		{"a late mark of a return", Bugs{LateMark: true}, 1096},
		{"a rebuilt line that is not looked at again", Bugs{LineUnchecked: true}, 114},
		{"a unit for whom Redis has in line", Bugs{OfferUnchecked: true}, 2774},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := uint64(0)
			if testing.Short() {
				from = c.found
			}
			for seed := from; seed < maxSearch; seed++ {
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
			t.Errorf("not found within %d seeds", maxSearch)
		})
	}
}
