package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"seckill/internal/sale"
)

// store is one process's client of Redis. It has the methods of stock.Store that the roles use, with the same steps
// between which other processes may act, and the same watch for a Redis that goes back (R15).
type store struct {
	r   *redisServer
	by  caller
	now func() time.Time
	// chunk is how many tokens one call restores: fewer than the real 256, so that others act in between.
	chunk int
	// onRewind is told when a sale is found to have gone back; it may be nil.
	onRewind func(id string)

	mu   sync.Mutex
	seen map[string]position
}

func newStore(r *redisServer, by caller) *store {
	return &store{r: r, by: by, now: time.Now, chunk: 2, seen: map[string]position{}}
}

// maxBatch is of how many requests one call of Reserve may be.
const maxBatch = 256

// malformed decisions touch nothing.
func malformed(d *sale.Decision) bool {
	return d.UserID <= 0 || !sale.ValidToken(d.Token) || !d.Status.Valid()
}

type position struct {
	epoch, seq int64
	rewound    bool
	run        int // 0: not asked yet
}

func (p position) after(q position) bool {
	return p.epoch > q.epoch || p.epoch == q.epoch && p.seq > q.seq
}

// note is Store.note of package stock.
func (s *store) note(id string, floor position, epoch, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.seen[id]
	got := position{epoch: epoch, seq: seq, run: have.run}
	back := floor.after(got) && have.epoch == floor.epoch
	switch {
	case got.epoch > have.epoch:
		s.seen[id] = got
	case back:
		s.tell(id, have.rewound)
		have.rewound = true
		s.seen[id] = have
	case got.after(have):
		got.rewound = have.rewound
		s.seen[id] = got
	}
}

func (s *store) tell(id string, known bool) {
	if !known && s.onRewind != nil {
		s.onRewind(id)
	}
}

func (s *store) floor(id string) position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[id]
}

func (s *store) markRewound(id string, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.seen[id]; p.epoch == epoch {
		s.tell(id, p.rewound)
		p.rewound = true
		s.seen[id] = p
	}
}

// script runs one step on the keys of a sale and notes the position it returns.
func (s *store) script(ctx context.Context, id, name, detail string, do func(k *keysOfSale) error) error {
	floor := s.floor(id)
	var epoch, seq int64
	ran := false
	var inner error
	err := s.by.call(ctx, toRedis, name, detail, func() error {
		k := s.r.of(id)
		inner = do(k)
		epoch, seq = k.position()
		ran = true
		return inner
	})
	// The answer came if the error is the script's own.
	if ran && (err == nil || inner != nil && err == inner) { //nolint:errorlint // the very same error
		s.note(id, floor, epoch, seq)
	}
	return err
}

// Rewound is as of package stock.
func (s *store) Rewound(id string) bool { return s.floor(id).rewound }

// RaiseSeq is as of package stock.
func (s *store) RaiseSeq(ctx context.Context, id string) (epoch, seq int64, err error) {
	err = s.script(ctx, id, "raise seq", "", func(k *keysOfSale) error {
		k.touch()
		epoch, seq = k.position()
		return nil
	})
	return epoch, seq, err
}

// CheckServers is as of package stock.
func (s *store) CheckServers(ctx context.Context, ids []string) (map[string]string, error) {
	run := 0
	if err := s.by.call(ctx, toRedis, "info", "", func() error { run = 1 + s.r.run; return nil }); err != nil {
		return nil, err
	}
	runs := map[string]string{}
	for _, id := range ids {
		runs[id] = "run" + strconv.Itoa(run)
		s.mu.Lock()
		p, known := s.seen[id]
		before := p.run
		if known {
			p.run = run
			s.seen[id] = p
		}
		s.mu.Unlock()
		if known && before != 0 && before != run {
			s.markRewound(id, p.epoch)
		}
	}
	return runs, nil
}

