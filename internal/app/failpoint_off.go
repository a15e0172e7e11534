//go:build !failpoints

package app

// failpoint is off in every build but that of the crash tests.
func failpoint(string) func(string) { return nil }
