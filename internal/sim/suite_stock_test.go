package sim

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/sale"
	"seckill/internal/stock"
	"seckill/internal/stock/stocktest"
)

// The simulation's Redis passes the product's own suite, for what it models. The rest is named here, each with what is
// missing: no crowd that needs limits, and no server that loses or spoils a single key.
func TestStockSuite(t *testing.T) {
	t.Parallel()
	r, turn := newRedisServer(), &inTurn{}
	open := func(by caller, o stock.Options) stocktest.Store {
		s := newStore(r, by)
		s.onRewind = o.OnRewind
		if o.Now != nil {
			s.now = o.Now
		}
		return &suiteStore{store: s}
	}
	const windows, lifetimes, spoilt = "the windows of users and sales", "lifetimes", "values and keys of a wrong type"
	stocktest.RunCore(t, stocktest.Backend{
		Name: "simulation",
		Keys: memoryKeys{r, turn},
		Open: func(o stock.Options) stocktest.Store { return open(turn, o) },
		OpenSlow: func(_ *testing.T, o stock.Options, do func()) stocktest.Store {
			return open(&afterwards{inTurn: turn, name: "scan", do: do}, o)
		},
		NotModelled: map[string]string{
			"Limits/UserWindowSlides_S5":                  windows,
			"Limits/TokenRouteSharesTheWindow_S5":         windows,
			"Limits/RetryAfterIsTrue_S5":                  windows,
			"Limits/SpoiltWindowHeals_FS032":              windows,
			"Limits/ClocksOfGatewaysDiffer":               windows,
			"Limits/SaleWindow_S4":                        windows,
			"Limits/SystemQuota_S4":                       windows,
			"Lifetime/EveryKeyEnds_S2_S27":                lifetimes,
			"Lifetime/KeysExpire_FS098":                   lifetimes,
			"Lifetime/LongerSaleKeepsItsKeys_R16":         lifetimes,
			"Reserve/SpoiltStockIsNotReady_FS009":         spoilt,
			"Reserve/SpoiltTokenKeyHarmsOnlyItself_FS015": spoilt,
			"Reading/ResultsOfUsers_S29":                  "what pushers read: users poll here",
			"Rebuild/PurgeTouchesNoOtherSale_S27":         "names of keys that begin alike",
			"Waitlist/UnsoldUnitsAreTakenBack_S39":        "changes of the total during a sale",
		},
	})
}

// afterwards does something after its first call of one name.
type afterwards struct {
	*inTurn
	name string
	do   func()
}

func (a *afterwards) call(ctx context.Context, to port, name, detail string, do func() error) error {
	err := a.inTurn.call(ctx, to, name, detail, do)
	if name == a.name && a.do != nil {
		happens := a.do
		a.do = nil
		happens()
	}
	return err
}

// unmodelledStock are the calls of skipped tests.
type unmodelledStock struct{ stocktest.Store }

// suiteStore gives the suite the calls of the simulation's store.
type suiteStore struct {
	*store
	unmodelledStock
}

// Position is what the store has seen.
func (s *suiteStore) Position(id string) (epoch, seq int64) {
	p := s.floor(id)
	return p.epoch, p.seq
}

// TokenCounts counts, as one call that tells the position.
func (s *suiteStore) TokenCounts(ctx context.Context, id string) (c sale.TokenCounts, err error) {
	err = s.script(ctx, id, "counts", "", func(k *keysOfSale) error {
		c.Epoch, c.Seq = k.position()
		c.Occupied, c.Participants = int64(len(k.occupied)), int64(len(k.participants))
		return nil
	})
	return c, err
}

// WaitPosition looks at the line.
func (s *suiteStore) WaitPosition(ctx context.Context, id, commodity string, user int64) (place int64, joined time.Time, err error) {
	err = s.by.call(ctx, toRedis, "place", "", func() error {
		k := s.r.of(id)
		if at, ok := k.lines[commodity][user]; ok {
			place, joined = int64(1+slices.Index(k.line(commodity, 1<<30), user)), time.UnixMilli(at).UTC()
		}
		return nil
	})
	return place, joined, err
}

// memoryKeys looks at the simulation's Redis by the names that the design gives its keys.
type memoryKeys struct {
	r    *redisServer
	turn *inTurn
}

var errNoSuchKey = errors.New("the simulation has no such key")

// at finds a key: the sale's keys, the kind of the key, and the id that it ends with.
func (m memoryKeys) at(key string, do func(k *keysOfSale, kind, id string) error) error {
	m.turn.mu.Lock()
	defer m.turn.mu.Unlock()
	sale, rest, ok := strings.Cut(strings.TrimPrefix(key, "seckill:{"), "}:")
	if !ok {
		return errNoSuchKey
	}
	kind, id, _ := strings.Cut(rest, ":")
	return do(m.r.of(sale), kind, id)
}

// Text is as of a server.
func (m memoryKeys) Text(_ context.Context, key string) (v string, err error) {
	err = m.at(key, func(k *keysOfSale, kind, id string) error {
		switch kind {
		case "stock":
			if n, ok := k.stock[id]; ok {
				v = strconv.FormatInt(n, 10)
			}
		case "user":
			u, _ := strconv.ParseInt(id, 10, 64)
			v = k.marks[u]
		default:
			return errNoSuchKey
		}
		return nil
	})
	return v, err
}

var wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)

// SetText is as of a server, but for a stock that is no number: to the scripts that is as if it were missing.
func (m memoryKeys) SetText(_ context.Context, key, value string) error {
	return m.at(key, func(k *keysOfSale, kind, id string) error {
		switch {
		case kind == "stock" && wholeNumber.MatchString(value):
			k.stock[id], _ = strconv.ParseInt(value, 10, 64)
		case kind == "stock":
			delete(k.stock, id)
		case kind == "user":
			u, _ := strconv.ParseInt(id, 10, 64)
			k.marks[u] = value
		default:
			return errNoSuchKey
		}
		return nil
	})
}

// Hash is as of a server.
func (m memoryKeys) Hash(_ context.Context, key string) (h map[string]string, err error) {
	h = map[string]string{}
	err = m.at(key, func(k *keysOfSale, kind, id string) error {
		t := k.tokens[id]
		switch {
		case kind == "meta" && k.meta != nil:
			h["epoch"], h["seq"] = strconv.FormatInt(k.meta.epoch, 10), strconv.FormatInt(k.meta.seq, 10)
		case kind == "token" && t != nil:
			h = map[string]string{
				"state": string(t.state), "userId": strconv.FormatInt(t.user, 10), "commodityId": t.commodity, "quantity": strconv.Itoa(t.quantity),
				"price": sale.FormatMoney(t.price), "ts": strconv.FormatInt(t.at.UnixMilli(), 10), "epoch": strconv.FormatInt(t.epoch, 10),
				"status": string(t.status), "version": strconv.FormatInt(t.version, 10),
			}
			if t.version > 0 {
				h["reason"], h["orderNo"] = string(t.reason), t.orderNo
			}
		}
		return nil
	})
	return h, err
}

// SetField is as of a server, for meta.
func (m memoryKeys) SetField(_ context.Context, key, field, value string) error {
	return m.at(key, func(k *keysOfSale, kind, _ string) error {
		n, _ := strconv.ParseInt(value, 10, 64)
		switch kind + "." + field {
		case "meta.epoch":
			k.meta.epoch = n
		case "meta.seq":
			k.meta.seq = n
		case "meta.state":
			k.meta.state = value
		default:
			return errNoSuchKey
		}
		return nil
	})
}

// Set is as of a server.
func (m memoryKeys) Set(_ context.Context, key string) (members []string, err error) {
	err = m.at(key, func(k *keysOfSale, kind, _ string) error {
		set, ok := map[string]map[int64]bool{"participants": k.participants, "blocked": k.blocked, "eligible": k.eligible}[kind]
		if !ok {
			return errNoSuchKey
		}
		for u := range set {
			members = append(members, strconv.FormatInt(u, 10))
		}
		return nil
	})
	return members, err
}

// Line is as of a server, for the outbox.
func (m memoryKeys) Line(_ context.Context, key string) (line map[string]float64, err error) {
	line = map[string]float64{}
	err = m.at(key, func(k *keysOfSale, kind, _ string) error {
		if kind != "occupied" {
			return errNoSuchKey
		}
		for id, at := range k.occupied {
			line[id] = float64(at)
		}
		return nil
	})
	return line, err
}

// PutFirst is as of a server.
func (m memoryKeys) PutFirst(_ context.Context, key string, members ...string) error {
	return m.at(key, func(k *keysOfSale, kind, id string) error {
		for _, name := range members {
			switch kind {
			case "occupied":
				k.occupied[name] = 0
			case "waitlist":
				u, _ := strconv.ParseInt(name, 10, 64)
				k.lines[id] = map[int64]int64{u: 0}
			default:
				return errNoSuchKey
			}
		}
		return nil
	})
}

// Delete is as of a server.
func (m memoryKeys) Delete(_ context.Context, key string) error {
	return m.at(key, func(k *keysOfSale, kind, id string) error {
		switch kind {
		case "meta":
			k.meta = nil
		case "stock":
			delete(k.stock, id)
		case "token":
			delete(k.tokens, id)
		default:
			return errNoSuchKey
		}
		return nil
	})
}

// Names is as of a server: a set without members is no key.
func (m memoryKeys) Names(_ context.Context, prefix string) (names []string, err error) {
	err = m.at(prefix, func(k *keysOfSale, _, _ string) error {
		empty := map[string]bool{
			"occupied": len(k.occupied) == 0, "participants": len(k.participants) == 0, "blocked": len(k.blocked) == 0, "eligible": len(k.eligible) == 0,
		}
		for _, name := range k.names() {
			if !empty[name] {
				names = append(names, prefix+name)
			}
		}
		if k.meta != nil {
			names = append(names, prefix+"meta")
		}
		slices.Sort(names)
		return nil
	})
	return names, err
}

// Lasts knows nothing of lifetimes.
func (m memoryKeys) Lasts(context.Context, string) (time.Duration, bool, error) { return 0, false, nil }
