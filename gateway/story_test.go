package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"seckill/internal/sale"
)

// awayStock is a Redis that answers nothing about results.
type awayStock struct{ *fakeStock }

func (awayStock) Result(context.Context, string, string) (sale.UserResult, bool, error) {
	return sale.UserResult{}, false, errors.New("redis is away")
}

// storyLedger knows the story of one token.
type storyLedger struct{ *fakeLedger }

func (storyLedger) StoryOf(_ context.Context, token string) ([]sale.Step, error) {
	if token != "1.known.A1" {
		return nil, nil
	}
	return []sale.Step{{Token: token, UserID: 1, To: sale.TokenOccupied, Role: "consumer", Node: "n1", TraceID: "abc", At: time.UnixMilli(1)}}, nil
}

// S9: the story of a reservation is told while Redis does not answer; of a token without a row nothing is known then.
func TestStoryWithoutRedis(t *testing.T) {
	t.Parallel()
	d := fakeDeps(newFakeStock(1), &fakeQueue{})
	d.Stock, d.Ledger = awayStock{newFakeStock(1)}, storyLedger{d.Ledger.(*fakeLedger)}
	d.Admin = func(token string) bool { return token == "boss" }
	c := serve(t, Config{}, d)
	status, body := c.do("GET", "/admin/v1/reservations/1.known.A1", "boss", "")
	if status != 200 || !strings.Contains(body, `"userId":"1"`) || !strings.Contains(body, `"traceId":"abc"`) || strings.Contains(body, `"redis"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := c.do("GET", "/admin/v1/reservations/1.unknown.A1", "boss", ""); status != 503 {
		t.Errorf("an undecided token: %d %s", status, body)
	}
}

// S9: the trace id of an order request travels with its message.
func TestTraceTravelsWithTheMessage(t *testing.T) {
	t.Parallel()
	q := &fakeQueue{}
	c := serve(t, Config{}, fakeDeps(newFakeStock(5), q))
	if status, body := c.buy(1, "a"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.got) != 1 || len(q.got[0].TraceID) != 32 {
		t.Errorf("published %+v", q.got)
	}
}
