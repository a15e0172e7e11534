//go:build !unix

package pusher

// descriptorLimit is not known on this system.
func descriptorLimit() (int, bool) { return 0, false }
