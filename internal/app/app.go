// Package app builds the roles from the configuration, starts them in order, and stops them in reverse. It is the only
// package that knows every other one; it decides nothing about a sale.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"seckill/internal/embedded"
	"seckill/internal/ledger"
	"seckill/internal/push"
	"seckill/internal/queue"
	"seckill/internal/stock"
	"seckill/internal/telemetry"
)

// ErrUsage is returned for a configuration that cannot work; the command line ends with status 2 for it.
var ErrUsage = errors.New("configuration")

// App is one process with its roles.
type App struct {
	cfg      Config
	roles    []string
	log      *slog.Logger
	registry *prometheus.Registry

	embedded  *embedded.Backends
	rdb       redis.UniversalClient
	stock     *stock.Store
	ledger    *ledger.Ledger
	topics    *queue.Topics
	producer  *queue.Producer
	publisher *push.Publisher

	listeners map[string]net.Listener
	cleanups  []cleanup
	rewinds   chan string
	failed    chan error // the first role that ended by itself
}

// cleanup undoes one step of the start. They run last in, first out.
type cleanup struct {
	name string
	do   func() error
}

// New checks the configuration. Nothing is started yet.
func New(cfg Config, roles []string, log *slog.Logger) (*App, error) {
	if err := cfg.validate(roles); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return &App{
		cfg: cfg, roles: roles, log: log, registry: telemetry.NewRegistry(),
		listeners: map[string]net.Listener{}, failed: make(chan error, 8), rewinds: make(chan string, 64),
	}, nil
}

// Config is the effective configuration: with the addresses and secrets that the embedded start has chosen.
func (a *App) Config() Config { return a.cfg }

// Addr is the address a role listens on, once started.
func (a *App) Addr(role string) string {
	if ln, ok := a.listeners[role]; ok {
		return ln.Addr().String()
	}
	return ""
}

// Failed tells when a role has ended by itself.
func (a *App) Failed() <-chan error { return a.failed }

// onStop registers a cleanup.
func (a *App) onStop(name string, do func() error) {
	a.cleanups = append(a.cleanups, cleanup{name, do})
}

// Stop undoes the start, last in, first out, and reports everything that did not go well.
func (a *App) Stop() error {
	var errs []error
	for _, c := range slices.Backward(a.cleanups) {
		start := time.Now()
		if err := c.do(); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", c.name, err))
		}
		a.log.Debug("stopped", "part", c.name, "took", time.Since(start))
	}
	a.cleanups = nil
	return errors.Join(errs...)
}

// Start listens first, so that a port in use is told before anything else happens, then connects the back ends, then
// starts the roles. When it fails, what was started is stopped.
func (a *App) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Stop())
		}
	}()
	if err := a.listen(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StartWait)
	defer cancel()
	if a.cfg.embedded() {
		if err := a.startEmbedded(); err != nil {
			return err
		}
	}
	if err := a.connect(ctx); err != nil {
		return err
	}
	a.background("redis watch", a.watchRedis)
	for _, role := range AllRoles() {
		if !slices.Contains(a.roles, role) {
			continue
		}
		if err := a.startRole(ctx, role); err != nil {
			return fmt.Errorf("start %s: %w", role, err)
		}
	}
	return nil
}

// listen opens the ports of the roles.
func (a *App) listen() error {
	for role, addr := range map[string]string{
		RoleGateway: a.cfg.Gateway.Addr, RolePusher: a.cfg.Pusher.Addr,
		RoleConsumer: a.cfg.Consumer.Addr, RoleReconciler: a.cfg.Reconciler.Addr,
	} {
		if !slices.Contains(a.roles, role) {
			continue
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("%w: the %s cannot listen on %s (choose another with --%s-addr): %w", ErrUsage, role, addr, role, err)
		}
		a.listeners[role] = ln
		a.onStop(role+" port", func() error {
			if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
	}
	return nil
}

// startRole starts one role in the background.
func (a *App) startRole(ctx context.Context, role string) error {
	switch role {
	case RoleConsumer:
		return a.startConsumer(ctx)
	case RoleReconciler:
		return a.startReconciler()
	case RolePusher:
		return a.startPusher(ctx)
	default:
		return a.startGateway(ctx)
	}
}

// background runs a part until its context is cancelled by the cleanup, which waits for it.
func (a *App) background(name string, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var result error
	wg.Go(func() {
		result = run(ctx)
		if ctx.Err() == nil {
			err := fmt.Errorf("%s ended by itself: %w", name, result)
			if result == nil {
				err = fmt.Errorf("%s ended by itself", name)
			}
			select {
			case a.failed <- err:
			default:
			}
		}
	})
	a.onStop(name, func() error {
		cancel()
		wg.Wait()
		return result
	})
}
