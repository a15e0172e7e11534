package hub

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// bell is an Owner that a writer can wait for.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) Wake(bool) {
	select {
	case b <- struct{}{}:
	default:
	}
}

func register(t *testing.T, h *Hub, user int64, viewing string) *Client {
	t.Helper()
	c, err := h.Register(user, viewing, newBell())
	if err != nil {
		t.Fatalf("register user %d: %v", user, err)
	}
	return c
}

// drain takes out all that waits.
func drain(t *testing.T, c *Client) []string {
	t.Helper()
	var got []string
	for {
		data, _, err := c.Next()
		if err != nil {
			t.Fatalf("client has ended: %v", err)
		}
		if data == nil {
			return got
		}
		got = append(got, string(data))
	}
}

func expect(t *testing.T, c *Client, want ...string) {
	t.Helper()
	if got := drain(t, c); !slices.Equal(got, want) {
		t.Fatalf("client got %q, want %q", got, want)
	}
}

func message(key string, version int64) Message {
	return Message{Key: key, Version: version, Data: fmt.Appendf(nil, "%s@%d", key, version)}
}

// The shard is part of the contract: publishers and load balancers compute it by themselves.
func TestShardOfIsXXHash64OfTheDecimalUserID(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	for range 1000 {
		user := rand.Int64()
		want := int(xxhash.Sum64String(strconv.FormatInt(user, 10)) % 16)
		if got := h.ShardOf(user); got != want {
			t.Fatalf("user %d: shard %d, want %d", user, got, want)
		}
	}
	// A fixed value, so that a change of the library is noticed: xxh64("1") = 0xb7b41276360564d4.
	if got := h.ShardOf(1); got != 4 {
		t.Errorf("user 1: shard %d, want 4", got)
	}
}

// R4, FS-084: a message that comes again or late never undoes a newer one, whether that still waits or was given before.
func TestFS084_OlderVersionNeverFollowsNewer(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	c := register(t, h, 1, "")
	h.Deliver(1, message("a", 1))
	h.Deliver(1, message("a", 0)) // late while the newer one waits
	h.Deliver(1, message("b", 0))
	h.Deliver(1, message("a", 2))
	expect(t, c, "a@2", "b@0")
	h.Deliver(1, message("a", 1)) // late after the newer one was given
	h.Deliver(1, message("a", 2)) // again
	h.Deliver(1, message("b", 0)) // again: version 0 is remembered too
	expect(t, c)
	h.Deliver(1, message("a", 3))
	expect(t, c, "a@3")
	if got := h.Stats().Stale; got != 4 {
		t.Errorf("%d stale messages counted, want 4", got)
	}
}

// FS-084 as a property: with any order of arrivals, repeats and reads, the versions of a key only grow, and the highest
// one arrives.
func TestVersionsOnlyGrow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 84))
		h := New(Options{})
		c := register(t, h, 1, "")
		highest, seen := map[string]int64{}, map[string]int64{}
		read := func() bool {
			data, version, err := c.Next()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if data == nil {
				return false
			}
			key := string(data)
			if last, ok := seen[key]; ok && version <= last {
				t.Fatalf("seed %d: key %s: version %d after %d", seed, key, version, last)
			}
			seen[key] = version
			return true
		}
		for range 200 {
			if rnd.IntN(3) == 0 {
				read()
				continue
			}
			key, version := strconv.Itoa(rnd.IntN(5)), rnd.Int64N(30)
			if last, ok := highest[key]; !ok || version > last {
				highest[key] = version
			}
			h.Deliver(1, Message{Key: key, Version: version, Data: []byte(key), At: version})
		}
		for read() {
		}
		for key, version := range highest {
			if seen[key] != version {
				t.Fatalf("seed %d: key %s: ended with version %d, want %d", seed, key, seen[key], version)
			}
		}
	}
}

// The memory for versions is bounded: the key given longest ago is forgotten first.
func TestRememberedKeysAreBounded(t *testing.T) {
	t.Parallel()
	h := New(Options{RememberKeys: 2})
	c := register(t, h, 1, "")
	for _, m := range []Message{message("a", 1), message("b", 1), message("a", 2), message("c", 1)} {
		h.Deliver(1, m)
		drain(t, c)
	} // b is forgotten: a was given again after it
	if len(c.given) != 2 {
		t.Fatalf("%d keys remembered, want 2", len(c.given))
	}
	h.Deliver(1, message("a", 0))
	expect(t, c)
	h.Deliver(1, message("b", 0))
	expect(t, c, "b@0")
}

