package queue

import (
	"log/slog"
	"time"
)

// Options configures topics, producer and group. Zero values mean the defaults stated here.
type Options struct {
	Brokers           []string      // host:port of one or more brokers; required
	OrdersTopic       string        // default seckill.orders
	DeadTopic         string        // default seckill.orders.dead
	ResultsTopic      string        // default seckill.results
	Group             string        // consumer group; default seckill-consumer
	Partitions        int           // of the orders topic; default: what PeakPerSecond needs, at least 3
	PeakPerSecond     int           // orders accepted a second at the peak, to plan partitions; default 6000
	PerPartition      int           // messages a second that one partition takes; default 2000
	Replication       int           // default 1; use 3 on a cluster
	MinInSyncReplicas int           // default 1; use 2 on a cluster
	BatchTimeout      time.Duration // how long the writer waits for company; default 1 ms
	BatchSize         int           // messages of one produce request to one partition; default 1000
	BatchBytes        int64         // bytes of the same; default 1 MiB
	PublishTimeout    time.Duration // until a publish counts as uncertain; default 2 s
	CloseTimeout      time.Duration // of the producer's end, for what is still being written; default 3 s
	DialTimeout       time.Duration // default 3 s
	MaxMessageBytes   int           // a longer message is malformed; default 8 KiB
	FetchBatch        int           // messages handed to the consumer at once; default 500
	FetchLinger       time.Duration // wait for more once a first message is there; default 2 ms
	FetchWait         time.Duration // long poll of an idle partition; default 250 ms
	SessionTimeout    time.Duration // after which a silent member is expelled; default 10 s
	RebalanceTimeout  time.Duration // default 10 s
	LeaveTimeout      time.Duration // of leaving the group at the end; default 3 s
	RetryBackoffMax   time.Duration // longest wait between attempts to join or to reach a broker; default 2 s
	Log               *slog.Logger  // default slog.Default
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	def(&o.OrdersTopic, "seckill.orders")
	def(&o.DeadTopic, "seckill.orders.dead")
	def(&o.ResultsTopic, "seckill.results")
	def(&o.Group, "seckill-consumer")
	def(&o.PeakPerSecond, 6000)
	def(&o.PerPartition, 2000)
	def(&o.Replication, 1)
	def(&o.MinInSyncReplicas, 1)
	def(&o.BatchTimeout, time.Millisecond)
	def(&o.BatchSize, 1000)
	def(&o.BatchBytes, 1<<20)
	def(&o.PublishTimeout, 2*time.Second)
	def(&o.CloseTimeout, 3*time.Second)
	def(&o.DialTimeout, 3*time.Second)
	def(&o.MaxMessageBytes, 8<<10)
	def(&o.FetchBatch, 500)
	def(&o.FetchLinger, 2*time.Millisecond)
	def(&o.FetchWait, 250*time.Millisecond)
	def(&o.SessionTimeout, 10*time.Second)
	def(&o.RebalanceTimeout, 10*time.Second)
	def(&o.LeaveTimeout, 3*time.Second)
	def(&o.RetryBackoffMax, 2*time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// PartitionCount is how many partitions the orders topic has: as configured, else as planned.
func (o Options) PartitionCount() int {
	if o.Partitions > 0 {
		return o.Partitions
	}
	return Partitions(o.PeakPerSecond, o.PerPartition)
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Partitions is how many partitions a peak of orders needs: peak divided by what one partition takes, rounded up,
// at least 3 (S10). Both rates are messages per second.
func Partitions(peak, perPartition int) int {
	if peak <= 0 || perPartition <= 0 {
		return 3
	}
	return max(3, (peak+perPartition-1)/perPartition)
}
