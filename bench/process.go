package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that the bench has started.
type process struct {
	cmd  *exec.Cmd
	addr string
	log  *bytes.Buffer
}

// start runs a program and waits until it answers GET /readyz.
func start(ctx context.Context, path, addr string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), addr: addr, log: &bytes.Buffer{}} //nolint:noctx // it outlives the call
	// What configures a program here is its arguments alone.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SECKILL_") })
	p.cmd.Stderr, p.cmd.Stdout = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for ctx.Err() == nil && time.Now().Before(deadline) {
		if ready(ctx, addr) {
			return p, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.stop()
	return nil, fmt.Errorf("%s is not ready: %s", path, p.log.String())
}

func ready(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// stop ends it, by force after ten seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	force := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer force.Stop()
	_ = p.cmd.Wait()
}

// usage is what a process has used, by the system's account.
type usage struct {
	RSS int64         // bytes resident
	CPU time.Duration // user and system
	// Live is what the program's garbage collector found alive last, with the stacks: bytes.
	Live int64
	// Within is the program's own histogram of pushes: how many were written within so many seconds of their arrival at the
	// process. Empty for a floor.
	Within map[float64]float64
}

func (u usage) plus(v usage) usage {
	sum := usage{u.RSS + v.RSS, u.CPU + v.CPU, u.Live + v.Live, maps.Clone(u.Within)}
	if sum.Within == nil {
		sum.Within = make(map[float64]float64)
	}
	for bound, n := range v.Within {
		sum.Within[bound] += n
	}
	return sum
}

// within is the bound, of those of the histogram, within which a share of the pushes since before were written; 0: none is
// known.
func (u usage) within(share float64, before usage) time.Duration {
	bounds := slices.Sorted(maps.Keys(u.Within))
	if len(bounds) == 0 {
		return 0
	}
	all := u.Within[math.Inf(1)] - before.Within[math.Inf(1)]
	for _, bound := range bounds {
		if u.Within[bound]-before.Within[bound] >= share*all {
			return time.Duration(min(bound, time.Hour.Seconds()) * float64(time.Second))
		}
	}
	return 0
}

// ticksPerSecond is the unit of /proc/PID/stat on every Linux that Go runs on.
const ticksPerSecond = 100

func (p *process) usage(ctx context.Context) (usage, error) {
	var u usage
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return u, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return u, fmt.Errorf("read memory: %w", err)
			}
			u.RSS = kib << 10
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return u, fmt.Errorf("read processor time: %w", err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const userAt, systemAt = 11, 12 // behind the name
	if len(fields) <= systemAt {
		return u, errors.New("read processor time: too few fields")
	}
	user, err1 := strconv.ParseInt(fields[userAt], 10, 64)
	system, err2 := strconv.ParseInt(fields[systemAt], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return u, fmt.Errorf("read processor time: %w", err)
	}
	u.CPU = time.Duration(user+system) * time.Second / ticksPerSecond
	return u, p.own(ctx, &u)
}

// own reads the program's own account: the heap that the last collection found alive, the stacks, the histogram of pushes.
func (p *process) own(ctx context.Context, u *usage) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/metrics", nil)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	u.Within = make(map[float64]float64)
	for lines := bufio.NewScanner(io.LimitReader(resp.Body, 1<<20)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		heap := name == "go_gc_heap_live_bytes" || name == "go_memstats_stack_inuse_bytes"
		bound, bucket := strings.CutPrefix(name, `seckill_push_seconds_bucket{le="`)
		if !heap && !bucket {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if heap {
			u.Live += int64(v)
		} else {
			le, boundErr := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64)
			u.Within[le], err = v, errors.Join(err, boundErr)
		}
		if err != nil {
			return fmt.Errorf("read metrics: %w", err)
		}
	}
	return nil
}

// freePorts finds n ports on the loopback that nobody listens on.
func freePorts(n int) ([]string, error) {
	addrs := make([]string, 0, n)
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
		if err != nil {
			return nil, fmt.Errorf("find a port: %w", err)
		}
		defer func() { _ = ln.Close() }() // all at the end, so that they differ
		addrs = append(addrs, ln.Addr().String())
	}
	return addrs, nil
}
