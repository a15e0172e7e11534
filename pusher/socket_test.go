package pusher

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"seckill/internal/sale"
)

func rawDial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// maskedFrame is a client frame with a zero mask.
func maskedFrame(b0 byte, payload []byte) []byte {
	b := []byte{b0}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// FS-066: results, pings every millisecond, and a close in the middle from either side: frames never mix.
func TestFS066_OneWriter(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"server", "client"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			r := start(t, w, Config{PingEvery: time.Millisecond, PeerTimeout: patience, InboundPerSecond: 1 << 20, InboundBurst: 1 << 20})
			c := r.connect(1)
			c.untilSynced()
			var publishers sync.WaitGroup
			for g := range 4 {
				publishers.Go(func() {
					for i := range 250 {
						w.publish(result(1, fmt.Sprintf("tok%d", g), int64(i), sale.StatusPaid))
						if g == 0 && i == 125 {
							switch who {
							case "server":
								for _, hc := range r.hub.AppendClients(nil) {
									hc.Close(errRestart)
								}
							case "client":
								_ = c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1001, ""), time.Now().Add(patience))
							}
						}
					}
				})
			}
			publishers.Wait()
			if code, want := c.end(), map[string]int{"server": 1012, "client": 1001}[who]; code != want {
				t.Errorf("closed %d, want %d", code, want)
			}
			close(c.frames) // all of them were whole JSON, or the end would be another one
			last := map[string]int64{}
			for f := range c.frames {
				if v, ok := last[f.RequestToken]; ok && f.Type == "result" && f.Version <= v {
					t.Errorf("version %d of %s after %d", f.Version, f.RequestToken, v)
				}
				last[f.RequestToken] = f.Version
			}
			eventually(t, "the socket is gone", func() bool { return r.hub.Sockets() == 0 && r.ln.count() <= 1 })
		})
	}
}

// A client's pings are answered, by the writer.
func TestPingIsAnswered(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	conn, _, err := r.dial(1, dialer{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pong := make(chan string, 1)
	conn.SetPongHandler(func(s string) error { pong <- s; return nil })
	go func() {
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
		}
	}()
	if err := conn.WriteControl(websocket.PingMessage, []byte("hello"), time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-pong:
		if got != "hello" {
			t.Errorf("pong %q", got)
		}
	case <-time.After(patience):
		t.Error("no pong")
	}
}

// FS-067: 1,000 sockets come and go during broadcasts.
func TestFS067_ComeAndGoDuringBroadcast(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{CatalogRefresh: time.Hour})
	stop := make(chan struct{})
	var casting, visitors sync.WaitGroup
	casting.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				r.bus.h.OnLive(sale.Live{ActivityID: testSale, State: sale.StateOpen, Items: []sale.Remaining{{CommodityID: "C1", Units: i}}})
			}
		}
	})
	const workers, rounds = 20, 50
	for i := range workers {
		visitors.Go(func() {
			for k := range rounds {
				conn, _, err := r.dial(int64(i*rounds+k+1), dialer{})
				if err != nil {
					t.Error(err)
					return
				}
				for {
					_, data, err := conn.ReadMessage()
					if err != nil {
						t.Error(err)
					}
					if err != nil || bytes.Contains(data, []byte(`"synced"`)) {
						break
					}
				}
				conn.Close()
			}
		})
	}
	visitors.Wait()
	close(stop)
	casting.Wait()
	eventually(t, "all are gone", func() bool { return r.hub.Sockets() == 0 && r.ln.count() == 0 })
	if p := r.Presence(); p.Users != 0 || len(p.Viewers) != 0 {
		t.Errorf("left over %+v", p)
	}
}

