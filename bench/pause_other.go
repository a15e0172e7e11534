//go:build !linux

package bench

import "time"

// pause sleeps.
func pause(d time.Duration) { time.Sleep(d) }
