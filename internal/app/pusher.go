package app

import (
	"context"
	"fmt"
	"time"

	"seckill/internal/push"
	"seckill/internal/sale"
	"seckill/pusher"
)

// rememberedTokens is how many verified tokens a pusher keeps: only those of sockets that come back at once are of use.
const rememberedTokens = 1000

func (a *App) startPusher(_ context.Context) error {
	users, err := a.verifier(a.keysContext(), rememberedTokens)
	if err != nil {
		return err
	}
	cfg := a.cfg.Pusher.Config
	if addr := a.Addr(RoleGateway); addr != "" && len(cfg.Origins) == 0 {
		// The page of the gateway in this process may connect. Browsers name it by whichever of these was typed.
		cfg.Origins = ownOrigins(addr)
	}
	step := failpoint(RolePusher)
	p, err := pusher.New(cfg, pusher.Deps{
		Subscriber: func(h *pusher.Handler) pusher.Subscriber {
			onResults := h.OnResults
			if step != nil {
				onResults = func(shard int, rs []sale.UserResult) { step("arrived"); h.OnResults(shard, rs) }
			}
			return push.NewSubscriber(a.rdb, push.Options{
				ChannelSize: cfg.SubscriberQueue, OnResults: onResults, OnPlaces: h.OnPlaces, OnLive: h.OnLive, OnSubscribed: h.OnSubscribed, OnDropped: h.OnDropped,
				OnError: func(err error) { a.log.Warn("pusher: subscription", "err", err) },
			})
		},
		States: a.stock, Ledger: a.ledger, Users: sessions{users}, Checks: plainChecks(a.checks()),
		Metrics: a.registry, Log: a.log,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	ln := a.listeners[RolePusher]
	a.background("pusher", func(ctx context.Context) error {
		go a.tellPresence(ctx, p)
		return p.Run(ctx, ln, a.cfg.StopGrace)
	})
	return nil
}

// tellPresence tells who is connected to a pusher until ctx ends.
func (a *App) tellPresence(ctx context.Context, p *pusher.Pusher) {
	tell := func() {
		here := p.Presence()
		err := a.publisher.TellPresence(ctx, sale.Presence{
			Node: a.cfg.Node, Sockets: here.Sockets, Users: here.Users, Viewers: here.Viewers, At: time.Now(),
		})
		if err != nil && ctx.Err() == nil {
			a.log.Warn("pusher: presence", "err", err)
		}
	}
	tick := time.NewTicker(push.PresenceEvery)
	defer tick.Stop()
	for tell(); ; tell() {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = a.publisher.ForgetPresence(last, a.cfg.Node) // or it is old soon
			return
		case <-tick.C:
		}
	}
}
