package sale

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shopspring/decimal"
)

// State is the state of an activity as clients see it.
type State string

// States of an activity. Open and not_ready are never stored in the database: open follows from scheduled and
// the clock, not_ready from what Redis holds.
const (
	StateDraft     State = "draft"     // created, not warmed up
	StateScheduled State = "scheduled" // warmed up, before its start
	StateOpen      State = "open"      // selling
	StatePaused    State = "paused"    // stopped by an operator, can resume
	StateNotReady  State = "not_ready" // its stock is being rebuilt in Redis
	StateEnded     State = "ended"     // past its end; orders may still be pending
	StateSettled   State = "settled"   // everything decided, paid or closed
)

// Bounds of what an operator may create.
const (
	MaxItems       = 100           // items of one activity
	MaxTitleLength = 120           // characters of a title
	MaxStock       = 1_000_000_000 // units of one item
	MaxQuantity    = 100           // units of one order
	// DefaultRetention is how long Redis keys outlive the last possible payment (R16).
	DefaultRetention = 24 * time.Hour
	// DefaultPayWithin is the time a buyer has to pay.
	DefaultPayWithin = 15 * time.Minute
	// DefaultCloseGrace is the wait after the end before all unpaid orders close (S23).
	DefaultCloseGrace = 5 * time.Minute
	// DefaultWaitlistAfterEnd is how long promotion goes on after the end (R16).
	DefaultWaitlistAfterEnd = 30 * time.Minute
)

// reservedID is no activity: its Redis keys hold what all sales share.
const reservedID = "system"

// Item is one commodity on sale in an activity.
type Item struct {
	CommodityID string
	Title       string
	Price       decimal.Decimal // for one unit
	Total       int64           // units put on sale
	Sold        int64           // sold_count of the database: units in orders that are neither cancelled nor closed
	MaxPerUser  int             // largest quantity of one order
}

// Activity is one sale: a window of time in which its items sell at their prices.
type Activity struct {
	ID            string
	Title         string
	StartsAt      time.Time
	EndsAt        time.Time     // exclusive
	PayWithin     time.Duration // from acceptance to the pay deadline
	CloseGrace    time.Duration // after EndsAt, before all unpaid orders close
	WaitlistUntil time.Time     // promotion stops here
	AllowList     bool          // only users of the eligible list may buy
	State         State         // stored: draft, scheduled, paused, ended or settled
	Epoch         int64         // raised by each rebuild of Redis (R10)
	Items         []Item
}

// Item returns the item with this commodity id, or nil.
func (a *Activity) Item(commodityID string) *Item {
	for i := range a.Items {
		if a.Items[i].CommodityID == commodityID {
			return &a.Items[i]
		}
	}
	return nil
}

// StateAt is the state a client sees at this moment, as far as the database and the clock can tell.
func (a *Activity) StateAt(now time.Time) State {
	switch a.State {
	case StateScheduled:
		if !now.Before(a.EndsAt) {
			return StateEnded
		}
		if !now.Before(a.StartsAt) {
			return StateOpen
		}
	case StatePaused:
		if !now.Before(a.EndsAt) {
			return StateEnded
		}
	}
	return a.State
}

// PayBefore is the pay deadline of an order decided now whose reservation was made at reserved: within PayWithin
// of the reservation, at most the end plus grace; an order decided later than that gets PayWithin from now (R16).
func (a *Activity) PayBefore(reserved, now time.Time) time.Time {
	deadline := reserved.Add(a.PayWithin)
	if last := a.EndsAt.Add(a.CloseGrace); deadline.After(last) {
		deadline = last
	}
	if !deadline.After(now) {
		return now.Add(a.PayWithin)
	}
	return deadline
}

// KeysUntil is when the Redis keys of this activity may go: the last ordinary pay deadline plus retention.
func (a *Activity) KeysUntil(retention time.Duration) time.Time {
	last := a.EndsAt.Add(a.CloseGrace)
	if a.WaitlistUntil.After(last) {
		last = a.WaitlistUntil
	}
	return last.Add(a.PayWithin).Add(retention)
}

// Validate checks what an operator gave, and returns a message that names the field at fault.
func (a *Activity) Validate() error {
	if !ValidID(a.ID) || a.ID == reservedID {
		return fmt.Errorf("activityId: must match [A-Za-z0-9_-]{1,32}, and not be %q", reservedID)
	}
	if err := validTitle("title", a.Title); err != nil {
		return err
	}
	if a.StartsAt.IsZero() || a.EndsAt.IsZero() || !a.EndsAt.After(a.StartsAt) {
		return fmt.Errorf("endsAt: must be after startsAt")
	}
	if a.PayWithin < time.Second || a.PayWithin > 7*24*time.Hour {
		return fmt.Errorf("payWithin: must be between 1s and 168h")
	}
	if a.CloseGrace < 0 || a.CloseGrace > 7*24*time.Hour {
		return fmt.Errorf("closeGrace: must be between 0s and 168h")
	}
	if a.WaitlistUntil.Before(a.EndsAt) && !a.WaitlistUntil.IsZero() {
		return fmt.Errorf("waitlistUntil: must not be before endsAt")
	}
	if len(a.Items) == 0 || len(a.Items) > MaxItems {
		return fmt.Errorf("items: must hold 1 to %d items", MaxItems)
	}
	seen := make(map[string]bool, len(a.Items))
	for i := range a.Items {
		if err := a.Items[i].validate(); err != nil {
			return fmt.Errorf("items[%d].%w", i, err)
		}
		if seen[a.Items[i].CommodityID] {
			return fmt.Errorf("items[%d].commodityId: appears twice", i)
		}
		seen[a.Items[i].CommodityID] = true
	}
	return nil
}

func (it *Item) validate() error {
	if !ValidID(it.CommodityID) {
		return fmt.Errorf("commodityId: must match [A-Za-z0-9_-]{1,32}")
	}
	if err := validTitle("title", it.Title); err != nil {
		return err
	}
	if it.Total < 1 || it.Total > MaxStock {
		return fmt.Errorf("total: must be between 1 and %d", MaxStock)
	}
	if it.MaxPerUser < 1 || it.MaxPerUser > MaxQuantity {
		return fmt.Errorf("maxPerUser: must be between 1 and %d", MaxQuantity)
	}
	if it.Price.IsNegative() || !it.Price.Equal(it.Price.Truncate(2)) {
		return fmt.Errorf("price: %w", ErrBadMoney)
	}
	if _, err := Amount(it.Price, it.MaxPerUser); err != nil {
		return fmt.Errorf("price: %w", err)
	}
	return nil
}

func validTitle(field, s string) error {
	n := utf8.RuneCountInString(s)
	if !utf8.ValidString(s) || n < 1 || n > MaxTitleLength || strings.ContainsRune(s, 0) {
		return fmt.Errorf("%s: must be 1 to %d characters of valid UTF-8", field, MaxTitleLength)
	}
	return nil
}
