package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/gorilla/websocket"

	"seckill/internal/auth"
	"seckill/internal/push"
)

// pushJob is what one client process of the push bench does: it holds sockets and notes when results arrive. It reads
// the job and then commands, a line each, and answers by lines of JSON.
type pushJob struct {
	Addr      string // of the pusher
	Activity  string
	Secret    []byte // of HS256
	Process   int    // which of the pushers it is
	Processes int
	Sockets   int
	Dialers   int // connecting at once
	Network   int // sockets come from 127.Network.x.y
}

// pushReport is an answer of a worker.
type pushReport struct {
	Connected int                    `json:"connected,omitempty"` // synced sockets
	Took      time.Duration          `json:"took,omitempty"`      // to connect and sync them all
	Received  int64                  `json:"received,omitempty"`  // results since the start
	Lost      int64                  `json:"lost,omitempty"`      // sockets that ended
	Synced    int64                  `json:"synced,omitempty"`    // sockets that have been told their state
	Error     string                 `json:"error,omitempty"`
	Latency   *hdrhistogram.Snapshot `json:"latency,omitempty"` // of results: microseconds, since the last report
	Live      *hdrhistogram.Snapshot `json:"live,omitempty"`    // ages of live states: the same
}

// usersOf lists n users of one of several pushers, as a load balancer that hashes by u spreads them: each hub shard is at
// one pusher.
func usersOf(process, processes, n int) []int64 {
	users := make([]int64, 0, n)
	for user := int64(1); len(users) < n; user++ {
		if push.ShardOf(user, push.DefaultShards)%processes == process {
			users = append(users, user)
		}
	}
	return users
}

// socketsPerAddress keeps each source address far from the end of its ports.
const socketsPerAddress = 500

type pushWorker struct {
	job      pushJob
	users    []int64
	dialer   websocket.Dialer
	received atomic.Int64
	lost     atomic.Int64
	synced   atomic.Int64

	mu      sync.Mutex
	latency *hdrhistogram.Histogram
	live    *hdrhistogram.Histogram
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

// PushWorker is the body of a client process.
func PushWorker(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return fmt.Errorf("no job: %w", lines.Err())
	}
	w := &pushWorker{latency: newHistogram(), live: newHistogram()}
	if err := json.Unmarshal(lines.Bytes(), &w.job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	w.users = usersOf(w.job.Process, w.job.Processes, w.job.Sockets)
	w.dialer = websocket.Dialer{HandshakeTimeout: 20 * time.Second, ReadBufferSize: 512, WriteBufferSize: 256, WriteBufferPool: &sync.Pool{}}
	answer := json.NewEncoder(out)
	began := time.Now()
	err := w.connectAll(ctx)
	first := pushReport{Connected: w.job.Sockets, Took: time.Since(began)}
	if err != nil {
		first.Error = err.Error()
	}
	if err := answer.Encode(first); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	for lines.Scan() {
		r := pushReport{Received: w.received.Load(), Lost: w.lost.Load(), Synced: w.synced.Load()}
		if lines.Text() == "report" {
			w.mu.Lock()
			r.Latency = w.latency.Export()
			r.Live = w.live.Export()
			w.latency, w.live = newHistogram(), newHistogram()
			w.mu.Unlock()
		}
		if err := answer.Encode(r); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return nil
}

// connectAll opens all sockets, some at a time, and returns when each has been told its state.
func (w *pushWorker) connectAll(life context.Context) error {
	ctx, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	next := make(chan int)
	var dialers sync.WaitGroup
	for range w.job.Dialers {
		dialers.Go(func() {
			for i := range next {
				if err := w.connect(life, i); err != nil {
					cancel(fmt.Errorf("socket %d: %w", i, err))
				}
			}
		})
	}
	for i := range w.job.Sockets {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	dialers.Wait()
	return context.Cause(ctx)
}

func (w *pushWorker) connect(ctx context.Context, i int) error {
	user := w.users[i]
	token, err := auth.SignHS256(w.job.Secret, user, "", "", time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	d := w.dialer
	block := i / socketsPerAddress
	local := &net.TCPAddr{IP: net.IPv4(127, byte(w.job.Network), byte(block/250), byte(1+block%250))}
	d.NetDialContext = (&net.Dialer{LocalAddr: local}).DialContext
	conn, resp, err := d.DialContext(ctx, "ws://"+w.job.Addr+"/v1/ws?activity="+w.job.Activity, http.Header{"Authorization": {"Bearer " + token}})
	if resp != nil && resp.Body != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	if err != nil {
		if resp != nil {
			return fmt.Errorf("status %d: %w", resp.StatusCode, err)
		}
		return err
	}
	synced := make(chan error, 1)
	go func() {
		if told := w.listen(conn, synced); told {
			w.comeBack(ctx, i)
		}
	}()
	select {
	case err := <-synced:
		return err
	case <-time.After(30 * time.Second):
		return fmt.Errorf("user %d is not synced", user)
	}
}

// listen notes what arrives until the socket ends, and reports whether it had been told its state. A result's order number is
// the time at which it was due.
func (w *pushWorker) listen(conn *websocket.Conn, synced chan<- error) (told bool) {
	defer func() { _ = conn.Close() }()
	buf := make([]byte, 0, 512)
	for {
		_, r, err := conn.NextReader()
		if err != nil {
			w.end(told, synced, err)
			return told
		}
		b := bytes.NewBuffer(buf[:0])
		if _, err := b.ReadFrom(r); err != nil {
			w.end(told, synced, err)
			return told
		}
		buf = b.Bytes()
		switch {
		case bytes.HasPrefix(buf, []byte(`{"type":"result"`)):
			if due, ok := number(buf, `"orderNo":"`); ok {
				w.received.Add(1)
				w.note(&w.latency, time.Now().UnixNano()-due)
			}
		case bytes.HasPrefix(buf, []byte(`{"type":"activity"`)):
			if at, ok := number(buf, `"serverTime":`); ok && told { // the first is of the connect
				w.note(&w.live, time.Now().UnixNano()-at*int64(time.Millisecond))
			}
		case bytes.HasPrefix(buf, []byte(`{"type":"synced"`)):
			if !told {
				told = true
				w.synced.Add(1)
				synced <- nil
			}
		}
	}
}

// number reads the one behind a piece of JSON.
func number(frame []byte, behind string) (n int64, ok bool) {
	_, rest, _ := bytes.Cut(frame, []byte(behind))
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(rest[:end]), 10, 64)
	return n, err == nil
}

func (w *pushWorker) note(h **hdrhistogram.Histogram, nanos int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = (*h).RecordValue(min(max(1, nanos/1000), time.Minute.Microseconds()))
}

// end is the end of a socket.
func (w *pushWorker) end(told bool, synced chan<- error, err error) {
	w.lost.Add(1)
	if told {
		w.synced.Add(-1)
	} else {
		synced <- err
	}
}

// comeBack connects a lost socket again as the JavaScript client does: after anything between nothing and a window that
// doubles.
func (w *pushWorker) comeBack(ctx context.Context, i int) {
	for window := time.Second; ctx.Err() == nil; window = min(2*window, 30*time.Second) {
		time.Sleep(time.Duration(rand.Int64N(int64(window))))
		if w.connect(ctx, i) == nil {
			return
		}
	}
}
