package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain leaves the simulation out of the usual run: a seed is not yet one history in every case (two timers that fire
// at one moment may go either way), so a failure could come without a way to replay it. SECKILL_TEST_SIM=1 runs it, and
// so do the long run and -seed.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("SECKILL_TEST_SIM") == "" && os.Getenv("SECKILL_LONG") == "" && *seedFlag < 0 {
		fmt.Println("the simulation runs with SECKILL_TEST_SIM=1, in make test-long, or with -seed=N")
		os.Exit(0)
	}
	os.Exit(m.Run())
}