// FS-070: a client that does not keep up is ended, by number or by bytes, and its queue is freed; nobody else notices.
func TestFS070_FullQueueEndsOnlyThatClient(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"messages": {QueueMessages: 3},
		"bytes":    {QueueBytes: 3 * len("k0@1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := New(o)
			slow, quick := register(t, h, 1, ""), register(t, h, 1, "")
			for i := range 3 {
				h.Deliver(1, message("k"+strconv.Itoa(i), 1))
			}
			h.Deliver(1, message("k1", 2)) // coalesces: no fourth message
			if got := drain(t, quick); len(got) != 3 {
				t.Fatalf("quick client got %q", got)
			}
			if n := h.Deliver(1, message("k3", 1)); n != 1 {
				t.Fatalf("queued for %d clients, want 1", n)
			}
			if _, _, err := slow.Next(); !errors.Is(err, ErrSlow) {
				t.Fatalf("slow client: %v, want ErrSlow", err)
			}
			expect(t, quick, "k3@1")
			if slow.queue != nil || h.Stats().Slow != 1 {
				t.Errorf("queue of the slow client holds %d, slow clients counted: %d", len(slow.queue), h.Stats().Slow)
			}
			if h.Deliver(1, message("k4", 1)) != 1 {
				t.Error("an ended client was given a message")
			}
		})
	}
}

// FS-070: the bound counts what waits, not what went through.
func TestBoundsFollowTheWriter(t *testing.T) {
	t.Parallel()
	h := New(Options{QueueMessages: 2, QueueBytes: 10})
	c := register(t, h, 1, "")
	for i := range 100 {
		h.Deliver(1, message("k", int64(2*i)))
		h.Deliver(1, message("l", int64(2*i)))
		h.Deliver(1, message("k", int64(2*i+1)))
		if got := drain(t, c); len(got) != 2 {
			t.Fatalf("round %d: got %q", i, got)
		}
	}
	if c.bytes != 0 || c.messages != 0 {
		t.Errorf("an empty queue counts %d messages, %d bytes", c.messages, c.bytes)
	}
}

// FS-074: a new tab does not replace the old one, and closing one does not remove the user. FS-076: nobody else gets it.
func TestFS074_SeveralSocketsOfOneUser(t *testing.T) {
	t.Parallel()
	h := New(Options{Shards: 1})
	a, b, c := register(t, h, 1, "S"), register(t, h, 1, ""), register(t, h, 1, "S")
	other := register(t, h, 2, "S")
	if n := h.Deliver(1, message("k", 1)); n != 3 {
		t.Fatalf("queued for %d, want 3", n)
	}
	for _, x := range []*Client{a, b, c} {
		expect(t, x, "k@1")
	}
	h.Unregister(b)
	if n := h.Deliver(1, message("k", 2)); n != 2 {
		t.Fatalf("queued for %d, want 2", n)
	}
	expect(t, a, "k@2")
	expect(t, c, "k@2")
	expect(t, other)
	if _, _, err := b.Next(); !errors.Is(err, ErrLeft) {
		t.Errorf("closed socket: %v, want ErrLeft", err)
	}
	h.Unregister(a)
	h.Unregister(c)
	if h.Online(1) || !h.Online(2) || h.Deliver(1, message("k", 3)) != 0 {
		t.Error("user 1 should be gone, user 2 not")
	}
}

func TestMaxSocketsPerUser(t *testing.T) {
	t.Parallel()
	h := New(Options{MaxSocketsPerUser: 2})
	a := register(t, h, 1, "S")
	register(t, h, 1, "S")
	if _, err := h.Register(1, "S", newBell()); !errors.Is(err, ErrTooMany) {
		t.Fatalf("third socket: %v, want ErrTooMany", err)
	}
	if h.Viewers("S") != 2 {
		t.Errorf("%d viewers, want 2", h.Viewers("S"))
	}
	register(t, h, 2, "S")
	h.Unregister(a)
	register(t, h, 1, "S")
}

// One live message waits for a client at most, the newest, and only for those who look at the sale.
func TestBroadcastCoalesces(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	viewer, other, none := register(t, h, 1, "A"), register(t, h, 2, "B"), register(t, h, 3, "")
	for i := range 1000 {
		if n := h.Broadcast("A", []byte(strconv.Itoa(i))); n != 1 {
			t.Fatalf("queued for %d, want 1", n)
		}
	}
	h.Deliver(1, message("k", 1))
	h.Broadcast("A", []byte("last"))
	expect(t, viewer, "last", "k@1")
	expect(t, other)
	expect(t, none)
}

// S29: what a client asked for comes although it was given before, older versions do not, and the end comes last.
func TestS29_TellRepeatsAndEndsLast(t *testing.T) {
	t.Parallel()
	h := New(Options{QueueMessages: 1})
	c := register(t, h, 1, "A")
	h.Deliver(1, message("k", 2))
	expect(t, c, "k@2")
	if c.Tell(message("k", 1), true) {
		t.Error("an older version was told")
	}
	if c.Tell(message("k", 2), false) {
		t.Error("a version given before was repeated unasked")
	}
	if !c.Tell(message("k", 2), true) {
		t.Error("the version given before was not repeated")
	}
	c.TellEnd([]byte("end"))
	for i := range 5 { // as many as there are, whatever the bound
		c.Tell(message("s"+strconv.Itoa(i), 1), false)
	}
	c.TellLive([]byte("live"))
	c.TellEnd([]byte("end"))
	h.Deliver(1, message("s0", 2))
	h.Deliver(1, message("n", 1))
	expect(t, c, "k@2", "s0@2", "s1@1", "s2@1", "s3@1", "s4@1", "live", "end", "n@1")
}

