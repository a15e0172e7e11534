//go:build unix && !linux

package testenv

import "syscall"

// diesWithParent says that childAttr ends a server with its parent.
const diesWithParent = false

// childAttr has no parent-death signal outside Linux: a server outlives a test process that was killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
