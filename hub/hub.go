package hub

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Errors that end a client, and refuse a new one.
var (
	ErrSlow    = errors.New("client is too slow")   // its queue was full
	ErrLeft    = errors.New("client has left")      // it was unregistered
	ErrTooMany = errors.New("too many connections") // the user has as many clients as allowed
)

// Options bound a Hub. The zero value of a bound means its default.
type Options struct {
	// Shards is into how many parts the registry is split: the same number for all roles of a deployment. Default 16.
	Shards int
	// QueueMessages is how many messages may wait for one client. Default 64.
	QueueMessages int
	// QueueBytes is how many bytes may wait for one client. Default 64 KiB.
	QueueBytes int
	// MaxSocketsPerUser is how many clients one user may have. Default 10.
	MaxSocketsPerUser int
	// RememberKeys is for how many keys a client remembers the version it was given last, 16 bytes each; the one
	// given longest ago is forgotten first. A user has one key in each sale. Default 64.
	RememberKeys int

	// OnShard says that a shard has got its first client or lost its last, OnSale that a sale has got its first viewer
	// or lost its last. They are called without a lock, so two calls for the same may come in any order: take them as a
	// hint to ask ShardActive or Viewers. They must be quick. Nil is not called.
	OnShard func(shard int)
	OnSale  func(activityID string)
}

func (o *Options) setDefaults() {
	for _, n := range []struct {
		v *int
		d int
	}{
		{&o.Shards, 16}, {&o.QueueMessages, 64}, {&o.QueueBytes, 64 << 10}, {&o.MaxSocketsPerUser, 10}, {&o.RememberKeys, 64},
	} {
		if *n.v <= 0 {
			*n.v = n.d
		}
	}
	if o.OnShard == nil {
		o.OnShard = func(int) {}
	}
	if o.OnSale == nil {
		o.OnSale = func(string) {}
	}
}

// Message is something to tell a user. The hub keeps Data as it is and shares it among clients: nobody may change it.
type Message struct {
	Key     string // messages of one key replace one another while they wait; a request token
	Version int64  // a message never follows one of the same key with a higher version
	Data    []byte
	At      int64 // free for the caller; Next gives it back
}

// Owner is told when its client has something to do. Wake is called under a lock: it must not block nor call the hub.
// urgent is false when nothing but the state of a sale waits, which may be written after all that is for one user alone.
type Owner interface {
	Wake(urgent bool)
}

// Hub is the registry. All methods are safe for concurrent use.
type Hub struct {
	o      Options
	shards []shard

	salesMu sync.Mutex
	viewers map[string]int // of each sale that has any, over all shards

	castMu sync.Mutex // one broadcast at a time, so that two of one sale reach every client in the same order

	sockets, stale, slow atomic.Int64
}

// shard is a part of the registry.
type shard struct {
	hub   *Hub
	index int

	mu      sync.Mutex
	clients int
	users   map[int64]*Client   // the first of each user's list
	sales   map[string]*viewers // who looks at a sale
}

// viewers is the list of one shard's clients that look at one sale.
type viewers struct {
	activityID string
	first      *Client
}

// New makes an empty Hub.
func New(o Options) *Hub {
	o.setDefaults()
	h := &Hub{o: o, shards: make([]shard, o.Shards), viewers: make(map[string]int)}
	for i := range h.shards {
		s := &h.shards[i]
		s.hub, s.index = h, i
		s.users, s.sales = make(map[int64]*Client), make(map[string]*viewers)
	}
	return h
}

// Shards is how many shards there are.
func (h *Hub) Shards() int { return len(h.shards) }

// ShardOf is the shard of a user: xxhash64 of the decimal user id, modulo the number of shards. Publishers and load
// balancers that hash the same way agree with it.
func (h *Hub) ShardOf(userID int64) int {
	var digits [20]byte
	return int(xxhash.Sum64(strconv.AppendInt(digits[:0], userID, 10)) % uint64(len(h.shards)))
}

// Register adds a client of a user. viewing is the sale whose live state it wants, or "". ErrTooMany: the user has
// MaxSocketsPerUser already.
func (h *Hub) Register(userID int64, viewing string, owner Owner) (*Client, error) {
	s := &h.shards[h.ShardOf(userID)]
	c := &Client{shard: s, user: userID, owner: owner}
	s.mu.Lock()
	n := 0
	for other := s.users[userID]; other != nil; other = other.nextOfUser {
		n++
	}
	if n >= h.o.MaxSocketsPerUser {
		s.mu.Unlock()
		return nil, ErrTooMany
	}
	c.nextOfUser = s.users[userID]
	s.users[userID] = c
	if viewing != "" {
		s.addViewer(c, viewing)
	}
	s.clients++
	first := s.clients == 1
	s.mu.Unlock()

	h.sockets.Add(1)
	if first {
		h.o.OnShard(s.index)
	}
	if viewing != "" {
		h.countViewer(viewing, +1)
	}
	return c, nil
}

