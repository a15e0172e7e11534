package sim

import (
	"flag"
	"testing"
	"testing/synctest"
)

func play(t *testing.T, cfg Config) (rep *Report) {
	synctest.Test(t, func(*testing.T) { rep = Run(cfg) })
	return rep
}

var seedFlag = flag.Uint64("seed", 0, "replay one seed")
var seedsFlag = flag.Uint64("seeds", 3000, "seeds")

func TestOne(t *testing.T) {
	rep := play(t, Config{Seed: *seedFlag, Trace: true})
	for i, l := range rep.Trace {
		if i > 2500 && i < len(rep.Trace)-60 {
			continue
		}
		t.Log(l)
	}
	t.Log(rep.Violations, rep.Steps, rep.Faults, rep.Reached)
}

func TestQuick(t *testing.T) {
	faults, reached := map[string]int{}, map[string]int{}
	steps, bad := 0, 0
	for seed := range *seedsFlag {
		rep := play(t, Config{Seed: seed})
		for k, n := range rep.Faults {
			faults[k] += n
		}
		for k, n := range rep.Reached {
			reached[k] += n
		}
		steps += rep.Steps
		if len(rep.Violations) > 0 {
			if bad++; bad < 15 {
				t.Errorf("seed %d: %v", seed, rep.Violations)
			}
		}
	}
	t.Log(bad, "bad", steps, "steps", faults, reached)
}
