package pusher

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/sale"
)

// proxy is a TCP proxy between clients and a pusher that can stop forwarding without closing anything, as a network does
// from which the peer has vanished, and can close what was silent for too long, as load balancers do.
type proxy struct {
	ln     net.Listener
	to     string
	frozen atomic.Bool
	idle   time.Duration // 0: never closed

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T, to string, idle time.Duration) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, to: to, idle: idle}
	go p.accept()
	t.Cleanup(func() {
		ln.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.conns {
			c.Close()
		}
	})
	return p
}

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		var heard atomic.Int64
		heard.Store(time.Now().UnixNano())
		go p.forward(in, out, &heard)
		go p.forward(out, in, &heard)
	}
}

// forward copies until an error or silence in both directions. A frozen proxy reads and forgets, and passes on no end.
func (p *proxy) forward(from, to net.Conn, heard *atomic.Int64) {
	buf := make([]byte, 4096)
	for {
		if p.idle > 0 {
			_ = from.SetReadDeadline(time.Unix(0, heard.Load()).Add(p.idle))
		}
		n, err := from.Read(buf)
		if p.frozen.Load() {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			heard.Store(time.Now().UnixNano())
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if p.idle > 0 && time.Since(time.Unix(0, heard.Load())) < p.idle {
				continue // the other direction was heard meanwhile
			}
			from.Close()
			to.Close()
			return
		}
	}
}

// FS-069: peers that vanish without a FIN are removed within the peer timeout and a margin, with everything of theirs.
func TestFS069_DeadPeersAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld()
	cfg := Config{PingEvery: time.Second, PeerTimeout: 3 * time.Second} // the defaults, shortened no further than a busy machine bears
	r := start(t, w, cfg)
	px := newProxy(t, r.addr, 0)
	for user := int64(1); user <= 100; user++ {
		r.connectWith(user, dialer{addr: px.ln.Addr().String()}).untilSynced()
	}
	alive := r.connect(101)
	alive.untilSynced()
	time.Sleep(cfg.PeerTimeout + cfg.PingEvery) // while pongs come, all stay
	if n := r.hub.Sockets(); n != 101 {
		t.Fatalf("%d sockets of live peers, want 101", n)
	}
	px.frozen.Store(true)
	began := time.Now()
	eventually(t, "the dead are gone", func() bool { return r.hub.Sockets() == 1 && r.ln.count() == 1 })
	if took := time.Since(began); took > cfg.PeerTimeout+cfg.PingEvery+3*time.Second {
		t.Errorf("the dead were removed after %v", took)
	}
	w.publish(result(101, "tok", 1, sale.StatusPaid))
	alive.next("result")
	if err := r.stop(); err != nil { // it waits for the goroutines of every socket
		t.Error(err)
	}
}

// dialSmall connects with so small a buffer that a peer which does not read is soon noticed.
func dialSmall(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	if err == nil {
		err = conn.(*net.TCPConn).SetReadBuffer(4096)
	}
	return conn, err
}

