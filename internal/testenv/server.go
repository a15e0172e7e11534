package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// startLimit bounds a start whose context has no deadline.
	startLimit = 60 * time.Second
	// pingLimit bounds one readiness question.
	pingLimit = 2 * time.Second
	// pingEvery is the pause between two readiness questions.
	pingEvery = 25 * time.Millisecond
	// logTailBytes is how much of a server's log goes into an error.
	logTailBytes = 4 << 10
)

// ErrNotInstalled is wrapped by every Start function whose program is not on this machine.
var ErrNotInstalled = errors.New("not installed")

// Server is one private server process. Its methods may be called from any goroutine, one at a time.
type Server struct {
	// Name says which server this is, for messages: "redis", "mariadb", "kafka 2".
	Name string
	// Addr is where it listens for clients, host:port; it stays the same over restarts.
	Addr string
	// DSN is a root user's data source name in the form of go-sql-driver/mysql, without a database. Empty for
	// a server that is no database.
	DSN string
	// Dir holds its data and log. Close removes it.
	Dir string

	run   command
	ready func(context.Context) error // one question in the server's own protocol
	grace time.Duration               // how long Stop waits before it kills
	ports []*port

	mu     sync.Mutex
	proc   *process
	closed bool
}

// newDir makes a data folder. Its name carries the process id, so that SweepDirs can tell a folder left behind.
func newDir(name string) (string, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-%s-", dirPrefix, os.Getpid(), name))
	if err != nil {
		return "", fmt.Errorf("make server folder: %w", err)
	}
	return dir, nil
}

// launch starts the process and waits until it answers. Call it with the lock held.
func (s *Server) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	proc, err := s.run.start()
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	s.proc = proc
	if err := s.awaitReady(ctx); err != nil {
		_ = proc.kill()
		return fmt.Errorf("%s at %s did not start: %w; its log ends:\n%s", s.Name, s.Addr, err, s.LogTail())
	}
	return nil
}

// awaitReady asks until the server answers, its process ends, or the context does.
func (s *Server) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	var last error
	for {
		ping, cancel := context.WithTimeout(ctx, pingLimit)
		last = s.ready(ping)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-s.proc.done:
			return errors.Join(errors.New("the process ended"), s.proc.err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// Kill ends the server at once (SIGKILL), as a power cut would: nothing is flushed. Data and port are kept.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.kill()
}

// Stop ends the server in its own orderly way (SIGTERM), and kills it when that takes too long.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.stop(s.grace)
}

// Restart stops the server if it still runs, starts it again on the same port and data, and waits until it answers,
// at most startLimit.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: restart after close", s.Name)
	}
	if err := s.proc.stop(s.grace); err != nil {
		return err
	}
	return s.launch(ctx)
}

// Pause freezes the server (SIGSTOP): connections stay open and nothing answers, as when a machine hangs.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.signal(syscall.SIGSTOP)
}

// Resume lets a paused server go on.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.signal(syscall.SIGCONT)
}

// Running reports whether the process exists; a paused one does.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && s.proc.alive()
}

// Pid is the process id of the last start.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.cmd.Process.Pid
}

// LogTail is the end of the server's own log, for messages.
func (s *Server) LogTail() string { return tail(s.run.log, logTailBytes) }

// Close kills the server, removes its data and gives its port back. A second call does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.proc != nil {
		err = s.proc.kill()
	}
	releasePorts(s.ports)
	return errors.Join(err, os.RemoveAll(s.Dir))
}

// startServer launches s, and closes it again when it does not start.
func startServer(ctx context.Context, s *Server) (*Server, error) {
	s.run.log = filepath.Join(s.Dir, "server.log")
	s.mu.Lock()
	err := s.launch(ctx)
	s.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