// Reserve is as of package stock.
func (s *store) Reserve(ctx context.Context, id string, now time.Time, reqs []sale.ReserveRequest) ([]sale.ReserveReply, error) {
	if !sale.ValidID(id) || id == "system" { // where the windows of all sales are
		return nil, sale.ErrBadID
	}
	if len(reqs) > maxBatch {
		return nil, fmt.Errorf("%d requests, at most %d in one call", len(reqs), maxBatch)
	}
	out := make([]sale.ReserveReply, len(reqs))
	if len(reqs) == 0 {
		return out, nil
	}
	err := s.script(ctx, id, "reserve", reqs[0].Token, func(k *keysOfSale) error {
		moved := false
		for i := range reqs {
			out[i] = k.reserve(id, now, reqs[i])
			moved = moved || out[i].Outcome == sale.ReserveAccepted
		}
		if moved {
			k.touch()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Settle is as of package stock.
func (s *store) Settle(ctx context.Context, id string, ds []sale.Decision) ([]sale.Settlement, error) {
	out := make([]sale.Settlement, len(ds))
	usable, epoch := false, int64(0)
	err := s.script(ctx, id, "settle", ds[0].Token, func(k *keysOfSale) error {
		k.settle(s.r.bugs, ds, out)
		usable = k.usable()
		epoch, _ = k.position()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("settle tokens: %w", err)
	}
	for i := range ds {
		if out[i] == sale.SettleUnknown && usable && ds[i].Epoch == epoch && !malformed(&ds[i]) {
			s.markRewound(id, epoch)
		}
	}
	return out, nil
}

// Return is as of package stock.
func (s *store) Return(ctx context.Context, id string, rs []sale.Return) (out []sale.Settlement, epoch int64, err error) {
	out = make([]sale.Settlement, len(rs))
	err = s.script(ctx, id, "return", rs[0].Token, func(k *keysOfSale) error {
		k.giveBack(s.r.bugs, rs, out)
		epoch, _ = k.position()
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("return units: %w", err)
	}
	return out, epoch, nil
}

// SetStatus is as of package stock: one call for each sale.
func (s *store) SetStatus(ctx context.Context, rs []sale.UserResult) ([]sale.Settlement, error) {
	out := make([]sale.Settlement, len(rs))
	places := map[string][]int{}
	for i := range rs {
		r := &rs[i]
		out[i] = sale.SettleUnknown
		if r.UserID > 0 && sale.ValidToken(r.RequestToken) && r.Status.Valid() && r.Version > 0 {
			places[r.ActivityID] = append(places[r.ActivityID], i)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(places)) {
		sent := places[id]
		err := s.script(ctx, id, "set status", rs[sent[0]].RequestToken, func(k *keysOfSale) error {
			k.setStatus(s.r.bugs, rs, sent, out)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("set status: %w", err)
		}
	}
	return out, nil
}

// Promote is as of package stock.
func (s *store) Promote(ctx context.Context, r sale.Return, now time.Time, line []int64, tokenFor func(userID int64) string) (p sale.Promotion, err error) {
	ids := make([]string, len(line))
	for i, u := range line {
		ids[i] = tokenFor(u)
	}
	floor := s.floor(r.ActivityID)
	err = s.script(ctx, r.ActivityID, "promote", r.Token, func(k *keysOfSale) error {
		if epoch, seq := k.position(); !s.r.bugs.OfferUnchecked && floor.after(position{epoch: epoch, seq: seq}) {
			p.Found, p.Epoch = sale.SettleNotYet, epoch
			return nil
		}
		found, got, err := k.promote(s.r.bugs, &r, now, line, ids)
		p.Found = found
		p.Epoch, _ = k.position()
		for _, i := range got {
			s.r.offered(line[i])
			p.Reservations = append(p.Reservations, k.tokens[ids[i]].reservation(r.ActivityID, ids[i]))
		}
		return err
	})
	if err != nil {
		return sale.Promotion{}, fmt.Errorf("promote: %w", err)
	}
	return p, nil
}

// Occupied is as of package stock: the outbox, the tokens, and the removal of strays.
func (s *store) Occupied(ctx context.Context, id string, before time.Time, limit int) ([]sale.Reservation, error) {
	var ids []string
	err := s.by.call(ctx, toRedis, "occupied", "", func() error {
		ids = s.r.of(id).oldest(before.UnixMilli(), limit)
		return nil
	})
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	out, strays, err := s.reservations(ctx, id, ids)
	if err != nil || len(strays) == 0 {
		return out, err
	}
	err = s.by.call(ctx, toRedis, "drop strays", "", func() error {
		for _, t := range strays {
			delete(s.r.of(id).occupied, t)
		}
		return nil
	})
	return out, err
}

func (s *store) reservations(ctx context.Context, id string, ids []string) (out []sale.Reservation, strays []string, err error) {
	err = s.by.call(ctx, toRedis, "read tokens", "", func() error {
		for _, name := range ids {
			if t := s.r.of(id).tokens[name]; t != nil && t.state == sale.TokenOccupied {
				out = append(out, t.reservation(id, name))
			} else {
				strays = append(strays, name)
			}
		}
		return nil
	})
	return out, strays, err
}

// Live is as of package stock: meta, then the stock.
func (s *store) Live(ctx context.Context, ids []string) (map[string]sale.Live, error) {
	out := map[string]sale.Live{}
	for _, id := range ids {
		l := sale.Live{ActivityID: id, State: sale.StateNotReady}
		var items []sale.Item
		err := s.script(ctx, id, "live", "", func(k *keysOfSale) error {
			l.Epoch, l.Seq = k.position()
			if m := k.meta; m != nil {
				l.StartsAt, l.EndsAt = m.from.StartsAt, m.from.EndsAt
				if m.items && m.state != metaRebuilding && m.state != metaDraft {
					l.State = map[string]sale.State{metaLive: sale.StateScheduled, metaPaused: sale.StatePaused, metaEnded: sale.StateEnded}[m.state]
					items = m.from.Items
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		l.At = s.now().UTC()
		if len(items) > 0 {
			a := sale.Activity{State: l.State, StartsAt: l.StartsAt, EndsAt: l.EndsAt}
			l.State = a.StateAt(l.At)
			err = s.by.call(ctx, toRedis, "live stock", "", func() error { addUnits(&l, items, s.r.of(id)); return nil })
		}
		if err != nil {
			return nil, err
		}
		out[id] = l
	}
	return out, nil
}

// Result is as of package stock.
func (s *store) Result(ctx context.Context, id, name string) (out sale.UserResult, ok bool, err error) {
	err = s.by.call(ctx, toRedis, "result", name, func() error {
		if t := s.r.of(id).tokens[name]; t != nil && t.status != "" {
			out, ok = sale.UserResult{UserID: t.user, Result: t.result(id, name)}, true
		}
		return nil
	})
	return out, ok && err == nil, err
}

// Mark is as of package stock.
func (s *store) Mark(ctx context.Context, id string, user int64) (name string, ok bool, err error) {
	err = s.by.call(ctx, toRedis, "mark", "", func() error { name, ok = s.r.of(id).marks[user]; return nil })
	return name, ok && err == nil, err
}

// ParticipantsOf is as of package stock.
func (s *store) ParticipantsOf(ctx context.Context, id string) (users []int64, err error) {
	err = s.by.call(ctx, toRedis, "participants", "", func() error {
		users = slices.Collect(maps.Keys(s.r.of(id).participants))
		return nil
	})
	return users, err
}

func addUnits(l *sale.Live, items []sale.Item, k *keysOfSale) {
	for i := range items {
		if n, ok := k.stock[items[i].CommodityID]; ok {
			l.Items = append(l.Items, sale.Remaining{CommodityID: items[i].CommodityID, Units: n})
		} else {
			l.State = sale.StateNotReady
		}
	}
}
