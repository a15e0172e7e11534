package ledger_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// commitCut says what the proxy does to the next COMMIT it sees.
type commitCut int

const (
	pass       commitCut = iota
	cutBefore            // the server never gets it
	cutAfter             // the server has answered, the client never hears it
	cutMidWait           // the server gets it; the client is cut off at once
)

// proxy stands between a ledger and its server and can cut connections.
type proxy struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	next  commitCut
	cuts  int
	conns map[net.Conn]bool
}

// newProxy returns a proxy for the server of a DSN, and the DSN through it.
func newProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: cfg.Addr, conns: map[net.Conn]bool{}}
	cfg.Addr = ln.Addr().String()
	t.Cleanup(func() { _ = ln.Close(); p.cutAll() })
	go p.accept()
	return p, cfg.FormatDSN()
}

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		s := &session{p: p, client: client, server: server, answered: make(chan struct{})}
		go s.toClient()
		go s.toServer()
	}
}

// cutAll closes every connection, as a server does that restarts or a firewall that forgets.
func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// arm sets the fate of the next COMMIT.
func (p *proxy) arm(c commitCut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = c
}

// done reports how many COMMITs were cut.
func (p *proxy) done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *proxy) fate() commitCut {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.next
	if p.next = pass; c != pass {
		p.cuts++
	}
	return c
}

// session is one connection through the proxy.
type session struct {
	p              *proxy
	client, server net.Conn
	mu             sync.Mutex
	mute           bool // do not let the client hear any more
	answered       chan struct{}
	once           sync.Once
}

func (s *session) close() { _ = s.client.Close(); _ = s.server.Close() }

func (s *session) toClient() {
	defer s.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := s.server.Read(buf)
		s.mu.Lock()
		mute := s.mute
		s.mu.Unlock()
		if mute {
			s.once.Do(func() { close(s.answered) })
			return
		}
		if err != nil {
			return
		}
		if _, err := s.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// toServer forwards packet by packet: three bytes of length, one of sequence, the payload.
func (s *session) toServer() {
	defer s.close()
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(s.client, head); err != nil {
			return
		}
		payload := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if _, err := io.ReadFull(s.client, payload); err != nil {
			return
		}
		cut := pass
		if bytes.Equal(payload, []byte("\x03COMMIT")) {
			cut = s.p.fate()
		}
		if cut == cutBefore {
			return
		}
		if cut != pass {
			s.mu.Lock()
			s.mute = true
			s.mu.Unlock()
		}
		if _, err := s.server.Write(append(head, payload...)); err != nil {
			return
		}
		switch cut {
		case cutAfter:
			<-s.answered
			return
		case cutMidWait:
			_ = s.client.Close()
			<-s.answered
			return
		}
	}
}
