package pusher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"seckill/hub"
	"seckill/internal/sale"
)

// Pusher is one pusher process.
type Pusher struct {
	cfg    Config
	users  Users
	states States
	checks map[string]func(context.Context) error
	jitter func() float64
	now    func() time.Time
	log    *slog.Logger

	hub        *hub.Hub
	loops      []*loop
	poller     *poller // nil: sockets have goroutines
	subs       *subscriptions
	reader     *reader
	refused    *refusals
	catalog    *catalog
	board      *board
	metrics    *metrics
	origins    origins
	addresses  *addresses
	upgrader   websocket.Upgrader
	server     *http.Server
	maxSockets int
	refusals   chan struct{} // sockets open only to be closed with a code

	mu       sync.Mutex
	draining bool
	leaving  map[*wire]struct{} // being closed
	open     sync.WaitGroup     // handshakes and sockets; none is added once draining is set
}

// New builds a pusher; Run serves it.
func New(cfg Config, d Deps) (*Pusher, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Jitter == nil {
		d.Jitter = rand.Float64
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	p := &Pusher{
		cfg: cfg, users: d.Users, states: d.States, checks: d.Checks, jitter: d.Jitter, now: d.Now, log: d.Log,
		maxSockets: maxSockets(cfg.MaxSockets, d.Log), refusals: make(chan struct{}, cfg.MaxRefusals),
		leaving: make(map[*wire]struct{}),
	}
	var err error
	if p.origins, err = newOrigins(cfg.Origins); err != nil {
		return nil, err
	}
	if p.addresses, err = newAddresses(cfg.MaxSocketsPerAddress, cfg.TrustedProxies); err != nil {
		return nil, err
	}
	if p.poller, err = newPoller(); err != nil {
		return nil, err
	}
	p.loops = loopsOf(&p.cfg)
	p.subs = newSubscriptions(cfg.UnsubscribeAfter, d.Log)
	p.hub = hub.New(hub.Options{
		Shards: cfg.Shards, QueueMessages: cfg.QueueMessages, QueueBytes: cfg.QueueBytes, MaxSocketsPerUser: cfg.MaxSocketsPerUser, RememberKeys: max(64, cfg.MaxSales),
		OnShard: func(int) { p.subs.changed() }, OnSale: func(string) { p.subs.changed() },
	})
	p.metrics = newMetrics(d.Metrics, p.hub)
	p.board = newBoard(p.hub, d.Now)
	p.catalog = newCatalog(&p.cfg, d.Ledger, d.Now)
	p.refused = newRefusals(&p.cfg, &d, p.catalog.sales, p.hub, p.metrics.found)
	p.reader = newReader(&p.cfg, &d, p.catalog, p.board, p.refused, p.hub, p.metrics.found,
		func(shard int) bool { return p.subs.sub.Subscribed(shard) })
	p.upgrader = websocket.Upgrader{
		HandshakeTimeout: cfg.HandshakeTimeout, ReadBufferSize: 125, WriteBufferSize: 1024, WriteBufferPool: &sync.Pool{}, EnableCompression: cfg.Compression,
		CheckOrigin: func(*http.Request) bool { return true }, // admit has checked it
		Error: func(w http.ResponseWriter, r *http.Request, _ int, _ error) {
			w.Header().Set("Sec-Websocket-Version", "13")
			p.writeProblem(w, r, refuse(http.StatusBadRequest, sale.CodeInvalidRequest, "this is no WebSocket handshake of version 13"))
		},
	}
	p.server = &http.Server{
		Handler: p.routes(d.Metrics), ReadHeaderTimeout: cfg.HandshakeTimeout, ReadTimeout: cfg.HandshakeTimeout, IdleTimeout: cfg.IdleTimeout,
		WriteTimeout: cfg.WriteTimeout, MaxHeaderBytes: cfg.MaxHeaderBytes, ErrorLog: slog.NewLogLogger(d.Log.Handler(), slog.LevelWarn),
	}
	p.subs.hub, p.subs.sub = p.hub, d.Subscriber(&Handler{p})
	return p, nil
}

// Presence is who is connected here.
func (p *Pusher) Presence() hub.Presence { return p.hub.Presence() }

// enter admits one handshake more, unless the pusher is draining.
func (p *Pusher) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return false
	}
	p.open.Add(1)
	return true
}

// leave is the end of a handshake or socket that enter admitted.
func (p *Pusher) leave() { p.open.Done() }

func (p *Pusher) isDraining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

