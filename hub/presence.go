package hub

import "maps"

// Presence is who is there.
type Presence struct {
	Sockets int            // clients
	Users   int            // users with at least one client
	Viewers map[string]int // clients that look at a sale, by activity id
}

// Presence counts who is there. The shards are counted one after the other, so the sums of a busy hub are not exact.
func (h *Hub) Presence() Presence {
	var p Presence
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		p.Sockets += s.clients
		p.Users += len(s.users)
		s.mu.Unlock()
	}
	h.salesMu.Lock()
	defer h.salesMu.Unlock()
	p.Viewers = maps.Clone(h.viewers)
	return p
}

// Sockets is how many clients there are.
func (h *Hub) Sockets() int { return int(h.sockets.Load()) }

// Viewers is how many clients look at a sale.
func (h *Hub) Viewers(activityID string) int {
	h.salesMu.Lock()
	defer h.salesMu.Unlock()
	return h.viewers[activityID]
}

// Sales lists the sales that have viewers.
func (h *Hub) Sales() []string {
	h.salesMu.Lock()
	defer h.salesMu.Unlock()
	out := make([]string, 0, len(h.viewers))
	for id := range h.viewers {
		out = append(out, id)
	}
	return out
}

// ShardActive reports whether a shard has a client.
func (h *Hub) ShardActive(shard int) bool {
	s := &h.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients > 0
}

// Users lists the users of a shard, in no order.
func (h *Hub) Users(shard int) []int64 {
	s := &h.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]int64, 0, len(s.users))
	for id := range s.users {
		out = append(out, id)
	}
	return out
}

// AppendClients appends all clients, shard by shard, in no order.
func (h *Hub) AppendClients(out []*Client) []*Client {
	for i := range h.shards {
		out = h.shards[i].appendClients(out)
	}
	return out
}

func (s *shard) appendClients(out []*Client) []*Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.users {
		for ; c != nil; c = c.nextOfUser {
			out = append(out, c)
		}
	}
	return out
}

// Stats are counters since the start.
type Stats struct {
	Stale int64 // messages left out because the client had this version or a newer one
	Slow  int64 // clients ended as slow
}

// Stats returns the counters.
func (h *Hub) Stats() Stats {
	return Stats{Stale: h.stale.Load(), Slow: h.slow.Load()}
}
