package sale

import (
	"time"

	"github.com/shopspring/decimal"
)

// Reservation is a unit of stock set aside in Redis for one user, named by the request token. It is what travels
// through Kafka: everything the consumer needs and nothing large (S8).
type Reservation struct {
	Token       string // request token; it is also the stockPayToken of the message
	UserID      int64
	ActivityID  string
	CommodityID string
	Price       decimal.Decimal // seckill price of one unit
	Quantity    int
	Epoch       int64     // epoch of the Redis data that granted it (R10)
	At          time.Time // when it was granted
	Relays      int       // how often the reconciler has enqueued it again
	TraceID     string    // of the request whose gateway published it; empty when it was relayed
}

// TokenState is the state of a reservation in Redis.
type TokenState string

// States of a reservation: occupied -> committed | released, committed -> released (S9).
const (
	TokenOccupied  TokenState = "occupied"
	TokenCommitted TokenState = "committed"
	TokenReleased  TokenState = "released"
)

// CanBecome reports whether the token machine has this edge.
func (s TokenState) CanBecome(to TokenState) bool {
	switch s {
	case TokenOccupied:
		return to == TokenCommitted || to == TokenReleased
	case TokenCommitted:
		return to == TokenReleased
	}
	return false
}

// ReserveRequest is one order request, checked for its form, asking for stock.
type ReserveRequest struct {
	Token       string
	UserID      int64
	CommodityID string
	Quantity    int
}

// ReserveOutcome says what the pre-deduct script did with one request. Each has its own code in the script; none
// is nil (FS-010).
type ReserveOutcome string

// Outcomes of a pre-deduct.
const (
	ReserveAccepted      ReserveOutcome = "accepted"       // a unit is set aside; publish it
	ReserveRepeat        ReserveOutcome = "repeat"         // this token was used before by this user; Result tells its state
	ReserveMismatch      ReserveOutcome = "mismatch"       // this token was used before for another item or quantity
	ReserveParticipated  ReserveOutcome = "participated"   // this user takes part under another token: FirstToken
	ReserveSoldOut       ReserveOutcome = "sold_out"       // fewer units left than asked for
	ReserveNotStarted    ReserveOutcome = "not_started"    //
	ReserveEnded         ReserveOutcome = "ended"          //
	ReservePaused        ReserveOutcome = "paused"         //
	ReserveNotReady      ReserveOutcome = "not_ready"      // no usable stock in Redis: never "sold out" (FS-009)
	ReserveUnknownItem   ReserveOutcome = "unknown_item"   // the sale has no such commodity
	ReserveBlocked       ReserveOutcome = "blocked"        // user is on the blocked list
	ReserveNotEligible   ReserveOutcome = "not_eligible"   // the sale has an allow-list without this user
	ReserveRateLimited   ReserveOutcome = "rate_limited"   // the user's own window is full
	ReserveSaleLimited   ReserveOutcome = "sale_limited"   // the sale's window is full
	ReserveBadQuantity   ReserveOutcome = "bad_quantity"   // above the item's maxPerUser
	ReserveForeignHolder ReserveOutcome = "foreign_holder" // the token belongs to another user
)

// ReserveReply is the answer to one ReserveRequest.
type ReserveReply struct {
	Outcome     ReserveOutcome
	Reservation Reservation   // when accepted, or a repeat still occupied: what to publish
	Result      Result        // when accepted or a repeat: the state to tell
	FirstToken  string        // when participated: the token that counts
	RetryAfter  time.Duration // when a window is full
}

// Pending is a reservation read from Kafka, waiting for its decision.
type Pending struct {
	Reservation
	Partition int
	Offset    int64
	OrderNo   string // to use if it becomes an order
}

// Decision is what the database says about one reservation: an order or a refusal (R1).
type Decision struct {
	Reservation
	Ordered    bool
	Reason     Reason    // of a refusal, or why the order was cancelled or closed; else empty
	SoldOut    bool      // the refusal is "sold out at the database": its unit is not given back (R6)
	FirstToken string    // refused as already_participated: the token that counts
	OrderNo    string    // of an order
	Status     Status    // current status
	Version    int64     // 1 at the decision, then as the order row says
	PayBefore  time.Time // of an order
	Repeated   bool      // it had been decided before; tell it again all the same (R2)
}

// Result is what the user is told of this decision.
func (d *Decision) Result() Result {
	return Result{
		RequestToken: d.Token, ActivityID: d.ActivityID, CommodityID: d.CommodityID, Quantity: d.Quantity,
		Status: d.Status, Reason: d.Reason, OrderNo: d.OrderNo, PayBefore: d.PayBefore, Version: d.Version,
	}
}

// Settlement says what settling one decision in Redis found.
type Settlement string

// Outcomes of settle and return scripts (R5).
const (
	SettleDone    Settlement = "done"    // this call moved the token
	SettleAlready Settlement = "already" // it had been moved before
	SettleNotYet  Settlement = "not_yet" // occupied, unknown or sale not ready: try again later
	SettleUnknown Settlement = "unknown" // Redis did not know the token; its state was written back (R15)
	SettleGone    Settlement = "gone"    // the sale's keys are gone for good: nothing to move
	SettleStale   Settlement = "stale"   // a higher version was there already
)

// Return is a unit of a closed or cancelled order on its way back to stock.
type Return struct {
	Token       string
	UserID      int64
	ActivityID  string
	CommodityID string
	Quantity    int
	OrderNo     string
	Status      Status
	Version     int64
}

// Promotion is what became of the units of one Return that were offered to the waitlist.
type Promotion struct {
	Found        Settlement    // as of a return
	Epoch        int64         // the answer belongs to
	Reservations []Reservation // of those who got a unit, to be published
}

// Delivery is one message as a consumer gets it from Kafka. When Malformed is set, Pending holds only what could
// be read, at least partition and offset, and the message can never succeed.
type Delivery struct {
	Pending
	Malformed error
	Raw       []byte    // the message value, as it came
	Arrived   time.Time // broker time of the message
}
