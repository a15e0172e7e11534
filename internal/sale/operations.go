package sale

import (
	"time"

	"github.com/shopspring/decimal"
)

// Payment is one callback of the shop's payment service.
type Payment struct {
	ID      string // of the payment service, at most MaxPaymentIDLength bytes
	OrderNo string
	Amount  decimal.Decimal
	PaidAt  time.Time
}

// MaxPaymentIDLength is the longest payment id, in bytes.
const MaxPaymentIDLength = 64

// PaymentOutcome says what a payment did.
type PaymentOutcome string

// Outcomes of a payment (S37).
const (
	PaymentPaid        PaymentOutcome = "paid"         // it paid the order; a repeat of the same callback too
	PaymentAlreadyPaid PaymentOutcome = "already_paid" // another payment had paid the order
	PaymentRefundDue   PaymentOutcome = "refund_due"   // too late, or not the order's amount
)

// RecordedPayment is a payment with what it did.
type RecordedPayment struct {
	Payment
	Outcome    PaymentOutcome
	ReceivedAt time.Time
}

// DeadLetter is a message that was parked.
type DeadLetter struct {
	ID        int64
	Topic     string
	Partition int
	Offset    int64
	Key       []byte
	Value     []byte
	Reason    string // malformed, commit
	Detail    string
	State     DeadLetterState
	Replays   int
	At        time.Time
}

// DeadLetterState is what an operator has done with a dead letter.
type DeadLetterState string

// States of a dead letter.
const (
	DeadParked    DeadLetterState = "parked"
	DeadReplayed  DeadLetterState = "replayed"
	DeadDiscarded DeadLetterState = "discarded"
)

// Waiter is one user in the waitlist of a commodity.
type Waiter struct {
	ActivityID  string
	CommodityID string
	UserID      int64
	JoinedAt    time.Time
}

// Step is one transition of a reservation, as the durable log has it (S9).
type Step struct {
	Token    string
	Version  int64 // 0 the reservation, 1 the decision, then as the order row
	UserID   int64
	From, To TokenState
	Status   Status
	Reason   string
	Role     string // of the process that did it
	Node     string
	TraceID  string
	At       time.Time
}

// Place is a user's place in a waitlist, to be told; position 0: no longer in it.
type Place struct {
	UserID      int64
	ActivityID  string
	CommodityID string
	Position    int64
	At          time.Time
}

// AuditReport compares Redis and the database for one sale (S25). It is OK when there is no difference.
type AuditReport struct {
	ActivityID  string
	Items       []AuditItem
	Differences []Difference
}

// OK reports whether nothing differed.
func (r *AuditReport) OK() bool { return len(r.Differences) == 0 }

// AuditItem is the balance of one item: RedisStock + Occupied + Returning + Sold = Total, and Orders = Sold.
type AuditItem struct {
	CommodityID string
	Total       int64
	RedisStock  int64 // -1 when the key is missing or no plain integer
	Occupied    int64 // units of reservations that are not decided, or refused and not yet given back
	Returning   int64 // units of cancelled and closed orders that Redis has not got back
	Sold        int64
	Orders      int64
}

// Difference is one thing on which Redis and the database disagree.
type Difference struct {
	Kind     string // stock, orders, order_without_mark, mark_without_order, decided_but_occupied, not_ready
	ID       string // the commodity, token or user
	Detail   string
	Repaired bool
}