// S29: JSON of an unknown type, or of none, is ignored; what is no JSON closes 1008.
func TestInboundFrames(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	c := r.connect(1)
	c.untilSynced()
	for _, ignored := range []string{`{"type":"later"}`, `{}`, `{"type":1}`, `[]`, `1`, `null`, `{"TYPE":"sync"}`} {
		c.send(ignored)
	}
	c.send(`{"type":"sync","more":true}`)
	if frames := c.untilSynced(); len(frames) != 2 {
		t.Errorf("got %v", frames)
	}
	for _, bad := range []string{"", "sync", `{"type":"sync"`, "{\"type\":\"\xff\"}", `{"type":"sync"}{"type":"sync"}`} {
		c := r.connect(2)
		c.send(bad)
		if code := c.end(); code != 1008 {
			t.Errorf("%q: closed %d, want 1008", bad, code)
		}
	}
	c = r.connect(2)
	if err := c.conn.WriteMessage(websocket.BinaryMessage, []byte(`{"type":"sync"}`)); err != nil {
		t.Fatal(err)
	}
	if code := c.end(); code != 1008 {
		t.Errorf("binary frame: closed %d, want 1008", code)
	}
}

// Inbound frames are limited, control frames too.
func TestInboundRate(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{})
	for _, kind := range []int{websocket.TextMessage, websocket.PingMessage, websocket.PongMessage} {
		c := r.connect(1)
		c.untilSynced()
		var err error
		for i := 0; i < 100 && err == nil; i++ {
			if kind == websocket.TextMessage {
				err = c.conn.WriteMessage(kind, []byte(`{"type":"nothing"}`))
			} else {
				err = c.conn.WriteControl(kind, nil, time.Now().Add(patience))
			}
		}
		if code := c.end(); code != 1008 {
			t.Errorf("frame type %d: closed %d, want 1008", kind, code)
		}
	}
}

