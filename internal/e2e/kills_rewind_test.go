package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"seckill/internal/testenv"
)

// aofDir is where Redis 7 keeps the parts of its append-only file, below its data folder.
const aofDir = "appendonlydir"

// aofCopy is a copy of the append-only file of a running Redis, as a backup or a lagging disk would have it.
type aofCopy struct {
	from, to  string
	forgotten int64 // bytes written after the copy, known once it was put back
}

// copyAOF copies the file as it is now. A last command that is half written is cut off by Redis when it starts. When
// Redis rewrites its file meanwhile, the copy is made again.
func copyAOF(s *testenv.Server, into string) (*aofCopy, error) {
	c := &aofCopy{from: filepath.Join(s.Dir, aofDir), to: filepath.Join(into, aofDir)}
	for range 5 {
		if err := os.RemoveAll(c.to); err != nil {
			return nil, err
		}
		before, err := c.manifest()
		if err != nil {
			return nil, err
		}
		err = os.CopyFS(c.to, os.DirFS(c.from))
		after, merr := c.manifest()
		if err == nil && merr == nil && before == after {
			return c, nil
		}
	}
	return nil, errors.New("copy AOF: it is rewritten all the time")
}

// manifest names the parts of the file.
func (c *aofCopy) manifest() (string, error) {
	found, err := filepath.Glob(filepath.Join(c.from, "*.manifest"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(errors.New("no manifest of the AOF"), err)
	}
	text, err := os.ReadFile(found[0])
	return string(text), err
}

// putBack replaces the file of the Redis, which must be down.
func (c *aofCopy) putBack() error {
	now, err := dirBytes(c.from)
	if err != nil {
		return err
	}
	then, err := dirBytes(c.to)
	if err != nil {
		return err
	}
	if c.forgotten = now - then; c.forgotten <= 0 {
		return fmt.Errorf("nothing was written after the copy: %d bytes, then %d", then, now)
	}
	if err := os.RemoveAll(c.from); err != nil {
		return err
	}
	return os.CopyFS(c.from, os.DirFS(c.to))
}

// dirBytes is the size of the files of a folder.
func dirBytes(dir string) (sum int64, err error) {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		info, ierr := e.Info()
		if ierr != nil {
			return 0, ierr
		}
		sum += info.Size()
	}
	return sum, err
}

// The older copy is really older: what was written after it is gone, what was there before it is there. Without this
// the rounds that use it would show nothing.
func TestOlderCopyOfRedis(t *testing.T) {
	t.Parallel()
	s := testenv.OwnRedis(t, testenv.RedisOptions{AOF: true})
	rdb := redisClient(t, s.Addr)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(rdb.Set(t.Context(), "n", 1, 0).Err())
	old, err := copyAOF(s, t.TempDir())
	must(err)
	must(rdb.Set(t.Context(), "n", 2, 0).Err())
	must(s.Kill())
	must(old.putBack())
	must(s.Restart(t.Context()))
	if n, err := rdb.Get(t.Context(), "n").Int(); n != 1 || err != nil {
		t.Errorf("n is %d (%v), want 1", n, err)
	}
}
