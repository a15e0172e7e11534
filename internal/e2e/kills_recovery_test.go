package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"seckill/internal/apiclient"
	"seckill/internal/auth"
)

// canaries buy in a sale of their own while servers and roles die, one click every canaryEvery, each a new user with a
// socket. They show how long a death is felt: from the kill until somebody who clicked after it was accepted, and was
// told an order, which is accepted, decided and pushed.
type canaries struct {
	s                 *stack
	sale              string
	gateways, pushers []string
	stop              context.CancelFunc
	wg                sync.WaitGroup
	mu                sync.Mutex
	birds             []canary
}

// canary is one such user and when what happened to it.
type canary struct {
	crowdOutcome
	clicked, accepted, told time.Time
	err                     error
}

const (
	canaryEvery  = 150 * time.Millisecond
	canaryWithin = 2 * time.Minute
	firstCanary  = 900_000
)

// newCanaries makes them for all gateways and pushers of the stack.
func (s *stack) newCanaries(sale string) *canaries {
	c := &canaries{s: s, sale: sale}
	for name, p := range s.procs {
		switch kindOf(name) {
		case "gateway":
			c.gateways = append(c.gateways, p.addr)
		case "pusher":
			c.pushers = append(c.pushers, p.addr)
		}
	}
	slices.Sort(c.gateways)
	slices.Sort(c.pushers)
	return c
}

// fly lets them click until land.
func (c *canaries) fly() {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.s.t.Cleanup(stop)
	clients := make([]*apiclient.Client, len(c.gateways))
	for i, g := range c.gateways {
		clients[i] = apiclient.New("http://"+g, 200)
		clients[i].HTTP.Timeout = 8 * time.Second
	}
	c.wg.Go(func() {
		tick := time.NewTicker(canaryEvery)
		defer tick.Stop()
		for n := int64(firstCanary); ; n++ {
			c.wg.Go(func() { c.one(n, clients) })
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// land waits for the last ones, one of which clicked after everything was over, and returns what they were told.
func (c *canaries) land() (told []crowdOutcome) {
	time.Sleep(2 * canaryEvery)
	c.stop()
	c.wg.Wait()
	for _, b := range c.birds {
		if b.err != nil {
			c.s.t.Errorf("canary %d, clicked %s: %v", b.User, b.clicked.Format("05.000"), b.err)
			continue
		}
		told = append(told, b.crowdOutcome)
	}
	return told
}

// toldAfter reports whether somebody who clicked after that was told an order.
func (c *canaries) toldAfter(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.birds, func(b canary) bool { return b.clicked.After(at) && b.err == nil && !b.refused() })
}

// one is the way of one user, who goes to the next gateway or pusher when one does not answer.
func (c *canaries) one(id int64, clients []*apiclient.Client) {
	b := canary{crowdOutcome: crowdOutcome{User: id}, clicked: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), canaryWithin)
	defer cancel()
	b.err = c.buy(ctx, &b, clients)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.birds = append(c.birds, b)
}

func (c *canaries) buy(ctx context.Context, b *canary, clients []*apiclient.Client) error {
	bearer, err := auth.SignHS256([]byte(jwtSecret), b.User, "", "", time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	u := &crowdUser{id: b.User, bearer: bearer, result: make(chan crowdResult, 8)}
	try := 0
	retry := func(what string, do func(n int) error) error {
		for {
			err := do(int(b.User) + try)
			if err == nil {
				return nil
			}
			if !retryable(err) {
				return fmt.Errorf("%s: %w", what, err)
			}
			try++
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s: time is over: %w", what, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	connect := func(n int) error { return u.connect(c.pushers[n%len(c.pushers)], c.sale) }
	if err := retry("connect", connect); err != nil {
		return err
	}
	err = retry("request token", func(n int) (err error) {
		u.token, err = clients[n%len(clients)].RequestToken(ctx, bearer, c.sale)
		return err
	})
	if err != nil {
		return err
	}
	b.Token = u.token
	err = retry("buy", func(n int) error {
		_, _, err := clients[n%len(clients)].Buy(ctx, bearer, c.sale, "C1", u.token, 1)
		return err
	})
	if err != nil {
		return err
	}
	b.accepted = time.Now()
	for {
		select {
		case r := <-u.result:
			b.Status, b.told = r.Status, r.at
			return nil
		case <-u.lost:
			if err := retry("reconnect", connect); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("accepted %s, never told", b.accepted.Format("05.000"))
		}
	}
}

// recoveries sums up how long each kind of fault was felt.
type recoveries struct {
	kinds []string
	of    map[string][]recovery
}

// recovery is one fault: how long until the thing itself answered, until the next click was accepted and told an order,
// and how long the unluckiest waited of those who clicked within a second after it.
type recovery struct{ back, accepted, told, slowest time.Duration }

// add measures these faults by the canaries of their round.
func (r *recoveries) add(faults []kill, c *canaries) {
	if r.of == nil {
		r.of = map[string][]recovery{}
	}
	for _, f := range faults {
		if !slices.Contains(r.kinds, f.kind) {
			r.kinds = append(r.kinds, f.kind)
			slices.Sort(r.kinds)
		}
		r.of[f.kind] = append(r.of[f.kind], c.felt(f))
	}
}

func (c *canaries) felt(f kill) recovery {
	v := recovery{back: f.back}
	first := func(old, d time.Duration) time.Duration {
		if old == 0 || d < old {
			return d
		}
		return old
	}
	for _, b := range c.birds {
		after := b.clicked.Sub(f.at)
		if after < 0 || b.err != nil || b.refused() {
			continue
		}
		v.accepted = first(v.accepted, b.accepted.Sub(f.at))
		v.told = first(v.told, b.told.Sub(f.at))
		if after < time.Second {
			v.slowest = max(v.slowest, b.told.Sub(b.clicked))
		}
	}
	return v
}

// lines has one line for each kind.
func (r *recoveries) lines() (lines []string) {
	for _, kind := range r.kinds {
		all := r.of[kind]
		column := func(get func(recovery) time.Duration) string {
			ds := make([]time.Duration, len(all))
			for i, v := range all {
				ds[i] = get(v)
			}
			slices.Sort(ds)
			return fmt.Sprintf("%.1f/%.1f s", ds[len(ds)/2].Seconds(), ds[len(ds)-1].Seconds())
		}
		lines = append(lines, fmt.Sprintf("%s: %d; median/max until it answers again %s, next accepted %s, next told an order %s, slowest of those who clicked within a second %s",
			kind, len(all), column(func(v recovery) time.Duration { return v.back }), column(func(v recovery) time.Duration { return v.accepted }),
			column(func(v recovery) time.Duration { return v.told }), column(func(v recovery) time.Duration { return v.slowest })))
	}
	return lines
}
