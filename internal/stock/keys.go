package stock

import (
	"fmt"
	"strconv"

	"seckill/internal/sale"
)

// systemTag takes the place of an activity id in the key of the system-wide window.
const systemTag = "system"

// systemRateKey is the window that all sales share (S4).
const systemRateKey = "seckill:{" + systemTag + "}:rate"

// keys builds the key names of one activity. No key name is written anywhere else.
type keys struct {
	prefix string // "seckill:{A}:"
}

// keysOf returns the key builder of an activity, or sale.ErrBadID: an id that is not checked could name the keys of
// another sale, or be a pattern when keys are removed by prefix.
func keysOf(activityID string) (keys, error) {
	if !sale.ValidID(activityID) || activityID == systemTag {
		return keys{}, fmt.Errorf("activity id %.40q: %w", activityID, sale.ErrBadID)
	}
	return keys{prefix: "seckill:{" + activityID + "}:"}, nil
}

func (k keys) meta() string                     { return k.prefix + "meta" }
func (k keys) occupied() string                 { return k.prefix + "occupied" }
func (k keys) rate() string                     { return k.prefix + "rate" }
func (k keys) blocked() string                  { return k.prefix + "blocked" }
func (k keys) eligible() string                 { return k.prefix + "eligible" }
func (k keys) participants() string             { return k.prefix + "participants" }
func (k keys) stock(commodity string) string    { return k.prefix + "stock:" + commodity }
func (k keys) token(token string) string        { return k.prefix + "token:" + token }
func (k keys) mark(userID int64) string         { return k.prefix + "user:" + strconv.FormatInt(userID, 10) }
func (k keys) waitlist(commodity string) string { return k.prefix + "waitlist:" + commodity }
func (k keys) userRate(userID int64) string {
	return k.prefix + "rate:" + strconv.FormatInt(userID, 10)
}

// all is the pattern that matches every key of the activity and no other: an activity id holds no pattern character.
func (k keys) all() string { return k.prefix + "*" }

// list returns the key of a user list, or sale.ErrBadID for a name other than blocked and eligible.
func (k keys) list(name string) (string, error) {
	switch name {
	case "blocked":
		return k.blocked(), nil
	case "eligible":
		return k.eligible(), nil
	}
	return "", fmt.Errorf("user list %.40q: %w", name, sale.ErrBadID)
}
