package sale

import "time"

// StockAudit is one consistent look at what Redis holds of a sale (R13).
type StockAudit struct {
	Epoch, Seq int64
	Ready      bool                  // false: no meta, or being rebuilt
	Stock      map[string]int64      // units by commodity; absent when the key is missing or no plain integer
	Occupied   []Reservation         // tokens in state occupied, oldest first
	Truncated  bool                  // there are more occupied tokens than were listed
	Closed     map[string]TokenState // states of the tokens that were asked for; absent when Redis does not know one
}

// Sighting is how far a sale in Redis was when somebody looked. Of two of one epoch the later has the higher number, and
// both are of one server; else Redis has gone back in between (R15).
type Sighting struct {
	Epoch, Seq int64
	Server     string // run id, at most 64 ASCII bytes; "" when the server does not tell
}

// Behind reports whether Redis has gone back since an earlier sighting.
func (s Sighting) Behind(before Sighting) bool {
	if s.Epoch != before.Epoch {
		return s.Epoch < before.Epoch
	}
	return s.Seq < before.Seq || s.Server != "" && before.Server != "" && s.Server != before.Server
}

// TokenCounts are the numbers of one sale that a dashboard and a backlog explanation need.
type TokenCounts struct {
	Epoch, Seq     int64
	Occupied       int64     // reserved, not yet decided
	Participants   int64     // users who hold a participation mark
	OldestOccupied time.Time // zero when none is occupied
}