// Run serves the listener until ctx ends, then stops in order: not ready, no new sockets, the open ones closed with 1012
// over DrainWindow, what is left cut off after grace. It returns nil after a clean stop.
func (p *Pusher) Run(ctx context.Context, ln net.Listener, grace time.Duration) error {
	work, stopWork := context.WithCancel(context.Background())
	defer stopWork()
	p.refresh(work, true) // so that the first sockets find it
	var workers sync.WaitGroup
	workers.Go(func() { p.keepFresh(work) })
	workers.Go(func() { p.board.run(work) })
	workers.Go(func() { p.subs.run(work) })
	workers.Go(func() { p.reader.reread(work) })
	workers.Go(func() { p.reader.check(work) })
	workers.Go(func() { p.refused.run(work) })
	for range p.cfg.Readers {
		workers.Go(func() { p.reader.answer(work) })
	}
	for _, l := range p.loops {
		workers.Go(func() { l.run(work) })
	}
	workers.Go(func() { p.sweep(work) })
	broken := make(chan error, 2)
	if p.poller != nil {
		workers.Go(func() { broken <- p.poller.run(work) })
	}
	go func() { broken <- p.server.Serve(listener{ln}) }()
	var err error
	select {
	case err = <-broken:
	case <-ctx.Done():
	}
	deadline := time.Now().Add(grace)
	late := p.drain(grace)
	stopCtx, cancel := context.WithDeadline(context.Background(), deadline.Add(time.Second))
	defer cancel()
	if down := p.server.Shutdown(stopCtx); down != nil {
		late = errors.Join(late, down, p.server.Close())
	}
	err = errors.Join(err, late)
	stopWork()
	workers.Wait()
	if closeErr := p.subs.sub.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("pusher: close subscriber: %w", closeErr))
	}
	return err
}

// drain ends all sockets.
func (p *Pusher) drain(grace time.Duration) error {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	end := time.NewTimer(grace)
	defer end.Stop()
	clients := p.hub.AppendClients(nil)
	// Clients come back with jitter of their own; the window keeps the first wave apart (FS-081).
	rand.Shuffle(len(clients), func(i, j int) { clients[i], clients[j] = clients[j], clients[i] })
	window := min(p.cfg.DrainWindow, grace/2)
	began := time.Now()
	for i, c := range clients {
		if due := window * time.Duration(i) / time.Duration(len(clients)); time.Since(began) < due {
			time.Sleep(time.Until(began.Add(due)))
		}
		c.Close(errRestart)
	}
	for _, c := range p.hub.AppendClients(nil) { // those whose handshake was under way
		c.Close(errRestart)
	}
	gone := make(chan struct{})
	go func() { p.open.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-end.C:
	}
	return fmt.Errorf("pusher: %d sockets did not close within %v", p.cutOff(), grace)
}

// cutOff closes the connections that are left, and counts them.
func (p *Pusher) cutOff() (n int) {
	p.mu.Lock()
	for w := range p.leaving {
		_ = w.Close()
		n++
	}
	p.mu.Unlock()
	for _, c := range p.hub.AppendClients(nil) {
		if s, ok := c.Owner().(*socket); ok {
			_ = s.wire.Close()
			n++
		}
	}
	return n
}

// keepFresh refreshes the catalog and the live states until ctx ends.
func (p *Pusher) keepFresh(ctx context.Context) {
	tick := time.NewTicker(p.cfg.CatalogRefresh)
	defer tick.Stop()
	loaded := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		reload := time.Since(loaded) >= p.cfg.CatalogReload || !p.catalog.loaded()
		if reload {
			loaded = time.Now()
		}
		p.refresh(ctx, reload)
	}
}

// refresh reads the activities, if they are due, and the live state of those that are on or viewed.
func (p *Pusher) refresh(ctx context.Context, reload bool) {
	if reload {
		if err := p.catalog.reload(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("pusher: catalog", "err", err)
		}
	}
	ids := union(p.catalog.sales(), p.hub.Sales())
	if len(ids) == 0 {
		return
	}
	began := p.now()
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StoreTimeout)
	defer cancel()
	lives, err := p.states.Live(ctx, ids)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.log.Warn("pusher: live states", "err", err)
		}
		return
	}
	rebuilt := false
	for id, l := range lives {
		rebuilt = p.board.read(l, p.catalog.state(id), began) || rebuilt
	}
	if rebuilt {
		p.rereadAll()
	}
	p.board.keep(ids)
}

// rereadAll has the users of all shards read again: results may have been told while Redis had no data (R10).
func (p *Pusher) rereadAll() {
	var shards []int
	for i := range p.hub.Shards() {
		if p.hub.ShardActive(i) {
			shards = append(shards, i)
		}
	}
	p.reader.again(shards...)
}

func union(a, b []string) []string {
	seen := make(map[string]bool, len(a)+len(b))
	var out []string
	for _, list := range [][]string{a, b} {
		for _, s := range list {
			if !seen[s] {
				seen[s] = true
				out = append(out, s)
			}
		}
	}
	return out
}
