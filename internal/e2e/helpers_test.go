package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freeze stops a process without ending it; thaw lets it go on.
func (s *stack) freeze(name string) { s.signal(name, syscall.SIGSTOP) }
func (s *stack) thaw(name string)   { s.signal(name, syscall.SIGCONT) }

func (s *stack) signal(name string, sig syscall.Signal) {
	s.t.Helper()
	if err := s.procs[name].cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// redisClient is a client of one server, closed with the test.
func redisClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
