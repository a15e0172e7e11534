package e2e

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// fleet is many users, each with a socket that comes back by itself, as a browser's does, and never asks otherwise: what
// they know of their results is what was pushed.
type fleet struct {
	t      *testing.T
	addr   string
	sale   string // that they look at
	users  int64
	detour atomic.Pointer[string] // another way to the pusher for every tenth

	paused atomic.Bool  // half of them do not read
	synced atomic.Int64 // sockets that have been told their state
	back   atomic.Int64 // sockets that came back

	mu   sync.Mutex
	told map[string]time.Time // by request token: when its final result came
}

// deadAfter is how long a client hears nothing, not even a ping, before it connects anew. The pusher pings every second.
const deadAfter = 4 * time.Second

func newFleet(t *testing.T, addr, activity string, users int64) *fleet {
	t.Helper()
	f := &fleet{t: t, addr: addr, sale: activity, users: users, told: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	dialing := make(chan struct{}, 64)
	for id := int64(1); id <= users; id++ {
		token := user(t, id)
		all.Go(func() {
			for first := true; ctx.Err() == nil; first = false {
				if !first {
					f.back.Add(1)
					time.Sleep(time.Duration(50+rand.IntN(400)) * time.Millisecond)
				}
				dialing <- struct{}{}
				conn := f.connect(ctx, id, token)
				<-dialing
				if conn != nil {
					f.listen(ctx, id, conn)
				}
			}
		})
	}
	return f
}

func (f *fleet) connect(ctx context.Context, user int64, token string) *websocket.Conn {
	addr := f.addr
	if other := f.detour.Load(); other != nil && user%10 == 0 {
		addr = *other
	}
	d := websocket.Dialer{HandshakeTimeout: 10 * time.Second, ReadBufferSize: 512, WriteBufferSize: 256, NetDialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, to)
		if err == nil {
			_ = conn.(*net.TCPConn).SetReadBuffer(2048)
		}
		return conn, err
	}}
	conn, _, err := d.DialContext(ctx, "ws://"+addr+"/v1/ws?activity="+f.sale, http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		return nil
	}
	return conn
}

func (f *fleet) listen(ctx context.Context, user int64, conn *websocket.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	alive := func() { _ = conn.SetReadDeadline(time.Now().Add(deadAfter)) }
	alive()
	conn.SetPingHandler(func(data string) error {
		alive()
		return conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(time.Second))
	})
	counted := false
	defer func() {
		if counted {
			f.synced.Add(-1)
		}
	}()
	for {
		for user%2 == 0 && f.paused.Load() && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			alive()
		}
		_, data, err := conn.ReadMessage()
		if err != nil {
			return
		}
		alive()
		var frame struct{ Type, RequestToken, Status string }
		if err := json.Unmarshal(data, &frame); err != nil {
			f.t.Errorf("frame %q: %v", data, err)
			return
		}
		switch frame.Type {
		case "synced":
			if !counted {
				counted = true
				f.synced.Add(1)
			}
		case "result":
			if frame.Status == "pending_payment" {
				f.mu.Lock()
				if _, ok := f.told[frame.RequestToken]; !ok {
					f.told[frame.RequestToken] = time.Now()
				}
				f.mu.Unlock()
			}
		}
	}
}

func (f *fleet) allSynced(within time.Duration) {
	f.t.Helper()
	eventually(f.t, within, "all sockets are told their state", func() (bool, string) {
		n := f.synced.Load()
		return n == f.users, "synced: " + time.Duration(n).String()
	})
}

// detourProxy passes bytes on until it is frozen: then it takes what comes and passes on nothing, not even an end.
type detourProxy struct {
	ln     net.Listener
	to     string
	frozen atomic.Bool
}

func newDetour(t *testing.T, to string) *detourProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p := &detourProxy{ln: ln, to: to}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			t.Cleanup(func() { in.Close(); out.Close() })
			go p.pass(in, out)
			go p.pass(out, in)
		}
	}()
	return p
}

func (p *detourProxy) pass(from io.Reader, to io.WriteCloser) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if p.frozen.Load() {
			if err != nil {
				return
			}
			continue
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			to.Close()
			return
		}
	}
}
