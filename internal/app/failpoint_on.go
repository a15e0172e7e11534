//go:build failpoints

package app

import (
	"os"
	"strings"
	"syscall"
	"time"
)

// failpoint reads SECKILL_TEST_FAILPOINT=role:step:action. The action is kill, which ends the process as a crash
// would, a duration to wait, or while:path, to wait as long as there is a file at that path. It exists only in programs built with the tag failpoints.
func failpoint(role string) func(string) {
	parts := strings.SplitN(os.Getenv("SECKILL_TEST_FAILPOINT"), ":", 3)
	if len(parts) != 3 || parts[0] != role {
		return nil
	}
	return func(step string) {
		if step != parts[1] {
			return
		}
		if parts[2] == "kill" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
		if path, ok := strings.CutPrefix(parts[2], "while:"); ok {
			for _, err := os.Stat(path); err == nil; _, err = os.Stat(path) {
				time.Sleep(10 * time.Millisecond)
			}
			return
		}
		if d, err := time.ParseDuration(parts[2]); err == nil {
			time.Sleep(d)
		}
	}
}
