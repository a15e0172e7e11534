package hub

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Client is one connection of a user: a queue that the hub fills and a single writer empties.
//
// It is kept small, because there are many: lists run through it instead of maps around it, an empty queue holds no
// memory, and keys are kept as their hashes (two keys of one user meet once in 10^19).
type Client struct {
	shard *shard
	owner Owner
	user  int64

	// All that follows is guarded by the lock of the shard.
	nextOfUser             *Client
	sale                   *viewers
	prevViewer, nextViewer *Client

	queue    []entry
	messages int    // of the queue, those that count against the bounds
	bytes    int    // of those messages
	given    []mark // versions given to the writer, oldest first
	ended    error
	gone     bool
}

type kind uint8

const (
	kindMessage kind = iota // counts against the bounds
	kindState               // of a message that was asked for: as many as the user has keys
	kindLive                // the newest live state, at most one
	kindMark                // closes what was asked for, at most one
)

// entry is one message that waits.
type entry struct {
	kind    kind
	key     uint64
	version int64
	data    []byte
	at      int64
}

// mark is the version of a key that the writer was given.
type mark struct {
	key     uint64
	version int64
}

func keyOf(s string) uint64 { return xxhash.Sum64String(s) }

// UserID is whose client this is.
func (c *Client) UserID() int64 { return c.user }

// Shard is the number of the shard it belongs to.
func (c *Client) Shard() int { return c.shard.index }

// Owner is who gave the client to the hub.
func (c *Client) Owner() Owner { return c.owner }

// Next gives its single writer what to write next: data and the At of its message. No data and no error: there is
// nothing now, Wake will be called. An error says why the client has ended; nothing follows it.
func (c *Client) Next() (data []byte, at int64, err error) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.ended != nil {
		return nil, 0, c.ended
	}
	if len(c.queue) == 0 {
		return nil, 0, nil
	}
	e := c.queue[0]
	c.queue[0] = entry{}
	if c.queue = c.queue[1:]; len(c.queue) == 0 {
		c.queue = nil
	}
	switch e.kind {
	case kindMessage:
		c.messages--
		c.bytes -= len(e.data)
		c.remember(e.key, e.version)
	case kindState:
		c.remember(e.key, e.version)
	}
	return e.data, e.at, nil
}

// Err is why the client has ended, or nil.
func (c *Client) Err() error {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	return c.ended
}

// Tell queues a message that this client alone is to get: its state after a connect or, with again, after it asked for
// it, and then also a version it was given before. Other than Deliver it does not count against the bounds, since there
// are only as many as the user has keys. It reports false when the client has the message, or a newer one, or has ended.
func (c *Client) Tell(m Message, again bool) bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	return c.tell(keyOf(m.Key), m, again)
}

// tell is Tell with the lock held.
func (c *Client) tell(key uint64, m Message, again bool) bool {
	if v, ok := c.givenVersion(key); ok && (m.Version < v || m.Version == v && !again) {
		return false
	}
	return c.put(entry{kind: kindState, key: key, version: m.Version, data: m.Data, at: m.At})
}

// TellLive queues the live state for this client alone, as Broadcast does for all.
func (c *Client) TellLive(data []byte) bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	return c.put(entry{kind: kindLive, data: data})
}

// TellEnd queues data behind all that was told so far. One that still waits from before is dropped: it would say too
// early that everything has been told.
func (c *Client) TellEnd(data []byte) bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.queue = slices.DeleteFunc(c.queue, func(e entry) bool { return e.kind == kindMark })
	return c.put(entry{kind: kindMark, data: data})
}

// Close ends a client for a reason that Next will return. What waits is dropped. The first reason stands.
func (c *Client) Close(reason error) {
	if reason == nil {
		panic("BUG: a client is closed without a reason")
	}
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.end(reason)
}

// end is Close with the lock held.
func (c *Client) end(reason error) {
	if c.ended != nil {
		return
	}
	c.ended = reason
	c.queue, c.given, c.messages, c.bytes = nil, nil, 0, 0
	c.owner.Wake(true)
}

// deliver queues a message unless the client knows it, or ends the client as slow.
func (c *Client) deliver(key uint64, m Message) bool {
	if c.ended != nil {
		return false
	}
	if v, ok := c.givenVersion(key); ok && m.Version <= v {
		c.shard.hub.stale.Add(1)
		return false
	}
	return c.put(entry{kind: kindMessage, key: key, version: m.Version, data: m.Data, at: m.At})
}

// put adds an entry to the queue, or replaces the one of the same key that waits there.
func (c *Client) put(e entry) bool {
	if c.ended != nil {
		return false
	}
	if i := c.waiting(e); i >= 0 {
		old := &c.queue[i]
		if e.version < old.version || e.kind == kindMessage && e.version == old.version {
			c.shard.hub.stale.Add(1)
			return false
		}
		if old.kind == kindMessage {
			c.bytes += len(e.data) - len(old.data)
		}
		e.kind = old.kind
		*old = e
		return c.withinBounds()
	}
	if e.kind == kindMessage {
		c.messages++
		c.bytes += len(e.data)
	}
	c.queue = append(c.queue, e)
	if !c.withinBounds() {
		return false
	}
	if live := e.kind == kindLive; len(c.queue) == 1 || len(c.queue) == 2 && !live && c.queue[0].kind == kindLive {
		c.owner.Wake(!live)
	}
	return true
}

// waiting is where an entry waits that e replaces, or -1.
func (c *Client) waiting(e entry) int {
	message := e.kind == kindMessage || e.kind == kindState
	return slices.IndexFunc(c.queue, func(old entry) bool {
		if message {
			return (old.kind == kindMessage || old.kind == kindState) && old.key == e.key
		}
		return old.kind == e.kind
	})
}

func (c *Client) withinBounds() bool {
	o := &c.shard.hub.o
	if c.messages <= o.QueueMessages && c.bytes <= o.QueueBytes {
		return true
	}
	c.shard.hub.slow.Add(1)
	c.end(ErrSlow)
	return false
}

func (c *Client) givenVersion(key uint64) (int64, bool) {
	for i := range c.given {
		if c.given[i].key == key {
			return c.given[i].version, true
		}
	}
	return 0, false
}

// remember notes the version that the writer was given.
func (c *Client) remember(key uint64, version int64) {
	if i := slices.IndexFunc(c.given, func(m mark) bool { return m.key == key }); i >= 0 {
		c.given = slices.Delete(c.given, i, i+1)
	} else if len(c.given) >= c.shard.hub.o.RememberKeys {
		c.given = slices.Delete(c.given, 0, 1)
	}
	c.given = append(c.given, mark{key, version})
}