// FS-078: large frames, endless fragments and compressed ones cost the sender its socket and nobody memory. Not parallel:
// it measures memory.
func TestFS078_FrameSize(t *testing.T) {
	r := start(t, newWorld(), Config{})
	warm := r.connect(1)
	warm.untilSynced()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	big := make([]byte, 10<<20)
	c := r.connect(2)
	c.untilSynced()
	_ = c.conn.WriteMessage(websocket.TextMessage, big) // fails when the server has had enough
	if code := c.end(); code != 1009 {
		t.Errorf("10 MB frame: closed %d, want 1009", code)
	}
	c = r.connect(2)
	c.untilSynced()
	if _, err := c.conn.NetConn().Write(maskedFrame(0x01, []byte("a"))); err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		if _, err := c.conn.NetConn().Write(maskedFrame(0x00, []byte("a"))); err != nil {
			break
		}
	}
	if code := c.end(); code != 1009 {
		t.Errorf("endless fragments: closed %d, want 1009", code)
	}
	runtime.ReadMemStats(&after)
	// The client's own copies are the most of it: 10 MB to send and as much to mask.
	if grown := int64(after.TotalAlloc-before.TotalAlloc) - 2*int64(len(big)); grown > 4<<20 {
		t.Errorf("%d bytes were allocated beside the client's", grown)
	}

	conn, resp, err := r.dial(3, dialer{compress: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if ext := resp.Header.Get("Sec-Websocket-Extensions"); ext != "" {
		t.Errorf("compression was agreed on: %q", ext)
	}
	c = r.connect(3)
	c.untilSynced()
	if _, err := c.conn.NetConn().Write(maskedFrame(0xc1, []byte("compressed"))); err != nil {
		t.Fatal(err)
	}
	if code := c.end(); code != 1002 {
		t.Errorf("frame with the compression bit: closed %d, want 1002", code)
	}
}

// FS-078: compression is agreed on where it is configured and the client asks, and bounds what a frame inflates to.
// Not parallel: it measures memory.
func TestFS078_Compression(t *testing.T) {
	w := newWorld()
	r := start(t, w, Config{Compression: true})
	plain, resp, err := r.dial(1, dialer{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if ext := resp.Header.Get("Sec-Websocket-Extensions"); ext != "" {
		t.Errorf("a client that did not ask was answered %q", ext)
	}

	counted := &countingDialer{}
	c := r.connectWith(2, dialer{compress: true, netDial: counted.dial})
	c.untilSynced()
	before, plainBytes := counted.read.Load(), 0
	for i := range 20 {
		w.publish(result(2, fmt.Sprintf("token-%d", i), 1, sale.StatusPendingPayment))
		plainBytes += len(c.next("result").raw)
	}
	if got := counted.read.Load() - before; got >= int64(plainBytes)*9/10 {
		t.Errorf("%d bytes for results of %d", got, plainBytes)
	}
	c.send(`{"type":"sync"}`)
	c.next("synced")

	bomb := deflated(t, make([]byte, 900<<10))
	if len(bomb) > 1000 {
		t.Fatalf("the frame has %d bytes", len(bomb))
	}
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	if _, err := c.conn.NetConn().Write(maskedFrame(0xc1, bomb)); err != nil {
		t.Fatal(err)
	}
	if code := c.end(); code != 1009 {
		t.Errorf("a frame that inflates: closed %d, want 1009", code)
	}
	runtime.ReadMemStats(&end)
	if grown := end.TotalAlloc - start.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}

	for what, frame := range map[string][]byte{
		"no deflate": maskedFrame(0xc1, []byte("\xff\xff\xff\xff")), "cut off": maskedFrame(0xc1, []byte{0x4b}),
	} {
		c = r.connectWith(3, dialer{compress: true})
		c.untilSynced()
		if _, err := c.conn.NetConn().Write(frame); err != nil {
			t.Fatal(err)
		}
		if code := c.end(); code != 1008 {
			t.Errorf("%s: closed %d, want 1008", what, code)
		}
	}
}

// FS-078: a compressed message may end with a block that says it is the last, and a byte more (RFC 7692, 7.2.3.4). The
// frames behind it are read as they are, wherever the cut between two reads of the protocol implementation falls.
func TestFS078_CompressedFinalBlock(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{Compression: true})
	for pad := range 130 {
		c := r.connectWith(int64(pad+1), dialer{compress: true})
		c.untilSynced()
		var out bytes.Buffer
		fw, err := flate.NewWriter(&out, flate.NoCompression)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(fw, `{"type":"later","x":"%s"}`, strings.Repeat("x", pad))
		if err := fw.Close(); err != nil {
			t.Fatal(err)
		}
		first := maskedFrame(0xc1, append(out.Bytes(), 0))
		if _, err := c.conn.NetConn().Write(append(first, maskedFrame(0x81, []byte(`{"type":"sync"}`))...)); err != nil {
			t.Fatal(err)
		}
		c.untilSynced()
		c.conn.Close()
	}
}

// FS-078: compressed messages come in fragments with control frames between them, a byte at a time, and go out larger than
// a buffer; an empty one is no JSON; the bound is that of the plain text.
func TestFS078_CompressedPieces(t *testing.T) {
	t.Parallel()
	w := newWorld()
	live := w.live[testSale]
	for i := range 3000 {
		live.Items = append(live.Items, sale.Remaining{CommodityID: fmt.Sprintf("C%d-%x", i, i*7919), Units: int64(i * 31)})
	}
	w.live[testSale] = live
	r := start(t, w, Config{Compression: true, InboundPerSecond: 1000, InboundBurst: 1000})
	c := r.connectWith(1, dialer{compress: true})
	c.untilSynced()
	whole := deflated(t, []byte(`{"type":"sync"}`))
	for cut := range len(whole) + 1 {
		frames := slices.Concat(maskedFrame(0x41, whole[:cut]), maskedFrame(0x89, []byte("p")), maskedFrame(0x00, nil),
			maskedFrame(0x8a, nil), maskedFrame(0x80, whole[cut:]), maskedFrame(0x89, nil))
		for i := range frames {
			if _, err := c.conn.NetConn().Write(frames[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.untilSynced(); len(got[0].Items) != len(live.Items) {
			t.Fatalf("%d items of %d", len(got[0].Items), len(live.Items))
		}
	}
	const limit = 1 << 10
	for size, want := range map[int]int{0: 1008, limit: 0, limit + 1: 1009} {
		c := r.connectWith(2, dialer{compress: true})
		c.untilSynced()
		text := []byte(`{"type":"sync"}`)
		text = append(text, bytes.Repeat([]byte(" "), limit+1)...)[:size]
		if _, err := c.conn.NetConn().Write(maskedFrame(0xc1, deflated(t, text))); err != nil {
			t.Fatal(err)
		}
		if want == 0 {
			c.untilSynced()
		} else if code := c.end(); code != want {
			t.Errorf("%d bytes: closed %d, want %d", size, code, want)
		}
		c.conn.Close()
	}
}

// deflated is data as permessage-deflate sends it.
func deflated(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	fw, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = fw.Write(data); err == nil {
		err = fw.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{0, 0, 0xff, 0xff})
}

// countingDialer counts the bytes that a client reads.
type countingDialer struct{ read atomic.Int64 }

func (d *countingDialer) dial(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	return &countingConn{conn, d}, err
}

type countingConn struct {
	net.Conn
	d *countingDialer
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.d.read.Add(int64(n))
	return n, err
}

// FS-079: the read loop ends at the first error, whatever it is, and everything of the socket is gone.
func TestFS079_ReadLoopEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg Config
		do  func(conn *net.TCPConn)
	}{
		"reset":         {Config{}, func(conn *net.TCPConn) { _ = conn.SetLinger(0); conn.Close() }},
		"bad opcode":    {Config{}, func(conn *net.TCPConn) { _, _ = conn.Write(maskedFrame(0x83, nil)) }},
		"oversize":      {Config{}, func(conn *net.TCPConn) { _, _ = conn.Write(maskedFrame(0x81, make([]byte, 2000))) }},
		"unmasked":      {Config{}, func(conn *net.TCPConn) { _, _ = conn.Write([]byte{0x81, 0x01, 'a'}) }},
		"half a frame":  {Config{}, func(conn *net.TCPConn) { _, _ = conn.Write([]byte{0x81}); conn.Close() }},
		"read deadline": {Config{PingEvery: 100 * time.Millisecond, PeerTimeout: 250 * time.Millisecond}, func(*net.TCPConn) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.cfg.CloseWait = 50 * time.Millisecond
			r := start(t, newWorld(), tc.cfg)
			for i := range 100 {
				conn, _, err := r.dial(int64(i+1), dialer{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				tc.do(conn.NetConn().(*net.TCPConn))
			}
			eventually(t, "all are gone", func() bool { return r.hub.Sockets() == 0 && r.ln.count() == 0 })
			if err := r.stop(); err != nil { // waits for the goroutines of sockets
				t.Error(err)
			}
		})
	}
}

// FS-080: leaving is no error, the server never sends 1005 or 1006, and a stop sends 1012.
func TestFS080_CloseCodes(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{})
	for _, tc := range []struct{ payload, want []byte }{
		{nil, []byte{0x03, 0xe8}},                       // no status: 1000
		{[]byte{0x03, 0xe8}, []byte{0x03, 0xe8}},        // 1000
		{[]byte{0x03, 0xe9, 'b'}, []byte{0x03, 0xe9}},   // a tab is closed: 1001
		{[]byte{0x0f, 0xa0, 'x'}, []byte{0x0f, 0xa0}},   // 4000
		{[]byte{0x03, 0xee}, []byte{0x03, 0xea, 'b'}},   // 1006 must not be sent: 1002 protocol error
		{[]byte{0x03}, []byte{0x03, 0xe8}},              // half a code: taken for none
		{[]byte{0x03, 0xe8, 0xff}, []byte{0x03, 0xea}},  // text is no UTF-8: 1002
		{bytes.Repeat([]byte{0x03}, 126), []byte{0x03}}, // too long for a control frame: 1002
	} {
		conn, _, err := r.dial(1, dialer{})
		if err != nil {
			t.Fatal(err)
		}
		nc := conn.NetConn()
		if _, err := nc.Write(maskedFrame(0x88, tc.payload)); err != nil {
			t.Fatal(err)
		}
		_ = nc.SetReadDeadline(time.Now().Add(patience))
		rest, err := io.ReadAll(nc)
		if err != nil {
			t.Errorf("close %v: %v", tc.payload, err)
		}
		i := bytes.LastIndexByte(rest, 0x88)
		if i < 0 || len(rest) < i+2 || !bytes.HasPrefix(rest[i+2:], tc.want) {
			t.Errorf("close %v: answered % x, want a close frame with % x", tc.payload, rest[max(i, 0):], tc.want)
		}
		conn.Close()
	}
	killed := r.connect(1)
	killed.untilSynced()
	killed.conn.Close()
	eventually(t, "all are gone", func() bool { return r.hub.Sockets() == 0 && r.ln.count() == 0 })
	if n := r.log.loudCount(); n != 0 {
		t.Errorf("leaving is logged above debug:\n%s", r.log.all())
	}
	last := r.connect(1)
	last.untilSynced()
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if code := last.end(); code != 1012 {
		t.Errorf("stop: closed %d, want 1012", code)
	}
}

// The table of close codes never names a reserved one, whatever ended the socket.
func TestFS080_ReservedCodesAreNeverSent(t *testing.T) {
	t.Parallel()
	reasons := []error{
		io.EOF, errors.New("x"), errUnauthenticated, errTooManyHere, errPolicy, errTryLater, errRestart, errPanic, websocket.ErrReadLimit,
		net.ErrClosed,
	}
	for code := 1000; code < 1016; code++ {
		reasons = append(reasons, &websocket.CloseError{Code: code})
	}
	for _, reason := range reasons {
		if code, text := closeCode(reason); code == 1005 || code == 1006 || len(text) > 123 {
			t.Errorf("%v: close %d %q", reason, code, text)
		}
	}
}

// S28: on stop the pusher is not ready, takes no new sockets, and closes the open ones over the stated window.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	const window = 500 * time.Millisecond
	r := start(t, w, Config{DrainWindow: window})
	const n = 50
	var clients []*client
	for user := int64(1); user <= n; user++ {
		c := r.connect(user)
		c.untilSynced()
		clients = append(clients, c)
	}
	began := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	eventually(t, "draining", r.isDraining)
	if code, _ := r.get("/readyz"); code != 503 {
		t.Errorf("readyz %d while draining", code)
	}
	if _, resp, err := r.dial(99, dialer{}); err == nil || resp.StatusCode != 503 || problemOf(t, resp) != "not_ready" {
		t.Errorf("a new socket while draining: %v", err)
	}
	var mu sync.Mutex
	var ends []time.Duration
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			code := c.end()
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, time.Since(began))
			if code != 1012 {
				t.Errorf("closed %d, want 1012", code)
			}
		})
	}
	all.Wait()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	slices.Sort(ends)
	if spread := ends[n-1] - ends[0]; spread < window/2 || spread > window+patience/2 {
		t.Errorf("sockets were closed within %v, want about %v", spread, window)
	}
	if _, _, err := r.dial(99, dialer{}); err == nil {
		t.Error("connected after the stop")
	}
}

// A stop is bounded: a peer that takes no notice is cut off after the grace time.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{CloseWait: time.Hour, DrainWindow: time.Millisecond})
	conn, _, err := r.dial(1, dialer{}) // never reads
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "registered", func() bool { return r.hub.Sockets() == 1 })
	began := time.Now()
	r.stopBounded(t)
	if took := time.Since(began); took > 5*time.Second+patience/2 {
		t.Errorf("stopped after %v with a grace of 5 s", took)
	}
}

// stopBounded stops a pusher that has sockets which do not close, and expects to be told so.
func (r *running) stopBounded(t *testing.T) {
	t.Helper()
	err := r.stop()
	if err == nil || !strings.Contains(err.Error(), "1 sockets did not close") {
		t.Errorf("stop: %v", err)
	}
	r.stop = func() error { return nil }
}
