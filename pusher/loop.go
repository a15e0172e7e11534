package pusher

import (
	"context"
	"sync"
)

// What may have happened to a socket. Its loop is told by bits, so that a thousand signals before it looks are one.
const (
	canRead    uint32 = 1 << iota // the peer has sent something, or is gone
	canWrite                      // the kernel takes bytes again
	hasMessage                    // the hub has something for this user alone, or the client has ended
	hasLive                       // the hub has the state of a sale
	pingDue
	detached // no loop works on it: not yet, or not any more
)

// urgentRun is how many sockets with something urgent are served before one that has a sale's state only.
const urgentRun = 32

// loop works on many sockets, one after the other; all that happens to a socket, reads, writes and its end, happens in
// its loop, so nothing of a socket needs a lock and two writers cannot meet (FS-066). A loop never waits for a socket:
// what cannot go on now goes on when its stream signals.
type loop struct {
	more chan struct{}

	mu     sync.Mutex
	urgent []*socket
	bulk   []*socket // with the state of a sale only

	in    []byte // a read's bytes, between two sockets nobody's
	out   []byte // a write's, likewise
	calls calls
}

func newLoop(readBytes int) *loop {
	l := &loop{more: make(chan struct{}, 1), in: make([]byte, readBytes)}
	l.calls.init()
	return l
}

// push has the loop look at a socket.
func (l *loop) push(s *socket, urgent bool) {
	l.mu.Lock()
	if urgent {
		l.urgent = append(l.urgent, s)
	} else {
		l.bulk = append(l.bulk, s)
	}
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func (l *loop) run(ctx context.Context) {
	var urgent, bulk queue
	for {
		l.mu.Lock()
		l.urgent = urgent.refill(l.urgent)
		l.bulk = bulk.refill(l.bulk)
		l.mu.Unlock()
		if urgent.empty() && bulk.empty() {
			select {
			case <-ctx.Done():
				return
			case <-l.more:
			}
			continue
		}
		for n := 0; n < urgentRun && !urgent.empty(); n++ {
			l.serve(urgent.pop())
		}
		if !bulk.empty() {
			l.serve(bulk.pop())
		}
	}
}

// serve handles all that was signalled for one socket.
func (l *loop) serve(s *socket) {
	if happened := s.events.Swap(0); happened&detached == 0 {
		if happened != 0 {
			s.handle(l, happened)
		}
	} else {
		s.events.Or(detached)
	}
}

// queue is a batch of sockets that a loop has taken over.
type queue struct {
	items []*socket
	next  int
}

func (q *queue) empty() bool { return q.next == len(q.items) }

func (q *queue) pop() *socket {
	s := q.items[q.next]
	q.items[q.next] = nil
	q.next++
	return s
}

// refill takes over what has come, once its own items are used up, and gives the used slice back for what will come.
func (q *queue) refill(came []*socket) (free []*socket) {
	if !q.empty() {
		return came
	}
	free = q.items[:0]
	q.items, q.next = came, 0
	return free
}
