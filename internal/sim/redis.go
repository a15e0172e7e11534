package sim

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// redisServer is what a Redis holds of all sales. Its methods are the scripts of package stock, one step each.
type redisServer struct {
	sales map[string]*keysOfSale
	run   int // run id: another one after each restart
	bugs  *Bugs

	begun, rebuilt int              // run ids under which the last rebuild began, and began and ended
	offered        func(user int64) // a unit has come to this user from a waitlist
	lineRead       func()
}

// keysOfSale are the keys of one sale.
type keysOfSale struct {
	meta         *meta // nil: no key
	stock        map[string]int64
	marks        map[int64]string
	tokens       map[string]*token
	occupied     map[string]int64 // by time, epoch ms
	participants map[int64]bool
	blocked      map[int64]bool
	eligible     map[int64]bool
	lines        map[string]map[int64]int64 // waitlists: commodity -> user -> joined, epoch ms
}

type meta struct {
	epoch, seq int64
	state      string
	from       sale.Activity // window, allow-list, items
	items      bool          // the fields of the items are there
}

// token is a token hash.
type token struct {
	state     sale.TokenState
	user      int64
	commodity string
	quantity  int
	price     decimal.Decimal
	at        time.Time
	epoch     int64
	status    sale.Status
	reason    sale.Reason
	orderNo   string
	payBefore time.Time
	version   int64
}

func newRedisServer() *redisServer {
	return &redisServer{sales: map[string]*keysOfSale{}, bugs: &Bugs{}, offered: func(int64) {}, lineRead: func() {}}
}

func (r *redisServer) of(activityID string) *keysOfSale {
	k := r.sales[activityID]
	if k == nil {
		k = &keysOfSale{
			stock: map[string]int64{}, marks: map[int64]string{}, tokens: map[string]*token{}, occupied: map[string]int64{},
			participants: map[int64]bool{}, blocked: map[int64]bool{}, eligible: map[int64]bool{}, lines: map[string]map[int64]int64{},
		}
		r.sales[activityID] = k
	}
	return k
}

func (r *redisServer) flush() { r.sales = map[string]*keysOfSale{} }

// copy is what the server would come back with if it stopped now and lost everything later.
func (r *redisServer) copy() map[string]*keysOfSale {
	out := map[string]*keysOfSale{}
	for id, k := range r.sales {
		c := *k
		if k.meta != nil {
			m := *k.meta
			c.meta = &m
		}
		c.stock, c.marks, c.occupied = maps.Clone(k.stock), maps.Clone(k.marks), maps.Clone(k.occupied)
		c.participants, c.blocked, c.eligible = maps.Clone(k.participants), maps.Clone(k.blocked), maps.Clone(k.eligible)
		c.tokens, c.lines = map[string]*token{}, map[string]map[int64]int64{}
		for id, t := range k.tokens {
			u := *t
			c.tokens[id] = &u
		}
		for id, line := range k.lines {
			c.lines[id] = maps.Clone(line)
		}
		out[id] = &c
	}
	return out
}

// restart comes back with an older copy.
func (r *redisServer) restart(saved map[string]*keysOfSale) {
	r.sales = saved
	r.run++
}

// position is what every script returns.
func (k *keysOfSale) position() (epoch, seq int64) {
	if k.meta == nil {
		return 0, 0
	}
	return k.meta.epoch, k.meta.seq
}

func (k *keysOfSale) usable() bool {
	return k.meta != nil && k.meta.epoch > 0 && k.meta.state != metaRebuilding
}

// touch raises the sequence number.
func (k *keysOfSale) touch() {
	if k.meta != nil && k.meta.epoch > 0 {
		k.meta.seq++
	}
}

// States of a sale in its meta, as in package stock.
const (
	metaRebuilding = "rebuilding"
	metaDraft      = "draft"
	metaLive       = "live"
	metaPaused     = "paused"
	metaEnded      = "ended"
)

func metaState(st sale.State) string {
	switch st {
	case sale.StateScheduled, sale.StateOpen:
		return metaLive
	case sale.StatePaused:
		return metaPaused
	case sale.StateEnded, sale.StateSettled:
		return metaEnded
	}
	return metaDraft
}

func (k *keysOfSale) mark(user int64, id string) {
	k.marks[user] = id
	k.participants[user] = true
}

func (t *token) result(activityID, id string) sale.Result {
	return sale.Result{
		RequestToken: id, ActivityID: activityID, CommodityID: t.commodity, Quantity: t.quantity, Status: t.status,
		Reason: t.reason, OrderNo: t.orderNo, PayBefore: t.payBefore, Version: t.version,
	}
}

func (t *token) reservation(activityID, id string) sale.Reservation {
	return sale.Reservation{
		Token: id, UserID: t.user, ActivityID: activityID, CommodityID: t.commodity, Price: t.price, Quantity: t.quantity,
		Epoch: t.epoch, At: t.at,
	}
}

// write is R4: status only with a higher version.
func (t *token) write(r *sale.Result) {
	t.status, t.reason, t.orderNo, t.payBefore, t.version = r.Status, r.Reason, r.OrderNo, r.PayBefore, r.Version
}

// line lists who waits for a commodity, in the order of a sorted set.
func (k *keysOfSale) line(commodity string, limit int) []int64 {
	l := k.lines[commodity]
	users := slices.SortedFunc(maps.Keys(l), func(a, b int64) int {
		return cmp.Or(cmp.Compare(l[a], l[b]), cmp.Compare(strconv.FormatInt(a, 10), strconv.FormatInt(b, 10)))
	})
	return users[:min(limit, len(users))]
}

// oldest lists occupied tokens by time.
func (k *keysOfSale) oldest(before int64, limit int) []string {
	ids := slices.SortedFunc(maps.Keys(k.occupied), func(a, b string) int {
		return cmp.Or(cmp.Compare(k.occupied[a], k.occupied[b]), cmp.Compare(a, b))
	})
	ids = slices.DeleteFunc(ids, func(id string) bool { return k.occupied[id] >= before })
	return ids[:min(limit, len(ids))]
}
