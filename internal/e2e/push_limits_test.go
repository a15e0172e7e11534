package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"seckill/internal/testenv"
)

// FS-094: a pusher with 256 descriptors and 1,000 clients lives, says at the start that this is low, refuses with an
// answer what it has no room for, and serves again when most have gone. Connections that never ask for anything count too.
func TestFS094_FewDescriptors(t *testing.T) {
	t.Parallel()
	p := newPushStack(t, 1)
	addr := freeAddr(t)
	proc := &proc{role: "pusher", name: "narrow", addr: addr, log: &logBuffer{}, done: make(chan struct{})}
	proc.cmd = exec.Command("sh", "-c", `ulimit -n 256 && exec "$0" "$@"`, binary, "pusher", "--pusher-addr", addr, "--set", "node=narrow")
	proc.cmd.Env, proc.cmd.Stdout, proc.cmd.Stderr, proc.cmd.SysProcAttr = p.env, proc.log, proc.log, testenv.ChildAttr()
	if err := proc.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		proc.err = proc.cmd.Wait()
		close(proc.done)
	}()
	t.Cleanup(proc.kill)
	p.ready(proc)
	if !strings.Contains(proc.log.String(), "descriptor limit is low") {
		t.Errorf("no warning at the start:\n%s", proc.log.String())
	}

	var mu sync.Mutex
	var open []net.Conn
	var refused, failed int
	var all sync.WaitGroup
	slots := make(chan struct{}, 50)
	for i := range 1000 {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if i%10 == 0 { // says nothing
				if conn, err := net.Dial("tcp", addr); err == nil {
					mu.Lock()
					open = append(open, conn)
					mu.Unlock()
				}
				return
			}
			conn, status := socketTo(t, addr, int64(i+1))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case conn != nil:
				open = append(open, conn.NetConn())
			case status == http.StatusServiceUnavailable:
				refused++
			default:
				failed++
			}
		})
	}
	all.Wait()
	t.Logf("%d open, %d refused with 503, %d without an answer", len(open), refused, failed)
	if len(open) < 100 || refused < 100 {
		t.Errorf("%d open and %d refused of 1,000", len(open), refused)
	}
	for _, conn := range open[min(50, len(open)):] {
		conn.Close()
	}
	eventually(t, 30*time.Second, "it serves again", func() (bool, string) {
		conn, status := socketTo(t, addr, 5000)
		if conn == nil {
			return false, fmt.Sprint(status)
		}
		defer conn.Close()
		_, data, err := conn.ReadMessage()
		return err == nil && len(data) > 0, fmt.Sprint(err)
	})
	select {
	case <-proc.done:
		t.Errorf("the pusher has ended: %v\n%s", proc.err, proc.log.String())
	default:
	}
}

// socketTo opens a socket, or says with which status that was refused, 0 when there was no answer.
func socketTo(t *testing.T, addr string, id int64) (*websocket.Conn, int) {
	d := websocket.Dialer{HandshakeTimeout: 3 * time.Second}
	conn, resp, err := d.Dial("ws://"+addr+"/v1/ws?activity="+pushSale(0).ID, http.Header{"Authorization": {"Bearer " + user(t, id)}})
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	if err == nil {
		return conn, 0
	}
	if resp == nil {
		return nil, 0
	}
	return nil, resp.StatusCode
}
