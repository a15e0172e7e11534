// Command floor is the plainest server of sockets that gorilla/websocket makes possible with care: one goroutine a
// socket that reads, pooled write buffers, small read buffers, no queue, no state, no protection from slow peers. What
// the pusher costs is compared with it, measured by the same client in the same run.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"seckill/internal/auth"
	"seckill/internal/push"
	"seckill/internal/sale"
	"seckill/internal/telemetry"
)

const (
	pingEvery    = 25 * time.Second
	writeTimeout = 10 * time.Second
	shards       = 16
)

type floor struct {
	users    *auth.Verifier
	upgrader websocket.Upgrader

	mu    sync.RWMutex
	conns map[int64]*conn
}

type conn struct {
	mu sync.Mutex
	ws *websocket.Conn
}

func main() {
	process, processes := flag.Int("process", 0, "which of the processes it is"), flag.Int("processes", 1, "that share the users")
	addr, redisAddr, secret := flag.String("addr", "", "listen here"), flag.String("redis", "", "host:port"), flag.String("secret", "", "of HS256")
	flag.Parse()
	users, err := auth.NewVerifier(context.Background(), auth.JWTOptions{Secret: []byte(*secret), CacheSize: 1000})
	if err != nil {
		log.Fatal(err)
	}
	f := &floor{users: users, conns: map[int64]*conn{}, upgrader: websocket.Upgrader{
		ReadBufferSize: 128, WriteBufferSize: 1024, WriteBufferPool: &sync.Pool{},
	}}
	sub := push.NewSubscriber(redis.NewClient(&redis.Options{Addr: *redisAddr}), push.Options{OnResults: f.deliver})
	for i := *process; i < shards; i += *processes {
		if err := sub.Subscribe(context.Background(), i); err != nil {
			log.Fatal(err)
		}
	}
	go f.ping()
	http.HandleFunc("/v1/ws", f.serve)
	http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	http.Handle("/metrics", promhttp.HandlerFor(telemetry.NewRegistry(), promhttp.HandlerOpts{}))
	log.Fatal((&http.Server{Addr: *addr, ReadHeaderTimeout: 5 * time.Second}).ListenAndServe())
}

func (f *floor) serve(w http.ResponseWriter, r *http.Request) {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	who, err := f.users.Verify(token)
	if err != nil {
		http.Error(w, "token", http.StatusUnauthorized)
		return
	}
	ws, err := f.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	c := &conn{ws: ws}
	f.mu.Lock()
	f.conns[who.UserID] = c
	f.mu.Unlock()
	c.write([]byte(`{"type":"synced"}`))
	go f.read(who.UserID, c) // a new goroutine, so that the grown stack of this one goes
}

func (f *floor) read(user int64, c *conn) {
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			break
		}
	}
	f.mu.Lock()
	delete(f.conns, user)
	f.mu.Unlock()
	_ = c.ws.Close()
}

func (f *floor) deliver(_ int, rs []sale.UserResult) {
	for i := range rs {
		f.mu.RLock()
		c := f.conns[rs[i].UserID]
		f.mu.RUnlock()
		if c != nil {
			c.write(push.EncodeResult(rs[i].Result))
		}
	}
}

func (f *floor) ping() {
	for range time.Tick(pingEvery) {
		f.mu.RLock()
		all := make([]*conn, 0, len(f.conns))
		for _, c := range f.conns {
			all = append(all, c)
		}
		f.mu.RUnlock()
		for i, c := range all {
			if err := c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)); err != nil {
				_ = c.ws.Close()
			}
			if i%100 == 99 {
				time.Sleep(pingEvery * 50 / time.Duration(len(all))) // half of the time between two rounds in all
			}
		}
	}
}

func (c *conn) write(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := c.ws.WriteMessage(websocket.TextMessage, data); err != nil {
		_ = c.ws.Close()
	}
}
