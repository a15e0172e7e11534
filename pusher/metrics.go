package pusher

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/hub"
)

// metrics are the pusher's own figures. Labels have few values.
type metrics struct {
	push    prometheus.Histogram
	closes  *prometheus.CounterVec
	dropped prometheus.Counter
	found   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, h *hub.Hub) *metrics {
	const droppedName, droppedHelp = "seckill_push_dropped_total",
		"Messages not passed on. slow: sockets closed because their queue was full; subscriber: lost before the hub, then " +
			"read again; stale: older than what the socket had."
	reason := func(s string) prometheus.Labels { return prometheus.Labels{"reason": s} }
	m := &metrics{
		push: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_push_seconds", Help: "From a result's arrival at this process until it is written to a socket.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18),
		}),
		closes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_socket_closes_total", Help: "Sockets ended, by the close code sent; none when the connection was gone.",
		}, []string{"code"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: droppedName, Help: droppedHelp, ConstLabels: reason("subscriber"),
		}),
	}
	m.found = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seckill_push_found_total", Help: "Results that reading users' states again has found untold: after a new " +
			"subscription or a loss, and by the periodic check.",
	})
	reg.MustRegister(m.push, m.closes, m.dropped, m.found,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "seckill_sockets", Help: "Sockets open here.",
		}, func() float64 { return float64(h.Sockets()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "seckill_socket_users", Help: "Users with at least one socket here.",
		}, func() float64 { return float64(h.Presence().Users) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: droppedName, Help: droppedHelp, ConstLabels: reason("slow"),
		}, func() float64 { return float64(h.Stats().Slow) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: droppedName, Help: droppedHelp, ConstLabels: reason("stale"),
		}, func() float64 { return float64(h.Stats().Stale) }),
	)
	return m
}

// closed counts the end of a socket. The peer's own codes count as one, so that it cannot make labels.
func (m *metrics) closed(reason error) {
	code, _ := closeCode(reason)
	label := "none"
	switch {
	case isPeers(reason):
		label = "peer"
	case code != 0:
		label = strconv.Itoa(code)
	}
	m.closes.WithLabelValues(label).Inc()
}
