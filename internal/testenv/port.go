package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports are taken below the kernel's usual range for outgoing connections (32768 and up): a server that is down
// for a moment must find its port free when it is restarted.
const (
	firstPort = 20000
	lastPort  = 31999
	portTries = 200
)

// port is a loopback TCP port that no other test process on this machine is given until it is released. The lock
// is a file lock, which the kernel drops when the process dies.
type port struct {
	number int
	lock   *os.File
}

// reservePort picks a free port at random.
func reservePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("seckill-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	for range portTries {
		n := firstPort + rand.IntN(lastPort-firstPort+1)
		if p, err := lockPort(dir, n); err == nil {
			return p, nil
		}
	}
	return nil, errors.New("reserve port: no free loopback port found")
}

// lockPort takes port n, or says that it is in use.
func lockPort(dir string, n int) (*port, error) {
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	l, err := net.Listen("tcp", loopback(n))
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	_ = l.Close()
	return &port{number: n, lock: f}, nil
}

// addr is the port's address, host:port.
func (p *port) addr() string { return loopback(p.number) }

// release gives the port back. The lock file stays: removing it would let two processes lock two different files.
func (p *port) release() { _ = p.lock.Close() }

// reservePorts picks n free ports, or none.
func reservePorts(n int) ([]*port, error) {
	ports := make([]*port, 0, n)
	for range n {
		p, err := reservePort()
		if err != nil {
			releasePorts(ports)
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}

func releasePorts(ports []*port) {
	for _, p := range ports {
		p.release()
	}
}

// loopback is host:port on 127.0.0.1: a name could resolve to IPv6, where the servers do not listen.
func loopback(n int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n)) }
