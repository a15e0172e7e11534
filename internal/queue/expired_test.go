package queue

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"seckill/internal/sale"
)

// R10: the service stood still for longer than Kafka keeps messages and the group's offsets. There is nothing to read, so the
// group commits nothing; it counts as having passed all there was, else every rebuild would wait for it for ever.
func TestCommittedAfterRetention(t *testing.T) {
	t.Parallel()
	o := ownTopics(fakeBroker(t).ListenAddrs())
	topics := ensureTopics(t, o)
	p := NewProducer(o)
	t.Cleanup(func() { _ = p.Close() })
	var rs []sale.Reservation
	for i := range int64(30) {
		rs = append(rs, orderOf(i+1, 1))
	}
	for _, err := range p.Publish(t.Context(), rs) {
		if err != nil {
			t.Fatal(err)
		}
	}
	ends, err := topics.EndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, err := topics.Committed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for part := range ends {
		if before[part] != 0 {
			t.Errorf("partition %d: the group has read up to %d of a log it never saw", part, before[part])
		}
	}
	trim(t, o, ends)
	after, err := topics.Committed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for part, end := range ends {
		if after[part] != end {
			t.Errorf("partition %d: at %d, want %d", part, after[part], end)
		}
	}
}

// trim deletes what is before these offsets, as Kafka does with what is old.
func trim(t *testing.T, o Options, before map[int]int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(o.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = o.OrdersTopic
	for part, offset := range before {
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Partition, p.Offset = int32(part), offset
		topic.Partitions = append(topic.Partitions, p)
	}
	req := kmsg.NewDeleteRecordsRequest()
	req.TimeoutMillis, req.Topics = 5000, []kmsg.DeleteRecordsRequestTopic{topic}
	res, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range res.Topics[0].Partitions {
		if p.ErrorCode != 0 {
			t.Fatalf("partition %d is not trimmed: %d", p.Partition, p.ErrorCode)
		}
	}
}
