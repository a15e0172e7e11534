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