func TestFirstCloseReasonStands(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	c := register(t, h, 1, "A")
	reason := errors.New("expired")
	h.Deliver(1, message("k", 1))
	c.Close(reason)
	c.Close(ErrSlow)
	h.Unregister(c)
	if _, _, err := c.Next(); !errors.Is(err, reason) {
		t.Errorf("reason %v, want %v", err, reason)
	}
	if c.Tell(message("k", 1), true) || c.TellLive(nil) || c.TellEnd(nil) {
		t.Error("an ended client took something")
	}
}

// A hub without a client asks for no subscription: first and last are told, for shards and for sales.
func TestPresenceIsTold(t *testing.T) {
	t.Parallel()
	var h *Hub
	var told []string
	h = New(Options{
		Shards:  1,
		OnShard: func(i int) { told = append(told, fmt.Sprint("shard ", i, " ", h.ShardActive(i))) },
		OnSale:  func(id string) { told = append(told, fmt.Sprint("sale ", id, " ", h.Viewers(id))) },
	})
	a := register(t, h, 1, "A")
	b := register(t, h, 2, "A")
	p := h.Presence()
	if h.Sockets() != 2 || p.Sockets != 2 || p.Users != 2 || p.Viewers["A"] != 2 || len(h.AppendClients(nil)) != 2 || len(h.Users(0)) != 2 {
		t.Errorf("presence %+v", p)
	}
	h.Unregister(a)
	h.Unregister(b)
	h.Unregister(b)
	want := []string{"shard 0 true", "sale A 1", "shard 0 false", "sale A 0"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if p := h.Presence(); h.Sockets() != 0 || p.Sockets != 0 || p.Users != 0 || len(p.Viewers) != 0 || len(h.Sales()) != 0 || len(h.shards[0].sales) != 0 {
		t.Errorf("presence at the end %+v", p)
	}
}

// FS-067: 1,000 clients join and leave during broadcasts. Run with the race detector.
func TestFS067_JoinAndLeaveDuringBroadcast(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	stop := make(chan struct{})
	var casting, clients sync.WaitGroup
	casting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.Broadcast("A", []byte("live"))
				h.Deliver(int64(i%1000+1), message("k", int64(i)))
				h.Presence()
			}
		}
	})
	for i := range 1000 {
		clients.Go(func() {
			for range 5 {
				c, err := h.Register(int64(i+1), "A", newBell())
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if _, _, err := c.Next(); err != nil {
						t.Error(err)
					}
				}
				h.Unregister(c)
			}
		})
	}
	clients.Wait()
	close(stop)
	casting.Wait()
	if p := h.Presence(); h.Sockets() != 0 || p.Sockets != 0 || p.Users != 0 || len(p.Viewers) != 0 {
		t.Errorf("left over: %+v", p)
	}
}

// FS-068: a client is ended as slow in the same moment as it disconnects, 10,000 times: no panic, one reason, gone once.
func TestFS068_EvictionMeetsDisconnect(t *testing.T) {
	t.Parallel()
	h := New(Options{QueueMessages: 1, MaxSocketsPerUser: 1})
	for i := range 10_000 {
		c, err := h.Register(7, "A", newBell())
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			h.Deliver(7, message("a", 1))
			h.Deliver(7, message("b", 1))
		})
		both.Go(func() { h.Unregister(c) })
		h.Unregister(c)
		both.Wait()
		if _, _, err := c.Next(); !errors.Is(err, ErrSlow) && !errors.Is(err, ErrLeft) {
			t.Fatalf("round %d: ended with %v", i, err)
		}
	}
	if p := h.Presence(); h.Sockets() != 0 || p.Sockets != 0 || p.Users != 0 || len(p.Viewers) != 0 {
		t.Errorf("left over: %+v", p)
	}
}

// No wake-up is lost: a writer that sleeps whenever there is nothing gets the last version of every key.
func TestWriterIsWoken(t *testing.T) {
	t.Parallel()
	h := New(Options{QueueMessages: 1000})
	b := newBell()
	c, err := h.Register(1, "A", b)
	if err != nil {
		t.Fatal(err)
	}
	const keys, versions = 10, 2000
	go func() {
		for v := range int64(versions) {
			for k := range keys {
				h.Deliver(1, Message{Key: strconv.Itoa(k), Version: v, Data: []byte{byte(k)}, At: v})
			}
		}
	}()
	last := map[byte]int64{}
	for done := 0; done < keys; {
		data, version, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if data == nil {
			<-b
			continue
		}
		if last[data[0]] = version; version == versions-1 {
			done++
		}
	}
	h.Unregister(c)
	<-b // the end wakes it too
}

func BenchmarkDeliverAndNext(b *testing.B) {
	h := New(Options{})
	c, err := h.Register(1, "A", newBell())
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 300)
	b.ReportAllocs()
	for i := range b.N {
		h.Deliver(1, Message{Key: "k", Version: int64(i), Data: data})
		if _, _, err := c.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
