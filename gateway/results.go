package gateway

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// waitStep is how often a long poll looks at Redis.
const waitStep = 150 * time.Millisecond

// getResult answers the state of a request token (S30). With ?wait= it holds the answer until the version grows.
func (g *Gateway) getResult(ctx *fasthttp.RequestCtx, r request) error {
	user, err := g.reader(ctx)
	if err != nil {
		return err
	}
	wait, version, err := g.waitParams(ctx)
	if err != nil {
		return err
	}
	token := r.params[0]
	activityID, _, err := g.tokens.Verify(token, user)
	if err != nil {
		return fmt.Errorf("result: %w", sale.ErrNotFound) // another's, forged or malformed: not theirs to see (FS-076)
	}
	res, err := g.findResult(activityID, token, user)
	if err != nil {
		return err
	}
	if wait > 0 && !newer(res, version) {
		res = g.awaitResult(activityID, token, user, wait, version, res)
	}
	return g.writeResult(ctx, fasthttp.StatusOK, res)
}

// waitParams reads ?wait=20s&version=N; version is -1 when it is not given.
func (g *Gateway) waitParams(ctx *fasthttp.RequestCtx) (wait time.Duration, version int64, err error) {
	version = -1
	args := ctx.QueryArgs()
	if s := string(args.Peek("wait")); s != "" {
		wait, err = time.ParseDuration(s)
		if err != nil || wait < 0 || wait > g.cfg.MaxWait {
			return 0, 0, refuse(sale.CodeInvalidRequest, "wait: must be a duration of at most "+g.cfg.MaxWait.String())
		}
	}
	if s := string(args.Peek("version")); s != "" {
		version, err = strconv.ParseInt(s, 10, 64)
		if err != nil || version < 0 {
			return 0, 0, refuse(sale.CodeInvalidRequest, "version: must be a number of at least 0")
		}
	}
	return wait, version, nil
}

// newer: without a version, anything decided; with one, anything above it.
func newer(r sale.Result, version int64) bool {
	if version < 0 {
		return r.Status != sale.StatusProcessing
	}
	return r.Version > version
}

// awaitResult looks again until the result is newer, the time is over, or the gateway stops.
func (g *Gateway) awaitResult(activityID, token string, user int64, wait time.Duration, version int64, last sale.Result) sale.Result {
	if g.waiters.Add(1) > int64(g.cfg.MaxWaiters) {
		g.waiters.Add(-1)
		return last
	}
	defer g.waiters.Add(-1)
	end := time.NewTimer(wait)
	defer end.Stop()
	step := time.NewTicker(waitStep)
	defer step.Stop()
	for {
		select {
		case <-end.C:
			return last
		case <-step.C:
			if g.draining.Load() {
				return last
			}
			// On a failure the state read before is still a true answer.
			if res, err := g.findResult(activityID, token, user); err == nil {
				last = res
			}
			if newer(last, version) {
				return last
			}
		}
	}
}

// findResult reads a result from Redis, and on a miss from the database, replica then primary (S30, S31, R18).
func (g *Gateway) findResult(activityID, token string, user int64) (sale.Result, error) {
	ctx, cancel := g.storeContext()
	defer cancel()
	res, ok, err := g.stock.Result(ctx, activityID, token)
	if err == nil && ok {
		if res.UserID != user {
			return sale.Result{}, fmt.Errorf("result: %w", sale.ErrNotFound)
		}
		return res.Result, nil
	}
	if err != nil {
		g.log.Warn("gateway: result from redis", "err", err)
	}
	d, dbErr := g.ledger.DecisionByToken(ctx, activityID, user, token, 1)
	switch {
	case dbErr == nil:
		return d.Result(), nil
	case errors.Is(dbErr, sale.ErrNotFound) && err != nil:
		// Undecided requests live in Redis, which did not answer: not known is not the same as not there.
		return sale.Result{}, retryLater(sale.CodeOverloaded, "busy, please try again", time.Second)
	}
	return sale.Result{}, dbErr
}

// me answers what a client that lost its token asks: does this user take part, and how does it stand.
func (g *Gateway) me(ctx *fasthttp.RequestCtx, r request) error {
	user, err := g.reader(ctx)
	if err != nil {
		return err
	}
	e, err := g.activity(r.params[0])
	if err != nil {
		return err
	}
	b := append(ctx.Response.Body()[:0], `{"activityId":"`...)
	b = append(b, e.ID...)
	b = append(b, `","state":"`...)
	b = append(b, e.state(g.now())...)
	b = append(b, '"')
	res, err := g.resultOfUser(e.ID, user)
	if err != nil && !errors.Is(err, sale.ErrNotFound) {
		return err
	}
	if err == nil {
		if res.Status == sale.StatusProcessing {
			res.PollAfter = g.pollAfter(e.ID)
		}
		b = append(res.AppendFields(append(b, `,"result":{`...)), '}')
	}
	if err != nil || res.Status == sale.StatusSoldOut || res.Status == sale.StatusFailed {
		b = g.appendPlace(b, e, user) // who has no order may wait for one
	}
	writeJSON(ctx, fasthttp.StatusOK, append(b, '}'))
	return nil
}

// resultOfUser finds the user's result in a sale by the participation mark, else by the order or refusal.
func (g *Gateway) resultOfUser(activityID string, user int64) (sale.Result, error) {
	ctx, cancel := g.storeContext()
	defer cancel()
	token, ok, err := g.stock.Mark(ctx, activityID, user)
	if err != nil {
		g.log.Warn("gateway: mark from redis", "err", err)
	}
	if err == nil && ok {
		res, err := g.findResult(activityID, token, user)
		if !errors.Is(err, sale.ErrNotFound) {
			return res, err
		}
	}
	d, dbErr := g.ledger.DecisionOfUser(ctx, activityID, user)
	if dbErr == nil {
		return d.Result(), nil
	}
	if errors.Is(dbErr, sale.ErrNotFound) && err != nil {
		return sale.Result{}, retryLater(sale.CodeOverloaded, "busy, please try again", time.Second)
	}
	return sale.Result{}, dbErr
}
