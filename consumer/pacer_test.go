package consumer

import (
	"testing"
	"testing/synctest"
	"time"
)

// S18: a configured rate of the group is kept, in the share of this member.
func TestFixedRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(Config{RatePerSecond: 1000, PaceBurst: 100}.WithDefaults(), func() float64 { return 0.5 }, time.Now)
		start := time.Now()
		for range 20 {
			if err := p.wait(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
		// 2,000 messages at 500/s, of which the first 100 pass at once.
		if took := time.Since(start); took < 3700*time.Millisecond || took > 3900*time.Millisecond {
			t.Errorf("2000 messages took %v, want 3.8 s", took)
		}
	})
}

// S18: without one the rate is found about 20 % below what the database takes, follows it down, and failures halve it.
func TestFindsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(Config{FindRate: true}.WithDefaults(), func() float64 { return 1 }, time.Now)
		commit := func(perSecond float64) {
			if err := p.wait(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
			p.begin()
			time.Sleep(time.Duration(100 / perSecond * float64(time.Second)))
			p.end(100)
		}
		run := func(perSecond float64, rounds int) (committed float64) {
			start := time.Now()
			for range rounds {
				commit(perSecond)
			}
			return float64(rounds*100) / time.Since(start).Seconds()
		}
		run(2000, 300)
		if got := run(2000, 300); got < 1500 || got > 1700 {
			t.Errorf("committed %.0f/s where the database takes 2000/s, want about 1600", got)
		}
		run(500, 200)
		if got := run(500, 200); got < 375 || got > 425 {
			t.Errorf("committed %.0f/s where the database takes 500/s, want about 400", got)
		}
		before := p.rateNow()
		p.begin()
		p.end(0)
		p.set()
		if after := p.rateNow(); after > before*0.6 {
			t.Errorf("a failure left the rate at %.0f of %.0f", after, before)
		}
	})
}
