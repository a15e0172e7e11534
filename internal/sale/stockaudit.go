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

// TokenCounts are the numbers of one sale that a dashboard and a backlog explanation need.
type TokenCounts struct {
	Epoch, Seq     int64
	Occupied       int64     // reserved, not yet decided
	Participants   int64     // users who hold a participation mark
	OldestOccupied time.Time // zero when none is occupied
}
