package pusher

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"seckill/hub"
	"seckill/internal/sale"
)

// A request whose body never comes ends by the deadline of requests, and does not hold up a stop.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{HandshakeTimeout: 300 * time.Millisecond})
	for _, path := range []string{"/healthz", "/v1/ws", "/v1/sse"} {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", path)
	}
	eventually(t, "all are closed", func() bool { return r.ln.count() == 0 })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// The sweep may meet a socket that its handshake has not finished yet.
func TestSweepLeavesHandshakesAlone(t *testing.T) {
	t.Parallel()
	p := &Pusher{cfg: Config{}.WithDefaults(), now: time.Now}
	p.hub = hub.New(hub.Options{OnShard: func(int) { p.check(p.hub.AppendClients(nil), time.Now()) }})
	s := newSocket(p, &wire{}, nil, &visitor{expires: time.Now().Add(-time.Hour)})
	client, err := p.hub.Register(1, "", s)
	if err != nil || client.Err() != nil {
		t.Errorf("%v, %v", err, client.Err())
	}
}

// A stream's reader has nothing to say: who floods one is closed at once.
func TestEventStreamTakesNothing(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/sse?activity=%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", testSale, tokenOf(1, time.Hour))
	eventually(t, "open", func() bool { return r.hub.Sockets() == 1 })
	block := make([]byte, 64<<10)
	sent := 0
	for end := time.Now().Add(patience); time.Now().Before(end); sent++ {
		if _, err := conn.Write(block); err != nil {
			break
		}
	}
	eventually(t, "closed", func() bool { return r.hub.Sockets() == 0 && r.ln.count() == 0 })
	if sent > 200 {
		t.Errorf("%d blocks of 64 KiB were taken", sent)
	}
}

// S29: the results of many sales are told after a subscription as after a connect: they do not count as a queue that is full.
func TestManyResults(t *testing.T) {
	t.Parallel()
	for _, n := range []int{66, 200} {
		w := newWorld()
		for i := range n {
			w.results = append(w.results, result(1, fmt.Sprintf("tok%d", i), 1, sale.StatusPaid))
		}
		r := start(t, w, Config{CheckEvery: 300 * time.Millisecond})
		c := r.connect(1)
		got := map[string]int{}
		for _, name := range results(c.untilSynced()) {
			got[name]++
		}
		time.Sleep(time.Second) // the check reads them again and again
		w.publish(result(1, "tok0", 2, sale.StatusPaid))
		for f := c.next("result"); f.Version != 2; f = c.next("result") {
			got[fmt.Sprintf("%s@%d", f.RequestToken, f.Version)]++
		}
		if len(got) != n {
			t.Errorf("%d results: %d told", n, len(got))
		}
		for name, times := range got {
			if times != 1 {
				t.Errorf("%d results: %s was told %d times", n, name, times)
			}
		}
	}
}

// FS-094: sockets that are being closed still count, so that a crowd that comes and goes finds no more room than there is.
func TestFS094_ClosingSocketsCount(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{MaxSockets: 3, CloseWait: patience})
	for user := int64(1); user <= 3; user++ {
		conn, _, err := r.dial(user, dialer{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	eventually(t, "all are in the hub", func() bool { return r.hub.Sockets() == 3 })
	for _, c := range r.hub.AppendClients(nil) {
		c.Close(errTryLater) // the peer does not answer
	}
	eventually(t, "none is in the hub", func() bool { return r.hub.Sockets() == 0 })
	if _, resp, err := r.dial(4, dialer{}); err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a fourth: %v %v", resp, err)
	}
}

// The deadline of half a message is each message's own: a peer whose bytes always come in awkward pieces is well.
func TestHalfFrameDeadlineIsPerFrame(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{FrameTimeout: 400 * time.Millisecond, InboundPerSecond: 1000, InboundBurst: 1000})
	c := r.connect(1)
	c.untilSynced()
	frame := maskedFrame(0x81, []byte(`{"type":"x"}`))
	conn := c.conn.NetConn()
	if _, err := conn.Write(frame[:3]); err != nil {
		t.Fatal(err)
	}
	for range 24 { // 1.2 s, each frame finished with the next begun
		time.Sleep(50 * time.Millisecond)
		if _, err := conn.Write(append(append([]byte{}, frame[3:]...), frame[:3]...)); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.hub.Sockets(); n != 1 {
		t.Fatal("closed although every frame was finished in time")
	}
	eventually(t, "one that is not finished ends the socket", func() bool { return r.hub.Sockets() == 0 })
}
