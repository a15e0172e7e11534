package bench

import (
	"syscall"
	"time"
)

// pause sleeps. The runtime's timers end up to a millisecond late when nothing else happens, which is more than most of
// what is measured here; the system's does not.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal ends it early, and the caller looks again
}
