package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"seckill/internal/testenv"
)

// stage is one step of a run.
type stage struct {
	name string
	do   func(context.Context) error
}

// allStages are the stages in order. The last one is a plain `go test`, whose own closing lines end the output.
func allStages() []stage {
	return []stage{
		{"vet", func(ctx context.Context) error { return runCommand(ctx, nil, "go", "vet", "./...") }},
		{"lint", func(ctx context.Context) error { return runCommand(ctx, nil, "make", "-s", "lint") }},
		{"unit", func(ctx context.Context) error { return goTest(ctx, nil, "./...") }},
		{"race", raceStage},
		{"fuzz", fuzzStage},
		{"e2e", e2eStage},
	}
}

func stageNames() []string {
	var names []string
	for _, s := range allStages() {
		names = append(names, s.name)
	}
	return names
}

// chooseStages reads the -stages flag; empty means all.
func chooseStages(only string) ([]stage, error) {
	all := allStages()
	if only == "" {
		return all, nil
	}
	want := strings.Split(only, ",")
	for _, w := range want {
		if !slices.Contains(stageNames(), w) {
			return nil, fmt.Errorf("no stage %q; there are %s", w, strings.Join(stageNames(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(s stage) bool { return !slices.Contains(want, s.name) }), nil
}

// runStages runs the stages up to the first that fails. The summary comes before the last one, because nothing may
// follow its closing lines.
func runStages(ctx context.Context, stages []stage) error {
	begin := time.Now()
	var summary strings.Builder
	for i, s := range stages {
		if i == len(stages)-1 {
			fmt.Printf("== passed so far, in %.0f s:%s; last: %s ==\n", time.Since(begin).Seconds(), summary.String(), s.name)
		} else {
			fmt.Printf("== stage %s ==\n", s.name)
		}
		start := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("stage %s failed after %.0f s: %w", s.name, time.Since(start).Seconds(), err)
		}
		took := time.Since(start).Seconds()
		fmt.Fprintf(&summary, " %s %.0f s,", s.name, took)
		if i < len(stages)-1 {
			fmt.Printf("== stage %s passed in %.0f s ==\n", s.name, took)
		}
	}
	return nil
}

// goTest runs `go test`, never from the cache: what it talks to may have changed.
func goTest(ctx context.Context, env []string, args ...string) error {
	limit := "20m"
	if testenv.Long() {
		limit = "60m"
	}
	return runCommand(ctx, env, append([]string{"go", "test", "-count=1", "-timeout", limit}, args...)...)
}

// raceStage runs the packages that have goroutines of their own under the race detector, in short form.
func raceStage(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...").Output()
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	packages := slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool {
		for _, alone := range []string{"/internal/e2e", "/internal/style", "/internal/testenv", "/internal/model"} {
			if strings.Contains(p, alone) {
				return true
			}
		}
		return false
	})
	if len(packages) == 0 {
		return nil
	}
	return goTest(ctx, []string{"CGO_ENABLED=1"}, append([]string{"-race", "-short"}, packages...)...)
}

// e2eStage runs the end-to-end and browser tests.
func e2eStage(ctx context.Context) error {
	if _, err := os.Stat("internal/e2e"); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("there are no end-to-end tests")
		return nil
	}
	return goTest(ctx, []string{testenv.EnvE2E + "=1"}, "./internal/e2e/...")
}

// fuzzTarget is one Fuzz function: the folder of its package, and its name.
type fuzzTarget struct{ dir, name string }

// fuzzStage gives every fuzz target some time.
func fuzzStage(ctx context.Context) error {
	fuzzTime := "5s"
	switch {
	case testenv.Long():
		fuzzTime = "60s"
	case os.Getenv("CI") != "":
		fuzzTime = "10s"
	}
	targets, err := findFuzzTargets(os.DirFS("."))
	if err != nil {
		return fmt.Errorf("find fuzz targets: %w", err)
	}
	for _, t := range targets {
		if err := fuzz(ctx, t, fuzzTime); err != nil {
			return fmt.Errorf("%s in %s: %w", t.name, t.dir, err)
		}
	}
	return nil
}

// findFuzzTargets reads the test files below root. Asking `go test -list` would link every test program once more.
func findFuzzTargets(root fs.FS) ([]fuzzTarget, error) {
	declaration := regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)
	var targets []fuzzTarget
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") && base != "." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			targets = append(targets, fuzzTarget{path.Dir(name), string(m[1])})
		}
		return err
	})
	return targets, err
}

// fuzz runs one target. Go's fuzzer sometimes reports its own deadline as a failure (no input is written then); such
// a run is repeated once.
func fuzz(ctx context.Context, t fuzzTarget, fuzzTime string) error {
	for try := 1; ; try++ {
		var out bytes.Buffer
		err := runTo(ctx, io.MultiWriter(os.Stdout, &out), nil, "go", "test", "-run", "^$",
			"-fuzz", "^"+t.name+"$", "-fuzztime", fuzzTime,
			// Else most of the time goes into making interesting inputs smaller, which nobody reads.
			"-fuzzminimizetime", "1s", "./"+filepath.FromSlash(t.dir))
		deadline := strings.Contains(out.String(), "context deadline exceeded") &&
			!strings.Contains(out.String(), "Failing input written")
		if err == nil || !deadline || try == 2 {
			return err
		}
		fmt.Println("the fuzzer tripped over its own deadline; once more")
	}
}

// runCommand runs one command with its output on ours.
func runCommand(ctx context.Context, env []string, command ...string) error {
	return runTo(ctx, os.Stdout, env, command...)
}

// runTo runs one command in its own process group, so that the end of the context ends whatever it started.
func runTo(ctx context.Context, out io.Writer, env []string, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = testenv.ChildAttr()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return nil
}