// Unregister takes a client out and ends it with ErrLeft, if nothing has ended it before. Doing it again does nothing
// (FS-068).
func (h *Hub) Unregister(c *Client) {
	s := c.shard
	s.mu.Lock()
	if c.gone {
		s.mu.Unlock()
		return
	}
	c.gone = true
	c.end(ErrLeft)
	s.removeOfUser(c)
	viewing := ""
	if c.sale != nil {
		viewing = c.sale.activityID
		s.removeViewer(c)
	}
	s.clients--
	last := s.clients == 0
	s.mu.Unlock()

	h.sockets.Add(-1)
	if last {
		h.o.OnShard(s.index)
	}
	if viewing != "" {
		h.countViewer(viewing, -1)
	}
}

func (s *shard) removeOfUser(c *Client) {
	link := s.users[c.user]
	if link == c {
		if c.nextOfUser == nil {
			delete(s.users, c.user)
		} else {
			s.users[c.user] = c.nextOfUser
		}
		return
	}
	for ; link != nil; link = link.nextOfUser {
		if link.nextOfUser == c {
			link.nextOfUser = c.nextOfUser
			return
		}
	}
}

func (s *shard) addViewer(c *Client, activityID string) {
	v := s.sales[activityID]
	if v == nil {
		v = &viewers{activityID: activityID}
		s.sales[activityID] = v
	}
	c.sale, c.nextViewer = v, v.first
	if v.first != nil {
		v.first.prevViewer = c
	}
	v.first = c
}

func (s *shard) removeViewer(c *Client) {
	if c.prevViewer != nil {
		c.prevViewer.nextViewer = c.nextViewer
	} else {
		c.sale.first = c.nextViewer
	}
	if c.nextViewer != nil {
		c.nextViewer.prevViewer = c.prevViewer
	}
	if c.sale.first == nil {
		delete(s.sales, c.sale.activityID)
	}
	c.sale, c.prevViewer, c.nextViewer = nil, nil, nil
}

func (h *Hub) countViewer(activityID string, n int) {
	h.salesMu.Lock()
	h.viewers[activityID] += n
	now := h.viewers[activityID]
	if now == 0 {
		delete(h.viewers, activityID)
	}
	h.salesMu.Unlock()
	if now == 0 || now == 1 && n > 0 {
		h.o.OnSale(activityID)
	}
}

// Full reports whether a user has as many clients as allowed.
func (h *Hub) Full(userID int64) bool {
	s := &h.shards[h.ShardOf(userID)]
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := s.users[userID]; c != nil; c = c.nextOfUser {
		n++
	}
	return n >= h.o.MaxSocketsPerUser
}

// Online reports whether a user has a client here.
func (h *Hub) Online(userID int64) bool {
	s := &h.shards[h.ShardOf(userID)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[userID] != nil
}

// Deliver queues a message for every client of a user. A client that was given the same version of this key already,
// or a newer one, is left out. It returns for how many clients the message was queued.
func (h *Hub) Deliver(userID int64, m Message) int {
	s := &h.shards[h.ShardOf(userID)]
	key := keyOf(m.Key)
	queued := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := s.users[userID]; c != nil; c = c.nextOfUser {
		if c.deliver(key, m) {
			queued++
		}
	}
	return queued
}

// Restate is Deliver for a message that was read, not published: as Tell's, it does not count against the bounds, since there
// are only as many as the user has keys.
func (h *Hub) Restate(userID int64, m Message) int {
	s := &h.shards[h.ShardOf(userID)]
	key := keyOf(m.Key)
	queued := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := s.users[userID]; c != nil; c = c.nextOfUser {
		if c.tell(key, m, false) {
			queued++
		}
	}
	return queued
}

// Broadcast queues data for every viewer of a sale. What still waits from the broadcast before is replaced. It returns
// for how many clients it was queued.
func (h *Hub) Broadcast(activityID string, data []byte) int {
	h.castMu.Lock()
	defer h.castMu.Unlock()
	queued := 0
	for i := range h.shards {
		queued += h.shards[i].broadcast(activityID, data)
	}
	return queued
}

func (s *shard) broadcast(activityID string, data []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.sales[activityID]
	if v == nil {
		return 0
	}
	queued := 0
	for c := v.first; c != nil; c = c.nextViewer {
		if c.put(entry{kind: kindLive, data: data}) {
			queued++
		}
	}
	return queued
}