// FS-070: one of 100 stops reading while 5,000 messages go out. The others do not notice; the slow one is closed with 4408
// once it reads again, and its state is told when it comes back.
func TestFS070_SlowPeer(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{SendBufferBytes: 4096, CloseWait: patience, WriteTimeout: patience})
	slow, _, err := r.dial(1000, dialer{netDial: dialSmall})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	const others, messages = 99, 5000
	arrived := make(chan time.Duration, messages)
	sent := make([]atomic.Int64, messages)
	var readers sync.WaitGroup
	for user := int64(1); user <= others; user++ {
		c := r.connect(user)
		c.untilSynced()
		want := messages / others
		if user <= messages%others {
			want++
		}
		readers.Go(func() {
			for range want {
				f := c.next("result")
				arrived <- time.Duration(time.Now().UnixNano() - sent[f.Version].Load())
			}
		})
	}
	for i := range messages {
		sent[i].Store(time.Now().UnixNano())
		tok := fmt.Sprintf("tok-%d-0123456789012345678901234567890123456789", i)
		w.publish(result(1000, tok, int64(i), sale.StatusPaid), result(int64(i%others+1), tok, int64(i), sale.StatusPaid))
		if i%10 == 0 {
			time.Sleep(2 * time.Millisecond) // about 5,000 a second
		}
	}
	readers.Wait()
	close(arrived)
	var took []time.Duration
	for d := range arrived {
		took = append(took, d)
	}
	slices.Sort(took)
	if p99 := took[len(took)*99/100]; len(took) != messages || p99 > 200*time.Millisecond {
		t.Errorf("%d messages, p99 %v, want %d within 200 ms", len(took), p99, messages)
	}
	if got := r.metric(`seckill_push_dropped_total{reason="slow"}`); got != "1" {
		t.Errorf("slow sockets counted: %s, want 1", got)
	}
	c := &client{t: t, conn: slow, frames: make(chan frame, 10_000), closed: make(chan error, 1)}
	go c.read()
	if code := c.end(); code != 4408 {
		t.Errorf("the slow socket was closed with %d, want 4408", code)
	}
	w.change(func() { w.results = append(w.results, result(1000, "final", 1, sale.StatusPaid)) })
	if got := results(r.connect(1000).untilSynced()); !slices.Equal(got, []string{"final@1"}) {
		t.Errorf("after coming back: %v", got)
	}
}

// FS-070: a peer that never reads again costs its own connection after the write timeout, nothing else.
func TestFS070_PeerThatNeverReads(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{SendBufferBytes: 4096, WriteTimeout: 300 * time.Millisecond, QueueMessages: 1 << 20, QueueBytes: 1 << 30})
	conn, _, err := r.dial(1, dialer{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.NetConn().(*net.TCPConn).SetReadBuffer(4096)
	eventually(t, "registered and subscribed", func() bool { return r.hub.Sockets() == 1 && r.bus.Subscribed(r.hub.ShardOf(1)) })
	eventually(t, "cut off", func() bool {
		for i := range 1000 {
			w.publish(result(1, fmt.Sprintf("tok-%d-%d", i, time.Now().UnixNano()), 1, sale.StatusPaid))
		}
		return r.hub.Sockets() == 0 && r.ln.count() == 0
	})
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, conn.NetConn()); err != nil {
		t.Logf("the peer sees %v", err) // reset or end, as the kernel has it
	}
}

// FS-070: so it is when the frame that does not go out is the last one, and nothing else is to be written.
func TestFS070_LastFrameNeverGoesOut(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{SendBufferBytes: 4096, WriteTimeout: 300 * time.Millisecond, PingEvery: time.Hour, CatalogRefresh: time.Hour})
	conn, _, err := r.dial(1, dialer{netDial: dialSmall})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for synced := false; !synced; {
		_, data, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		synced = strings.Contains(string(data), `"synced"`)
	}
	live := sale.Live{ActivityID: testSale, State: sale.StateOpen}
	for i := range 50_000 {
		live.Items = append(live.Items, sale.Remaining{CommodityID: fmt.Sprintf("COMMODITY-%d", i), Units: 1})
	}
	r.bus.h.OnLive(live)
	eventually(t, "cut off", func() bool { return r.hub.Sockets() == 0 })
}

// FS-082: a proxy that closes what is silent leaves a quiet socket open, because the server pings sooner.
func TestFS082_PingsKeepQuietSocketsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{PingEvery: 100 * time.Millisecond, PeerTimeout: patience})
	px := newProxy(t, r.addr, 600*time.Millisecond)
	c := r.connectWith(1, dialer{addr: px.ln.Addr().String()})
	c.untilSynced()
	time.Sleep(1800 * time.Millisecond) // three times the limit, as 3 minutes are of 60 s
	w.publish(result(1, "tok", 1, sale.StatusPaid))
	if f := c.next("result"); f.RequestToken != "tok" {
		t.Errorf("got %v", f)
	}
}
