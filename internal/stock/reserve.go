package stock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// outcomes are the answers of reserve.lua by their code.
var outcomes = [...]sale.ReserveOutcome{
	1: sale.ReserveAccepted, 2: sale.ReserveRepeat, 3: sale.ReserveMismatch, 4: sale.ReserveParticipated,
	5: sale.ReserveSoldOut, 6: sale.ReserveNotStarted, 7: sale.ReserveEnded, 8: sale.ReservePaused,
	9: sale.ReserveNotReady, 10: sale.ReserveUnknownItem, 11: sale.ReserveBlocked, 12: sale.ReserveNotEligible,
	13: sale.ReserveRateLimited, 14: sale.ReserveSaleLimited, 15: sale.ReserveBadQuantity, 16: sale.ReserveForeignHolder,
}

// Reserve sets stock aside for a batch of requests of one sale, in one script call, in their order. It returns one
// reply for each. now is the time of the gateway: it opens and closes the sale and moves the limiter windows.
//
// An error concerns the whole batch: sale.ErrBadID or more than MaxBatch requests; sale.ErrTransient when Redis
// refused the call whole (out of memory, read-only, loading); sale.ErrUncertain when the call may have run, in which
// case the same tokens may be sent again and answer "repeat".
//
// A request that is malformed is answered without Redis: a quantity outside 1 to sale.MaxQuantity as bad_quantity
// (FS-022), a commodity id as unknown_item, a token or user as foreign_holder. A participated reply may name the
// request's own token, when Redis lost its hash but not the mark: the database then knows its state.
func (s *Store) Reserve(ctx context.Context, activityID string, now time.Time, reqs []sale.ReserveRequest) ([]sale.ReserveReply, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return nil, fmt.Errorf("reserve stock: %w", err)
	}
	if len(reqs) > MaxBatch {
		return nil, fmt.Errorf("reserve stock: %d requests, at most %d in one call", len(reqs), MaxBatch)
	}
	replies := make([]sale.ReserveReply, len(reqs))
	b := reserveBatch{activityID: activityID, now: now, reqs: reqs, replies: replies}
	b.admit()
	if len(b.sent) == 0 {
		return replies, nil
	}
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.reserve, b.args(k, s.o.UserPerSecond, s.o.SalePerSecond))
	if err != nil {
		return nil, fmt.Errorf("reserve stock: %w", err)
	}
	if b.epoch, _, err = s.header(activityID, floor, reply, 0); err != nil {
		return nil, fmt.Errorf("reserve stock: %w", err)
	}
	if err := b.read(reply[2:]); err != nil {
		return nil, fmt.Errorf("reserve stock: %w", err)
	}
	return replies, nil
}

// reserveBatch is one call of reserve.lua.
type reserveBatch struct {
	activityID  string
	now         time.Time
	reqs        []sale.ReserveRequest
	replies     []sale.ReserveReply
	sent        []int    // places in reqs of the requests that go to Redis
	items       []int    // place of its commodity, from 0, for each of them
	commodities []string // distinct, in the order of their first request
	asked       []int64  // units asked for of each commodity
	epoch       int64
}

// admit answers malformed requests and lists the commodities of the others.
func (b *reserveBatch) admit() {
	b.sent = make([]int, 0, len(b.reqs))
	b.items = make([]int, 0, len(b.reqs))
	for i := range b.reqs {
		r := &b.reqs[i]
		switch {
		case r.UserID <= 0 || !sale.ValidToken(r.Token):
			b.replies[i].Outcome = sale.ReserveForeignHolder
		case r.Quantity < 1 || r.Quantity > sale.MaxQuantity:
			b.replies[i].Outcome = sale.ReserveBadQuantity
		case !sale.ValidID(r.CommodityID):
			b.replies[i].Outcome = sale.ReserveUnknownItem
		default:
			item := slices.Index(b.commodities, r.CommodityID)
			if item < 0 {
				item = len(b.commodities)
				b.commodities, b.asked = append(b.commodities, r.CommodityID), append(b.asked, 0)
			}
			b.asked[item] += int64(r.Quantity)
			b.sent, b.items = append(b.sent, i), append(b.items, item)
		}
	}
}

