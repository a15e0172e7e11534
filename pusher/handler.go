package pusher

import (
	"time"

	"seckill/hub"
	"seckill/internal/sale"
)

// Handler is what a subscriber calls, from one goroutine at a time. Its methods only queue.
type Handler struct{ p *Pusher }

// OnResults takes results of a shard's users and queues each for the sockets that its user has here. The frame is
// encoded once and shared by them.
func (h *Handler) OnResults(_ int, rs []sale.UserResult) {
	at := time.Now().UnixNano()
	for i := range rs {
		if r := &rs[i]; h.p.hub.Online(r.UserID) {
			h.p.hub.Deliver(r.UserID, messageOf(&r.Result, at))
		}
	}
}

// OnPlaces takes places in waitlists. The newest place of a waitlist replaces one that waits to be written.
func (h *Handler) OnPlaces(_ int, ps []sale.Place) {
	at := time.Now().UnixNano()
	for i := range ps {
		if p := &ps[i]; h.p.hub.Online(p.UserID) {
			h.p.hub.Deliver(p.UserID, hub.Message{
				Key: "waitlist:" + p.ActivityID + ":" + p.CommodityID, Version: p.At.UnixMilli(), Data: placeFrame(p), At: at,
			})
		}
	}
}

// OnLive takes the state of a sale and queues it for all who look at it.
func (h *Handler) OnLive(l sale.Live) {
	if h.p.board.arrived(l) {
		h.p.rereadAll()
	}
}

// OnSubscribed is told when a shard's channel is subscribed, the first time or again: those who wait for it go on, and
// what may have been missed is read (S29).
func (h *Handler) OnSubscribed(shard int) {
	if shard < 0 || shard >= h.p.hub.Shards() {
		return
	}
	h.p.reader.subscribed(shard)
	if h.p.hub.ShardActive(shard) {
		h.p.reader.again(shard)
	}
}

// OnDropped is told that n messages were lost before they reached the hub. OnSubscribed follows for their shards.
func (h *Handler) OnDropped(n int) {
	h.p.metrics.dropped.Add(float64(n))
	h.p.log.Warn("pusher: messages were dropped because the handler fell behind; they are read again", "messages", n)
}
