package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// switchToxic is one toxic that stays in a link for its whole life and is switched between passing, delaying and
// swallowing. The library's own toxics are added to and removed from live links, and that can hang for good: the
// collection's lock is held while a toxic is waited for that waits for a writer which, its client gone, waits for the
// lock. This one can be interrupted wherever it waits, so switching it never hangs.
type switchToxic struct {
	Mode    faultMode `json:"mode"`
	DelayMS int64     `json:"delayMs"` // of each piece of data, in mode delay
}

// switchState is what the toxic keeps of one link while it is switched.
type switchState struct {
	pending *stream.StreamChunk // read and not yet passed on
	hole    bool                // something was swallowed: the stream cannot go on
}

// faultMode is what a switchToxic does. A number, because the library writes it while links read it.
type faultMode int

const (
	modePass faultMode = iota
	modeDelay
	modeSwallow
)

// toxicType is its name in the library's register.
const toxicType = "seckill_switch"

// writeLimit ends a link whose receiver is gone, so that nothing waits for it for ever.
const writeLimit = 30 * time.Second

// NewState makes the state of a link.
func (*switchToxic) NewState() any { return &switchState{} }

// Pipe passes data on in the mode that is set when it is called; a switch interrupts it and calls it again.
func (t *switchToxic) Pipe(stub *toxics.ToxicStub) {
	mode, delay := t.Mode, time.Duration(t.DelayMS)*time.Millisecond
	st := stub.State.(*switchState)
	for {
		if st.hole && mode != modeSwallow {
			endLink(stub)
			return
		}
		if st.pending == nil {
			select {
			case <-stub.Interrupt:
				return
			case st.pending = <-stub.Input:
			}
		}
		if st.pending == nil {
			stub.Close()
			return
		}
		if mode == modeSwallow {
			st.pending, st.hole = nil, true
			continue
		}
		if wait := delay - time.Since(st.pending.Timestamp); mode == modeDelay && wait > 0 {
			select {
			case <-time.After(wait):
			case <-stub.Interrupt:
				return
			}
		}
		select {
		case stub.Output <- st.pending:
			st.pending = nil
		case <-stub.Interrupt:
			return
		case <-time.After(writeLimit):
			endLink(stub)
			return
		}
	}
}

// endLink closes the connection's other half and takes what still comes, so that whoever sends it can end.
func endLink(stub *toxics.ToxicStub) {
	stub.Close()
	go func() {
		for c := range stub.Input {
			_ = c
		}
	}()
}

// faultProxy is a TCP proxy between one role and one server.
type faultProxy struct {
	t     *testing.T
	name  string
	proxy *toxiproxy.Proxy
}

// newFaultServer makes what the proxies of the library need; it opens no port.
func newFaultServer() *toxiproxy.ApiServer {
	toxics.Register(toxicType, new(switchToxic))
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
}

// newFaultProxy starts a proxy at an address; it passes everything.
func newFaultProxy(t *testing.T, server *toxiproxy.ApiServer, name, listen, upstream string) *faultProxy {
	t.Helper()
	p := &faultProxy{t: t, name: name, proxy: toxiproxy.NewProxy(server, name, listen, upstream)}
	for _, dir := range []stream.Direction{stream.Upstream, stream.Downstream} {
		body := `{"name":"` + dir.String() + `","type":"` + toxicType + `","stream":"` + dir.String() + `","attributes":{}}`
		if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.proxy.Start(); err != nil {
		t.Fatalf("proxy %s: %v", name, err)
	}
	t.Cleanup(p.proxy.Stop)
	return p
}

// set switches one direction: upstream is what the role sends, downstream what the server answers.
func (p *faultProxy) set(direction string, mode faultMode, delay time.Duration) {
	body, err := json.Marshal(map[string]any{"attributes": switchToxic{Mode: mode, DelayMS: delay.Milliseconds()}, "toxicity": 1})
	if err == nil {
		_, err = p.proxy.Toxics.UpdateToxicJson(direction, strings.NewReader(string(body)))
	}
	if err != nil {
		p.t.Errorf("proxy %s: %v", p.name, err)
	}
}

// cut closes all connections and refuses new ones until mend.
func (p *faultProxy) cut() { p.proxy.Stop() }

// mend listens again.
func (p *faultProxy) mend() {
	var err error
	for range 50 { // the port is free but for a moment
		if err = p.proxy.Start(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Errorf("proxy %s: %v", p.name, err)
}
