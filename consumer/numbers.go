package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/snowflake"

	"seckill/internal/sale"
)

// Leases is the part of the ledger that hands out names to one holder at a time.
type Leases interface {
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (fence int64, err error)
	RenewLease(ctx context.Context, name, holder string, fence int64, ttl time.Duration) error
	ReleaseLease(ctx context.Context, name, holder string, fence int64) error
}

// nodes is how many snowflake node numbers there are (10 bits).
const nodes = 1024

// ErrNoNode is returned while this process holds no node number.
var ErrNoNode = errors.New("no leased node number: order numbers cannot be made")

// Numbers makes order numbers with a snowflake node number leased in the database, so that no two processes share
// one (S15). When the lease cannot be renewed in time it stops making numbers.
type Numbers struct {
	leases Leases
	holder string
	ttl    time.Duration
	now    func() time.Time
	log    *slog.Logger
	held   atomic.Pointer[heldNode]
}

type heldNode struct {
	node  *snowflake.Node
	name  string
	fence int64
	until time.Time // on this process's clock, counted from before the last renewal
}

// NewNumbers returns a maker for a process of this name, of which 64 characters count. It adds something of its own to the name: a
// lease goes at once to whoever has its holder's name, and two processes may bear one by mistake.
func NewNumbers(leases Leases, name string, ttl time.Duration, now func() time.Time, log *slog.Logger) *Numbers {
	return &Numbers{leases: leases, holder: fmt.Sprintf("%.64s-%s", name, rand.Text()), ttl: ttl, now: now, log: log}
}

// Acquire leases a free node number, trying those after a start given by the holder's name first, so that many
// processes starting together do not all ask for the same.
func (n *Numbers) Acquire(ctx context.Context) error {
	start := 0
	for _, c := range n.holder {
		start = (start*31 + int(c)) % nodes
	}
	for i := range nodes {
		number := int64((start + i) % nodes)
		name := fmt.Sprintf("node-%d", number)
		asked := n.now()
		fence, err := n.leases.AcquireLease(ctx, name, n.holder, n.ttl)
		if errors.Is(err, sale.ErrConflict) {
			continue
		}
		if err != nil {
			return fmt.Errorf("lease node number: %w", err)
		}
		node, err := snowflake.NewNode(number)
		if err != nil {
			return fmt.Errorf("snowflake node %d: %w", number, err)
		}
		n.held.Store(&heldNode{node: node, name: name, fence: fence, until: asked.Add(n.ttl)})
		return nil
	}
	return fmt.Errorf("lease node number: all %d are taken", nodes)
}

// Keep renews the lease until ctx ends, then gives it back. A lease that was lost is replaced by another number.
func (n *Numbers) Keep(ctx context.Context) {
	tick := time.NewTicker(n.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			n.release()
			return
		case <-tick.C:
			n.renew(ctx)
		}
	}
}

func (n *Numbers) renew(ctx context.Context) {
	h := n.held.Load()
	ctx, cancel := context.WithTimeout(ctx, n.ttl/3)
	defer cancel()
	asked := n.now()
	if h != nil {
		err := n.leases.RenewLease(ctx, h.name, n.holder, h.fence, n.ttl)
		if err == nil {
			renewed := *h
			renewed.until = asked.Add(n.ttl)
			n.held.Store(&renewed)
			return
		}
		n.log.Warn("consumer: node lease not renewed", "lease", h.name, "err", err)
		if !errors.Is(err, sale.ErrConflict) {
			return // the lease stands until it runs out
		}
		n.held.Store(nil)
	}
	if err := n.Acquire(ctx); err != nil {
		n.log.Error("consumer: no node number", "err", err)
	}
}

func (n *Numbers) release() {
	h := n.held.Swap(nil)
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.ttl/3)
	defer cancel()
	if err := n.leases.ReleaseLease(ctx, h.name, n.holder, h.fence); err != nil {
		n.log.Warn("consumer: node lease not released; it runs out by itself", "lease", h.name, "err", err)
	}
}

// Next makes the next order number for a user, or ErrNoNode.
func (n *Numbers) Next(userID int64) (string, error) {
	h := n.held.Load()
	if h == nil || !n.now().Before(h.until) {
		return "", ErrNoNode
	}
	return sale.OrderNo(h.node.Generate().Int64(), userID), nil
}
