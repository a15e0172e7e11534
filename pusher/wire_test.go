package pusher

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"seckill/internal/sale"
)

// Everything about sockets holds as well where connections have goroutines of their own: on other systems, and for
// connections that the system cannot watch.
func TestSocketsWithoutPoller(t *testing.T) {
	t.Parallel()
	if os.Getenv(pumpedEnv) != "" {
		t.Skip("this is that run")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "-test.run=^Test(FS0|S29|S31|R10|Ping|Inbound|Drain|Session|Browser|Socket|Live|Event)", "-test.short")
	cmd.Env = append(os.Environ(), pumpedEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A client at rest has no goroutine here, whatever it has done before.
func TestIdleSocketsHaveNoGoroutine(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getenv(pumpedEnv) != "" {
		t.Skip("there is no poller")
	}
	r := start(t, newWorld(), Config{PingEvery: 100 * time.Millisecond, PeerTimeout: patience})
	r.connect(1).untilSynced()
	eventually(t, "the handshake's goroutine is gone", func() bool { return goroutinesOf("pusher.(*Pusher).accept") == 0 })
	before := goroutinesOf("seckill/pusher.")
	for user := int64(2); user <= 50; user++ {
		c := r.connect(user)
		c.untilSynced()
		c.send(`{"type":"sync"}`)
		c.untilSynced()
	}
	time.Sleep(300 * time.Millisecond) // pings and pongs
	eventually(t, "as few goroutines as with one socket", func() bool { return goroutinesOf("seckill/pusher.") <= before })
}

// A connection that the system cannot watch, as one that ends TLS here, has goroutines of its own; the others go on without.
func TestTLSHasGoroutines(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS() // for its certificate
	t.Cleanup(web.Close)
	w := newWorld()
	r := startOn(t, w, Config{PingEvery: 50 * time.Millisecond, PeerTimeout: patience}, func(ln net.Listener) net.Listener {
		return tls.NewListener(ln, web.TLS)
	})
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	c := r.connectWith(1, dialer{tls: &tls.Config{RootCAs: roots, ServerName: "example.com"}})
	c.untilSynced()
	w.publish(result(1, "token-1", 1, sale.StatusPendingPayment))
	c.next("result")
	c.send(`{"type":"sync"}`)
	c.untilSynced()
	if goroutinesOf("pusher.(*pumped).pump") == 0 {
		t.Error("no goroutine reads the connection")
	}
	if err := c.conn.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the socket is gone", func() bool { return r.hub.Sockets() == 0 && r.ln.count() == 0 })
}

// goroutinesOf counts the goroutines whose stack has a text.
func goroutinesOf(text string) (n int) {
	buf := make([]byte, 4<<20)
	for _, g := range bytes.Split(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
		if bytes.Contains(g, []byte(text)) && !bytes.Contains(g, []byte("(*client).read")) {
			n++
		}
	}
	return n
}

// The cut of frames into what the protocol implementation reads at once.
func TestUnits(t *testing.T) {
	t.Parallel()
	text, ping := maskedFrame(0x81, []byte("hello")), maskedFrame(0x89, []byte("p"))
	begin, end := maskedFrame(0x01, []byte("he")), maskedFrame(0x80, []byte("llo"))
	big := maskedFrame(0x81, make([]byte, 200))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		buf    []byte
		n      int
		fenced bool
	}{
		"nothing":                    {nil, 0, false},
		"half a header":              {text[:1], 0, false},
		"half a mask":                {text[:4], 0, false},
		"half a payload":             {text[:len(text)-1], 0, false},
		"a message":                  {text, len(text), false},
		"two messages":               {join(text, text), len(text), false},
		"a ping":                     {join(ping, text), len(ping), true},
		"a first fragment":           {begin, 0, false},
		"fragments":                  {join(begin, end, text), len(begin) + len(end), false},
		"a ping between fragments":   {join(begin, ping, end), len(begin) + len(ping) + len(end), false},
		"a ping between, unfinished": {join(begin, ping), 0, false},
		"16 bits of length":          {big, len(big), false},
		"half of 16 bits of length":  {big[:3], 0, false},
		"more than allowed":          {[]byte{0x81, 0xfe, 0x10, 0x00}, 4, false},
		"64 bits, all of them":       {append([]byte{0x81, 0xff}, bytes.Repeat([]byte{0xff}, 8)...), 10, false},
		"a long control frame":       {[]byte{0x89, 0xfe, 0x01, 0x00}, 4, false},
	} {
		if n, fenced := unit(c.buf, 1024); n != c.n || fenced != c.fenced {
			t.Errorf("%s: %d %v, want %d %v", name, n, fenced, c.n, c.fenced)
		}
	}
}

// feeder is a connection that has what it was given, and then nothing: a read of more is remembered.
type feeder struct {
	net.Conn
	in []byte
}

func (f *feeder) Read(p []byte) (int, error) {
	if len(f.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.in)
	f.in = f.in[n:]
	return n, nil
}

// hijacked lets a test upgrade a connection of its own.
type hijacked struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// upgraded makes the server's end of a WebSocket on a connection.
func upgraded(t testing.TB, conn net.Conn) *websocket.Conn {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for k, v := range map[string]string{
		"Connection": "upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
	} {
		r.Header.Set(k, v)
	}
	up := websocket.Upgrader{ReadBufferSize: 125, WriteBufferSize: 256}
	ws, err := up.Upgrade(&hijacked{httptest.NewRecorder(), conn}, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(1024)
	return ws
}

// sink is a connection that takes everything.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error)      { return len(p), nil }
func (sink) SetDeadline(time.Time) error      { return nil }
func (sink) SetReadDeadline(time.Time) error  { return nil }
func (sink) SetWriteDeadline(time.Time) error { return nil }
func (sink) Close() error                     { return nil }

// FuzzUnits holds reading by units, with the bytes arriving in any pieces, against the protocol implementation reading a
// connection that simply has all of them: the same messages, and an error at the same place or more bytes awaited.
func FuzzUnits(f *testing.F) {
	text, ping, pong := maskedFrame(0x81, []byte("hello")), maskedFrame(0x89, []byte("p")), maskedFrame(0x8a, nil)
	begin, end := maskedFrame(0x01, []byte("he")), maskedFrame(0x80, []byte("llo"))
	f.Add(bytes.Join([][]byte{text, ping, begin, pong, end, maskedFrame(0x88, []byte{3, 232})}, nil), uint8(3))
	f.Add(bytes.Join([][]byte{pong, maskedFrame(0x82, nil), begin, begin}, nil), uint8(1))
	f.Fuzz(func(t *testing.T, input []byte, piece uint8) {
		var want []string
		plain := upgraded(t, &feeder{Conn: sink{}, in: input})
		var wantErr error
		for {
			_, data, err := plain.ReadMessage()
			if err != nil {
				wantErr = err
				break
			}
			want = append(want, string(data))
		}
		got, gotErr := readByUnits(t, input, int(piece)+1)
		if len(got) > len(want) || !equalPrefix(want, got) {
			t.Fatalf("read %q, want %q", got, want)
		}
		starved := websocket.IsCloseError(wantErr, websocket.CloseAbnormalClosure) || errors.Is(wantErr, io.ErrUnexpectedEOF)
		if !starved && gotErr != nil && len(got) != len(want) {
			t.Fatalf("ended with %v after %q, want %v after %q", gotErr, got, wantErr, want)
		}
		if !starved && gotErr == nil && len(got) != len(want) {
			t.Fatalf("waits after %q, want %q and then %v", got, want, wantErr)
		}
	})
}

func equalPrefix(all, some []string) bool {
	for i := range some {
		if all[i] != some[i] {
			return false
		}
	}
	return true
}

// readByUnits reads as a socket does.
func readByUnits(t *testing.T, input []byte, piece int) (got []string, err error) {
	w := &wire{Conn: sink{}}
	ws := upgraded(t, w)
	ws.SetReadLimit(1024)
	w.framed = true
	s := &socket{p: &Pusher{cfg: Config{MaxFrameBytes: 1024, InboundPerSecond: 1 << 30, InboundBurst: 1 << 30}}, wire: w, ws: ws}
	var held []byte
	for len(input) > 0 {
		n := min(piece, len(input))
		held = append(held, input[:n]...)
		input = input[n:]
		rest, err := s.take(held, func(_ int, data []byte) error { got = append(got, string(data)); return nil })
		if err != nil {
			return got, err
		}
		held = append([]byte(nil), rest...)
	}
	return got, nil
}
