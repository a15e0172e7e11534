package sale

import "time"

// Status is the state of a user's request or order as the user sees it.
type Status string

// Statuses. The first is undecided; the order statuses follow; sold_out and failed are refusals.
const (
	StatusProcessing     Status = "processing"
	StatusPendingPayment Status = "pending_payment"
	StatusPaid           Status = "paid"
	StatusCancelled      Status = "cancelled"
	StatusClosed         Status = "closed"
	StatusSoldOut        Status = "sold_out"
	StatusFailed         Status = "failed"
)

// Statuses that an order row may have, in the order of their tinyint (S16).
var orderStatuses = [...]Status{StatusPendingPayment, StatusPaid, StatusCancelled, StatusClosed}

// OrderStatus returns the status that a row's tinyint means, and false for an unknown number.
func OrderStatus(n int) (Status, bool) {
	if n < 0 || n >= len(orderStatuses) {
		return "", false
	}
	return orderStatuses[n], true
}

// Number is the tinyint of an order status: 0 pending payment, 1 paid, 2 cancelled, 3 closed; -1 for the others.
func (s Status) Number() int {
	for i, t := range orderStatuses {
		if s == t {
			return i
		}
	}
	return -1
}

// Valid reports whether s is one of the statuses above.
func (s Status) Valid() bool {
	return s.Number() >= 0 || s == StatusProcessing || s == StatusSoldOut || s == StatusFailed
}

// Reason says why a request failed or an order ended.
type Reason string

// Reasons.
const (
	ReasonParticipated Reason = "already_participated"
	ReasonBlocked      Reason = "blocked"
	ReasonSaleEnded    Reason = "sale_ended"
	ReasonInvalid      Reason = "invalid"
	ReasonExpired      Reason = "expired" // also: granted by Redis data that was lost and rebuilt since (R10)
	ReasonUser         Reason = "user"
)

// Result is the state of one request, the same over HTTP, sockets and in Redis. Version orders the states of one
// token: 0 while processing, 1 the decision, then the order row's (R4).
type Result struct {
	RequestToken string
	ActivityID   string
	CommodityID  string
	Quantity     int
	Status       Status
	Reason       Reason
	OrderNo      string
	PayBefore    time.Time // zero when there is none
	Version      int64
	PollAfter    time.Duration // when to ask again, while processing
}

// Order is one row of an order table.
type Order struct {
	OrderNo      string
	RequestToken string
	UserID       int64
	ActivityID   string
	CommodityID  string
	Quantity     int
	PayAmount    string // two places
	Status       Status
	Version      int64
	CreatedAt    time.Time
	PayBefore    time.Time
	PaidAt       time.Time // zero until paid
	ClosedAt     time.Time // zero until cancelled or closed
	ToldVersion  int64     // highest version confirmed in Redis (R8)
}

// Result is what the user is told of this order.
func (o *Order) Result() Result {
	r := Result{
		RequestToken: o.RequestToken, ActivityID: o.ActivityID, CommodityID: o.CommodityID, Quantity: o.Quantity,
		Status: o.Status, OrderNo: o.OrderNo, PayBefore: o.PayBefore, Version: o.Version,
	}
	switch o.Status {
	case StatusCancelled:
		r.Reason = ReasonUser
	case StatusClosed:
		r.Reason = ReasonExpired
	}
	return r
}

// UserResult is a Result with the user it is for.
type UserResult struct {
	UserID int64
	Result
}

// Remaining is the live stock of one item.
type Remaining struct {
	CommodityID string
	Units       int64
}

// Live is what every viewer of a sale is shown, and what gateways base their local answers on.
type Live struct {
	ActivityID string
	State      State
	Epoch      int64
	Seq        int64 // raised by every script that changes the sale (R13, R15)
	StartsAt   time.Time
	EndsAt     time.Time
	Items      []Remaining
	At         time.Time
}

// Units returns what is left of a commodity, and false when it is not known.
func (l *Live) Units(commodityID string) (int64, bool) {
	for _, it := range l.Items {
		if it.CommodityID == commodityID {
			return it.Units, true
		}
	}
	return 0, false
}
