//go:build unix

package pusher

import "syscall"

// descriptorLimit is how many files and sockets this process may have open. The Go runtime has raised it to the hard
// limit already.
func descriptorLimit() (int, bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return int(min(uint64(limit.Cur), 1<<30)), true //nolint:unconvert // it is signed on some systems
}
