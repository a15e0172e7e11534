package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"seckill/internal/testenv"
)

// policyFile, when it exists, is asked by Debian's packages whether they may start a service.
const policyFile = "/usr/sbin/policy-rc.d"

// installLimit bounds apt-get; a slow mirror must not eat the whole run.
const installLimit = 10 * time.Minute

// need is one thing that the tests want on this machine.
type need struct {
	name     string   // as in SECKILL_REQUIRE
	variable string   // names a server elsewhere, which makes the programs unnecessary; may be empty
	programs []string // any one of these will do
	packages []string // Debian packages that bring it
}

// needs lists what the tests want. Debian keeps mariadbd in /usr/sbin, which is not in everyone's PATH.
func needs() []need {
	return []need{
		{testenv.NameRedis, testenv.EnvRedis, []string{"redis-server"}, []string{"redis-server"}},
		{testenv.NameMySQL, testenv.EnvMySQL, []string{"mariadbd", "/usr/sbin/mariadbd"}, []string{"mariadb-server"}},
		{testenv.NameKafka, testenv.EnvKafka, []string{"java"}, []string{"default-jre-headless"}},
		{testenv.NameKafka, testenv.EnvKafka, []string{"mvn"}, []string{"maven"}},
		{testenv.NameChromium, testenv.EnvChromium,
			[]string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}, []string{"chromium"}},
		{testenv.NameNode, "", []string{"node"}, []string{"nodejs"}},
		{"race detector", "", []string{"gcc", "cc"}, []string{"gcc", "libc6-dev"}},
	}
}

// found says where the need is met: a variable, a program, or "".
func (n need) found() string {
	if n.variable != "" && os.Getenv(n.variable) != "" {
		return n.variable + "=" + os.Getenv(n.variable)
	}
	for _, p := range n.programs {
		if path, err := exec.LookPath(p); err == nil {
			return path
		}
	}
	return ""
}

// provide prints what is there, installs what is missing where it may, and fails when something required is missing.
func provide(ctx context.Context) error {
	fmt.Println("== what the tests need ==")
	var packages []string
	for _, n := range needs() {
		where := n.found()
		if where == "" {
			where = "MISSING (Debian: " + strings.Join(n.packages, " ") + ")"
			packages = append(packages, n.packages...)
		}
		fmt.Printf("  %-14s %s\n", n.name, where)
	}
	if len(packages) == 0 {
		return nil
	}
	if why := mayNotInstall(); why != "" {
		fmt.Printf("  NOT INSTALLING %s: %s\n", strings.Join(packages, " "), why)
	} else if err := aptInstall(ctx, packages); err != nil {
		fmt.Println("  INSTALLATION FAILED:", err)
	}
	return stillMissing()
}

// stillMissing fails for a missing need that SECKILL_REQUIRE lists; tests skip without the others.
func stillMissing() error {
	var missing []string
	for _, n := range needs() {
		if n.found() != "" {
			continue
		}
		fmt.Printf("  %-14s STILL MISSING: what needs it is skipped\n", n.name)
		if testenv.Required(n.name) && !slices.Contains(missing, n.name) {
			missing = append(missing, n.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing, but required by %s: %s", testenv.EnvRequire, strings.Join(missing, ", "))
	}
	return nil
}

// mayNotInstall says why this process must not install packages, or "".
func mayNotInstall() string {
	if os.Getenv("SECKILL_INSTALL") == "no" {
		return "SECKILL_INSTALL=no"
	}
	if os.Getuid() != 0 {
		return "not root"
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "no apt-get here"
	}
	return ""
}

// aptInstall installs packages and keeps them from starting their services: the tests start their own.
func aptInstall(ctx context.Context, packages []string) error {
	fmt.Printf("== INSTALLING with apt-get, as root: %s (SECKILL_INSTALL=no prevents this) ==\n", strings.Join(packages, " "))
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	undo, err := forbidServices()
	if err != nil {
		return err
	}
	defer undo()
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	lock := "DPkg::Lock::Timeout=300" // another apt may be at work
	if err := runQuietly(ctx, env, "apt-get", "-qq", "-o", lock, "update"); err != nil {
		return err
	}
	args := append([]string{"apt-get", "-qq", "-y", "-o", lock, "install", "--no-install-recommends"}, packages...)
	if err := runQuietly(ctx, env, args...); err != nil {
		return err
	}
	fmt.Printf("installed in %.0f s\n", time.Since(start).Seconds())
	return nil
}

// runQuietly shows the output only when the command fails: apt-get has a lot to say.
func runQuietly(ctx context.Context, env []string, command ...string) error {
	var out bytes.Buffer
	err := runTo(ctx, &out, env, command...)
	if err != nil {
		fmt.Println(out.String())
	}
	return err
}

// forbidServices puts up a policy that forbids starting services (exit code 101), unless the machine has its own, and
// returns how to take it away.
func forbidServices() (undo func(), err error) {
	f, err := os.OpenFile(policyFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("forbid services: %w", err)
	}
	undo = func() { _ = os.Remove(policyFile) }
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	if err = errors.Join(err, f.Close()); err != nil {
		undo()
		return nil, fmt.Errorf("forbid services: %w", err)
	}
	return undo, nil
}
