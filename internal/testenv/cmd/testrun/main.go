// Command testrun is what `make test` runs: it finds, installs and starts the real servers that the tests need, runs
// the stages in order, and stops what it started. It never tests anything itself.
//
//	testrun                    all stages
//	testrun -stages unit,race  some of them
//	testrun -- COMMAND ARGS    one command with the servers up and the SECKILL_TEST_* variables set
//
// Environment: SECKILL_TEST_* name servers to use instead of starting them; SECKILL_REQUIRE=redis,mysql,kafka,chromium,node
// makes a missing one a failure; SECKILL_LONG=1 runs the long tests; SECKILL_INSTALL=no never installs a package; CI
// set makes fuzzing longer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"seckill/internal/testenv"
)

func main() {
	only := flag.String("stages", "", "comma-separated stages to run (default all): "+strings.Join(stageNames(), ", "))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *only, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// run does everything; a nil error means that every stage passed.
func run(ctx context.Context, only string, command []string) (err error) {
	stages, err := chooseStages(only)
	if err != nil {
		return err
	}
	if err := testenv.SweepDirs(time.Now()); err != nil {
		fmt.Println("note: old data folders stay:", err)
	}
	env, err := startEnvironment(ctx)
	defer func() {
		if err != nil {
			env.reportDead()
		}
		err = errors.Join(err, env.close())
	}()
	if err != nil {
		return err
	}
	if len(command) > 0 {
		return runCommand(ctx, nil, command...)
	}
	return runStages(ctx, stages)
}
