package sale

import "time"

// Presence is who is connected to one pusher.
type Presence struct {
	Node    string         // of the pusher, unique
	Sockets int            // WebSockets and event streams
	Users   int            // with at least one of them
	Viewers map[string]int // sockets that look at a sale, by activity id
	At      time.Time      // when it was counted
}
