package pusher

import "log/slog"

const (
	// unknownLimit is how many sockets are taken where the descriptor limit is not known.
	unknownLimit = 100_000
	// lowLimit is room for fewer sockets than a server should have.
	lowLimit = 4096
)

// maxSockets keeps the number of sockets below what the process may open, so that it refuses a socket too many with an
// answer instead of failing to accept it (FS-094). configured may be 0 for as many as possible.
func maxSockets(configured int, log *slog.Logger) int {
	limit, known := descriptorLimit()
	if !known {
		limit = 2 * unknownLimit
	}
	room := roomFor(limit)
	switch {
	case !known:
		room = unknownLimit
	case configured > room || configured == 0 && room < lowLimit:
		log.Warn("pusher: the descriptor limit is low for a server of sockets; raise ulimit -n", "limit", limit, "maxSockets", room,
			"configured", configured)
	}
	if configured > 0 {
		return min(configured, room)
	}
	return room
}

// roomFor is how many sockets fit below a descriptor limit: the rest is for listeners, Redis and the database.
func roomFor(limit int) int {
	return max(limit-max(256, limit/20), limit/2)
}
