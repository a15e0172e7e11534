package stock

import (
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// MaxBatch is the largest number of requests, decisions or entries that one script call takes. A script blocks
// Redis while it runs; 256 reservations take about two milliseconds.
const MaxBatch = 256

// maxUserPerSecond bounds the size of a user's window, which holds one time for each request.
const maxUserPerSecond = 100

// Options of a Store. The zero value of a field means its default.
type Options struct {
	// Retention is how long keys outlive the last possible payment of a sale (R16). Default 24 h.
	Retention time.Duration
	// UserPerSecond is how many requests a user may make in any second, at most 100 (S5). Default 3.
	UserPerSecond int
	// SalePerSecond is how many reservations one sale makes in any second (S4). Default 50,000.
	SalePerSecond int
	// SystemPerSecond is the same for all sales together (S4). Default 100,000.
	SystemPerSecond int
	// CallTimeout bounds one call of Redis with all retries. Default 2 s.
	CallTimeout time.Duration
	// Pipeline is the largest number of commands sent at once. Default 500.
	Pipeline int
	// ScanStep is how many keys one step of a removal by prefix looks at. Default 1,000.
	ScanStep int
	// MaxTracked is of how many activities the highest sequence number is remembered (R15). Default 10,000.
	MaxTracked int
	// Now is the clock used for lifetimes and for measuring calls. Default time.Now.
	Now func() time.Time
	// OnCall, when set, is told of every script call: its name, how long it took, its error.
	OnCall func(script string, took time.Duration, err error)
	// OnRewind, when set, is told once each time a sale is found to have gone back (R15).
	OnRewind func(activityID string)
}

func (o *Options) setDefaults() {
	setDefault(&o.Retention, sale.DefaultRetention)
	setDefault(&o.UserPerSecond, 3)
	o.UserPerSecond = min(o.UserPerSecond, maxUserPerSecond)
	setDefault(&o.SalePerSecond, 50_000)
	setDefault(&o.SystemPerSecond, 100_000)
	setDefault(&o.CallTimeout, 2*time.Second)
	setDefault(&o.Pipeline, 500)
	setDefault(&o.ScanStep, 1000)
	setDefault(&o.MaxTracked, 10_000)
	if o.Now == nil {
		o.Now = time.Now
	}
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Store reads and writes the keys of all sales in one Redis or Redis Cluster. It is safe for concurrent use.
type Store struct {
	rdb redis.UniversalClient
	o   Options
	sc  scripts

	mu   sync.Mutex
	seen map[string]position
}

// New makes a Store. The client stays the caller's to close.
func New(rdb redis.UniversalClient, o Options) *Store {
	o.setDefaults()
	return &Store{rdb: rdb, o: o, sc: loadScripts(), seen: make(map[string]position)}
}

// position is the highest (epoch, seq) that was seen of a sale, and whether a lower one came after it.
type position struct {
	epoch, seq int64
	rewound    bool
	run        string // run id of its server, "" until CheckServers has asked
}

func (p position) after(q position) bool {
	return p.epoch > q.epoch || p.epoch == q.epoch && p.seq > q.seq
}

// floor is the position of a sale before a call. The answer of that call can only be lower if Redis went back;
// answers of calls that ran side by side may be compared in any order otherwise.
func (s *Store) floor(activityID string) position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[activityID]
}

// note compares the position an answer carries with the floor of its call, and remembers the higher one.
func (s *Store) note(activityID string, floor position, epoch, seq int64) {
	s.mu.Lock()
	have, known := s.seen[activityID]
	got := position{epoch: epoch, seq: seq, run: have.run}
	if !known && len(s.seen) >= s.o.MaxTracked {
		for id := range s.seen { // any one: it is learned again with its next call
			delete(s.seen, id)
			break
		}
	}
	back := floor.after(got) && have.epoch == floor.epoch
	first := back && !have.rewound
	switch {
	case got.epoch > have.epoch: // rebuilt since: what was lost no longer matters
		s.seen[activityID] = got
	case back:
		have.rewound = true
		s.seen[activityID] = have
	case got.after(have):
		got.rewound = have.rewound
		s.seen[activityID] = got
	}
	s.mu.Unlock()
	if first && s.o.OnRewind != nil {
		s.o.OnRewind(activityID)
	}
}

// markRewound notes that a sale has lost data although its sequence number did not show it.
func (s *Store) markRewound(activityID string, epoch int64) {
	s.mu.Lock()
	p := s.seen[activityID]
	first := p.epoch == epoch && !p.rewound
	if first {
		p.rewound = true
		s.seen[activityID] = p
	}
	s.mu.Unlock()
	if first && s.o.OnRewind != nil {
		s.o.OnRewind(activityID)
	}
}

// Rewound reports whether this process has seen the sale go back: a lower epoch or sequence number than before,
// its meta gone, a token of the current epoch unknown to a settle, or its server another one (R15). It stays true until a higher epoch is
// seen, that is, until a rebuild. After a regular clean-up or the end of the retention it is meaningless.
func (s *Store) Rewound(activityID string) bool { return s.floor(activityID).rewound }

// Position returns the highest epoch and sequence number that this process has seen of the sale, zeros when none.
func (s *Store) Position(activityID string) (epoch, seq int64) {
	p := s.floor(activityID)
	return p.epoch, p.seq
}

// forget drops what is remembered of a sale whose keys were removed on purpose.
func (s *Store) forget(activityID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, activityID)
}

// header reads the (epoch, seq) that every script returns at place i, and notes it.
func (s *Store) header(activityID string, floor position, reply []any, i int) (epoch, seq int64, err error) {
	epoch, err = number(reply, i)
	if err != nil {
		return 0, 0, err
	}
	seq, err = number(reply, i+1)
	if err != nil {
		return 0, 0, err
	}
	s.note(activityID, floor, epoch, seq)
	return epoch, seq, nil
}

// outcome reads {outcome, epoch, seq} and turns the outcome into an error: nil, sale.ErrConflict, sale.ErrNotReady.
func (s *Store) outcome(activityID string, floor position, reply []any) error {
	code, err := number(reply, 0)
	if err != nil {
		return err
	}
	if _, _, err := s.header(activityID, floor, reply, 1); err != nil {
		return err
	}
	switch code {
	case codeDone, codeOpenAlready:
		return nil
	case codeConflict:
		return sale.ErrConflict
	case codeNotReady:
		return sale.ErrNotReady
	}
	return fmt.Errorf("unknown outcome %d", code)
}

// Outcomes of the scripts that change a sale as a whole.
const (
	codeDone        = 1
	codeConflict    = 2
	codeOpenAlready = 3
	codeNotReady    = 6
)
