package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the gateway's own figures. Labels have few values: route names, not paths (FS-095).
type metrics struct {
	requests      *prometheus.CounterVec
	reserved      *prometheus.CounterVec
	published     prometheus.Histogram
	publishFailed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_requests_total", Help: "Requests answered, by route and HTTP status.",
		}, []string{"route", "code"}),
		reserved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_reserve_total", Help: "Order requests by what the pre-deduct said.",
		}, []string{"outcome"}),
		published: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_publish_seconds", Help: "Time until the broker acknowledged a publish call.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		publishFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_publish_uncertain_total", Help: "Reservations whose publish was not acknowledged and is left to the relay.",
		}),
	}
	reg.MustRegister(m.requests, m.reserved, m.published, m.publishFailed)
	return m
}

func statusLabel(status int) string { return strconv.Itoa(status) }
