package consumer

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/sale"
)

// metrics are the consumer's own figures.
type metrics struct {
	batch   prometheus.Histogram
	seconds prometheus.Histogram
	orders  *prometheus.CounterVec
	dead    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, lag func() map[int]int64, pace func() float64, waiting func() backlogReport) *metrics {
	m := &metrics{
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_commit_batch_size", Help: "Messages decided in one transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_commit_seconds", Help: "Time of the deciding transaction.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		orders: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_orders_total", Help: "Decisions by the status they were told with; repeats are counted as repeated.",
		}, []string{"status"}),
		dead: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_dead_letters_total", Help: "Messages parked, by reason.",
		}, []string{"reason"}),
	}
	reg.MustRegister(m.batch, m.seconds, m.orders, m.dead)
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "seckill_commit_rate", Help: "Orders a second this process may commit; 0 without a limit.",
	}, pace))
	reg.MustRegister(backlogCollector{waiting})
	if lag != nil {
		reg.MustRegister(lagCollector{lag: lag})
	}
	return m
}

func (m *metrics) committed(ds []sale.Decision, took time.Duration) {
	m.batch.Observe(float64(len(ds)))
	m.seconds.Observe(took.Seconds())
	for i := range ds {
		status := string(ds[i].Status)
		if ds[i].Repeated {
			status = "repeated"
		}
		m.orders.WithLabelValues(status).Inc()
	}
}

var lagDesc = prometheus.NewDesc("seckill_consumer_lag", "Messages not yet fetched, by partition owned here.", []string{"partition"}, nil)

// lagCollector reads the lag when it is scraped.
type lagCollector struct{ lag func() map[int]int64 }

func (l lagCollector) Describe(ch chan<- *prometheus.Desc) { ch <- lagDesc }

func (l lagCollector) Collect(ch chan<- prometheus.Metric) {
	for p, n := range l.lag() {
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(n), strconv.Itoa(p))
	}
}

var (
	drainDesc = prometheus.NewDesc("seckill_backlog_drain_seconds",
		"Time until nothing waits in the partitions owned here, if arrivals and commits stay as they are; 0 without a backlog, +Inf while it grows.", nil, nil)
	causeDesc = prometheus.NewDesc("seckill_backlog_cause",
		"1 for what the present backlog comes from: burst, more arrives than is committed; slow_commits, batches take longer than they use to.", []string{"cause"}, nil)
	arrivalDesc = prometheus.NewDesc("seckill_arrivals_per_second", "Messages that came into the partitions owned here.", nil, nil)
	handledDesc = prometheus.NewDesc("seckill_handled_per_second", "Messages decided, settled and told here.", nil, nil)
)

// backlogCollector reads the report when it is scraped (S41).
type backlogCollector struct{ report func() backlogReport }

func (b backlogCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- drainDesc
	ch <- causeDesc
	ch <- arrivalDesc
	ch <- handledDesc
}

func (b backlogCollector) Collect(ch chan<- prometheus.Metric) {
	r := b.report()
	drain := r.drain.Seconds()
	if r.drain == math.MaxInt64 {
		drain = math.Inf(1)
	}
	ch <- prometheus.MustNewConstMetric(drainDesc, prometheus.GaugeValue, drain)
	for _, cause := range []string{causeBurst, causeSlow} {
		is := 0.0
		if r.cause == cause {
			is = 1
		}
		ch <- prometheus.MustNewConstMetric(causeDesc, prometheus.GaugeValue, is, cause)
	}
	ch <- prometheus.MustNewConstMetric(arrivalDesc, prometheus.GaugeValue, r.arrivals)
	ch <- prometheus.MustNewConstMetric(handledDesc, prometheus.GaugeValue, r.commits)
}
