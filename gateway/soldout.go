package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"seckill/internal/sale"
)

// soldOut answers "sold out" without asking Redis, for users who are surely not participants of the sale (R14).
//
// The flag of an item is set when Redis shows no unit left and, after that, the complete list of participants has
// been read: whoever took a unit before is on it. The flag falls as soon as a refresh of the catalog shows a unit,
// so one that comes back is on sale everywhere within a refresh (FS-017); while the flag is in use, the list is read
// again in the background once it is older than listLife.
type soldOut struct {
	mu     sync.RWMutex
	sales  map[string]*saleFilter
	stock  Stock
	now    func() time.Time
	spawn  func(func())
	failed func(error)
}

const (
	listLife  = time.Second     // a list older than this is read again, in the background
	listGrace = 5 * time.Second // and not trusted after this much more, should reading fail
)

type saleFilter struct {
	mu      sync.RWMutex
	loading bool
	sorted  []int64            // participants when the list was read
	recent  map[int64]struct{} // participants admitted here and not on the list
	empty   map[string]bool    // commodity -> no unit left
	staleAt time.Time
}

func (s *soldOut) of(activityID string) *saleFilter {
	s.mu.RLock()
	f := s.sales[activityID]
	s.mu.RUnlock()
	if f != nil {
		return f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.sales[activityID]; f == nil {
		f = &saleFilter{recent: map[int64]struct{}{}, empty: map[string]bool{}}
		s.sales[activityID] = f
	}
	return f
}

// answers reports whether this request may be answered sold out at once.
func (s *soldOut) answers(activityID, commodityID string, userID int64) bool {
	f := s.of(activityID)
	now := s.now()
	f.mu.RLock()
	empty, staleAt := f.empty[commodityID], f.staleAt
	_, joined := f.recent[userID]
	_, listed := slices.BinarySearch(f.sorted, userID)
	f.mu.RUnlock()
	if !empty || now.After(staleAt.Add(listGrace)) {
		return false
	}
	if now.After(staleAt) {
		s.load(activityID)
	}
	return !joined && !listed
}

// joined notes a participant admitted by this gateway.
func (s *soldOut) joined(activityID string, userID int64) {
	f := s.of(activityID)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent[userID] = struct{}{}
}

// load reads stock and participants in the background, once at a time, and sets or lowers the flags. It is called
// when Redis has answered sold out and when a list in use grows old.
func (s *soldOut) load(activityID string) {
	f := s.of(activityID)
	f.mu.Lock()
	busy := f.loading
	f.loading = true
	f.mu.Unlock()
	if busy {
		return
	}
	s.spawn(func() {
		start := s.now()
		empty, users, err := s.read(activityID)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.loading = false
		if err != nil {
			s.failed(err)
			return
		}
		f.empty, f.sorted = empty, users
		for u := range f.recent {
			if _, ok := slices.BinarySearch(users, u); ok {
				delete(f.recent, u)
			}
		}
		// A long list is read less often: reading never takes more than a twentieth of the time.
		took := s.now().Sub(start)
		f.staleAt = s.now().Add(max(listLife, 20*took))
	})
}

// read returns the items without stock and, read after that, the sorted participants.
func (s *soldOut) read(activityID string) (empty map[string]bool, users []int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	lives, err := s.stock.Live(ctx, []string{activityID})
	if err != nil {
		return nil, nil, fmt.Errorf("sold-out flag: %w", err)
	}
	empty = map[string]bool{}
	live := lives[activityID]
	for _, it := range live.Items {
		if it.Units <= 0 && live.State != sale.StateNotReady {
			empty[it.CommodityID] = true
		}
	}
	users, err = s.stock.ParticipantsOf(ctx, activityID)
	if err != nil {
		return nil, nil, fmt.Errorf("sold-out flag: %w", err)
	}
	slices.Sort(users)
	return empty, users, nil
}

// refreshed lowers the flags that the live state contradicts.
func (s *soldOut) refreshed(live sale.Live) {
	f := s.of(live.ActivityID)
	f.mu.Lock()
	defer f.mu.Unlock()
	if live.State == sale.StateNotReady {
		clear(f.empty)
		return
	}
	for _, it := range live.Items {
		if it.Units > 0 {
			delete(f.empty, it.CommodityID)
		}
	}
}