// args lays the call out as the header of reserve.lua says.
func (b *reserveBatch) args(k keys, userPerSecond, salePerSecond int) *scriptArgs {
	m, n := len(b.commodities), len(b.sent)
	a := newScriptArgs(13+3*m+4*n, 512+m*120+n*4*(len(k.prefix)+40))
	a.key(k.meta())
	a.key(k.occupied())
	a.key(k.rate())
	a.key(k.blocked())
	a.key(k.eligible())
	a.key(k.participants())
	for _, c := range b.commodities {
		a.keyOf(k.prefix, "stock:", c)
	}
	for _, i := range b.sent {
		a.keyOfInt(k.prefix, "rate:", b.reqs[i].UserID)
	}
	for _, i := range b.sent {
		a.keyOfInt(k.prefix, "user:", b.reqs[i].UserID)
	}
	for _, i := range b.sent {
		a.keyOf(k.prefix, "token:", b.reqs[i].Token)
	}
	a.clock(b.now)
	a.int(int64(m))
	a.int(int64(n))
	a.int(int64(userPerSecond))
	a.int(int64(salePerSecond))
	a.int(int64(len(k.prefix) + len("user:") + 1))
	a.int(int64(len(k.prefix) + len("token:") + 1))
	for _, c := range b.commodities {
		a.str(c)
	}
	for _, units := range b.asked {
		a.int(units)
	}
	for j, i := range b.sent {
		a.int(int64(b.items[j]+1)*1000 + int64(b.reqs[i].Quantity))
	}
	return a
}

// read turns the prices and answers of the script into replies.
func (b *reserveBatch) read(reply []any) error {
	m := len(b.commodities)
	if len(reply) != m+len(b.sent) {
		return fmt.Errorf("%d answers for %d requests", len(reply)-m, len(b.sent))
	}
	prices := make([]decimal.Decimal, m)
	for i := range prices {
		if t := text(reply[i]); t != "" {
			p, err := sale.ParseMoney(t)
			if err != nil {
				return fmt.Errorf("price of %s: %w", b.commodities[i], err)
			}
			prices[i] = p
		}
	}
	at := b.now.Truncate(time.Millisecond).UTC()
	for j, i := range b.sent {
		if err := b.readOne(i, prices[b.items[j]], at, reply[m+j]); err != nil {
			return err
		}
	}
	return nil
}

func (b *reserveBatch) readOne(i int, price decimal.Decimal, at time.Time, answer any) error {
	out, req := &b.replies[i], &b.reqs[i]
	parts, _ := answer.([]any)
	code, ok := answer.(int64)
	if len(parts) > 0 {
		code, ok = parts[0].(int64)
	}
	if !ok || code < 1 || int(code) >= len(outcomes) {
		return fmt.Errorf("answer %d: no known code in %v", i, answer)
	}
	out.Outcome = outcomes[code]
	switch out.Outcome {
	case sale.ReserveAccepted:
		out.Reservation = sale.Reservation{
			Token: req.Token, UserID: req.UserID, ActivityID: b.activityID, CommodityID: req.CommodityID,
			Price: price, Quantity: req.Quantity, Epoch: b.epoch, At: at,
		}
		out.Result = sale.Result{
			RequestToken: req.Token, ActivityID: b.activityID, CommodityID: req.CommodityID,
			Quantity: req.Quantity, Status: sale.StatusProcessing,
		}
	case sale.ReserveRepeat:
		if len(parts) != 12 {
			return fmt.Errorf("answer %d: a repeat of %d parts", i, len(parts))
		}
		t := storedToken{userID: req.UserID}
		t.fill(parts[1:])
		out.Result = t.result(b.activityID, req.Token)
		if t.state == sale.TokenOccupied {
			out.Reservation = t.reservation(b.activityID, req.Token)
		}
	case sale.ReserveParticipated:
		if len(parts) != 2 {
			return fmt.Errorf("answer %d: no first token", i)
		}
		out.FirstToken = text(parts[1])
	case sale.ReserveRateLimited, sale.ReserveSaleLimited:
		ms, err := number(parts, 1)
		if err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
		out.RetryAfter = time.Duration(max(ms, 1)) * time.Millisecond
	}
	return nil
}
