package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dirPrefix starts the name of every data folder; the process id follows.
const dirPrefix = "seckill-test-"

// sweepAge keeps SweepDirs off the folders of a process in another container that shares the temporary folder:
// its id means nothing here, but its folders are young.
const sweepAge = 6 * time.Hour

// SweepDirs removes data folders that a killed test process left behind: older than six hours at now, and owned
// by a process that is gone.
func SweepDirs(now time.Time) error {
	found, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range found {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		pid, err := strconv.Atoi(id)
		if err != nil {
			continue // not one of ours
		}
		info, err := os.Stat(dir)
		if err != nil || now.Sub(info.ModTime()) < sweepAge {
			continue
		}
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
