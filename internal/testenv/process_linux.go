package testenv

import "syscall"

// diesWithParent says that ChildAttr ends a server with its parent.
const diesWithParent = true

// ChildAttr lets the kernel kill the server when this process dies, and puts it into its own process group, so
// that an interrupt typed at the terminal reaches the tests first and not the servers under them.
func ChildAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
