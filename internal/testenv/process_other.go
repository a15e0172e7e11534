//go:build unix && !linux

package testenv

import "syscall"

// diesWithParent says that ChildAttr ends a server with its parent.
const diesWithParent = false

// ChildAttr has no parent-death signal outside Linux: a server outlives a test process that was killed.
func ChildAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
