package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

// Topics creates and checks the topics, and reads their offsets.
type Topics struct {
	o      Options
	client *kafka.Client
}

// NewTopics returns the topic administrator. It connects lazily.
func NewTopics(o Options) *Topics {
	o = o.WithDefaults()
	return &Topics{o: o, client: &kafka.Client{Addr: kafka.TCP(o.Brokers...), Timeout: 10 * time.Second, Transport: transport(o)}}
}

func transport(o Options) *kafka.Transport {
	return &kafka.Transport{
		DialTimeout: o.DialTimeout,
		ClientID:    "seckill",
		// Idle connections close well before middle boxes forget them (FS-040).
		IdleTimeout: 30 * time.Second,
		MetadataTTL: 5 * time.Second,
	}
}

// Ensure creates the topics that are missing and checks those that are there: an orders topic with fewer partitions
// or replicas than configured is an error that says so, since keys would move if partitions were added silently. It
// returns once every partition has a leader, so that the first publish works (FS-043).
func (t *Topics) Ensure(ctx context.Context) error {
	for _, topic := range t.topics() {
		// A broker that has just come up refuses for a while; what it will always refuse is told when ctx ends.
		for {
			err := t.create(ctx, topic.name, topic.partitions)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("create topic %s: %w", topic.name, err)
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	for {
		err := t.check(ctx)
		var wait notYet
		if err == nil {
			return t.checkDurability(ctx)
		}
		if !errors.As(err, &wait) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type topicPlan struct {
	name       string
	partitions int
}

func (t *Topics) topics() []topicPlan {
	return []topicPlan{{t.o.OrdersTopic, t.o.PartitionCount()}, {t.o.DeadTopic, 1}, {t.o.ResultsTopic, t.o.PartitionCount()}}
}

func (t *Topics) create(ctx context.Context, name string, partitions int) error {
	res, err := t.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: name, NumPartitions: partitions, ReplicationFactor: t.o.Replication,
		ConfigEntries: []kafka.ConfigEntry{
			{ConfigName: "min.insync.replicas", ConfigValue: strconv.Itoa(t.o.MinInSyncReplicas)},
		},
	}}})
	if err != nil {
		return err
	}
	if err := res.Errors[name]; err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		return err
	}
	return nil
}

type notYet struct{ what string }

func (e notYet) Error() string { return "not ready yet: " + e.what }

// check reads the metadata and compares it with the plan.
func (t *Topics) check(ctx context.Context) error {
	names := make([]string, 0, 3)
	for _, topic := range t.topics() {
		names = append(names, topic.name)
	}
	res, err := t.client.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
	if err != nil {
		return fmt.Errorf("read topic metadata: %w", err)
	}
	if len(res.Topics) != len(names) {
		return notYet{fmt.Sprintf("%d of %d topics known", len(res.Topics), len(names))}
	}
	for i, topic := range res.Topics {
		if topic.Error != nil {
			return notYet{topic.Name + ": " + topic.Error.Error()}
		}
		want := t.topics()[i].partitions
		if topic.Name != names[i] {
			return notYet{"answer for another topic: " + topic.Name}
		}
		if len(topic.Partitions) < want {
			return fmt.Errorf("topic %s has %d partitions, configuration asks for %d: add them by hand, or lower kafka.partitions",
				topic.Name, len(topic.Partitions), want)
		}
		for _, p := range topic.Partitions {
			if p.Error != nil || p.Leader.Host == "" {
				return notYet{fmt.Sprintf("%s/%d has no leader", topic.Name, p.ID)}
			}
			if len(p.Replicas) < t.o.Replication {
				return fmt.Errorf("topic %s partition %d has %d replicas, configuration asks for %d",
					topic.Name, p.ID, len(p.Replicas), t.o.Replication)
			}
		}
	}
	return nil
}

// checkDurability reads min.insync.replicas back: a topic that was there before may ask for fewer than configured, and
// "acks from all" would then mean less than it says (S10).
func (t *Topics) checkDurability(ctx context.Context) error {
	const key = "min.insync.replicas"
	var resources []kafka.DescribeConfigRequestResource
	for _, topic := range t.topics() {
		resources = append(resources, kafka.DescribeConfigRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic.name, ConfigNames: []string{key},
		})
	}
	res, err := t.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: resources})
	if err != nil {
		return fmt.Errorf("read topic configuration: %w", err)
	}
	for _, r := range res.Resources {
		for _, entry := range r.ConfigEntries {
			n, err := strconv.Atoi(entry.ConfigValue)
			if entry.ConfigName == key && err == nil && n < t.o.MinInSyncReplicas {
				return fmt.Errorf("topic %s has %s %d, configuration asks for %d", r.ResourceName, key, n, t.o.MinInSyncReplicas)
			}
		}
	}
	return nil
}

// Ping reports whether the leader of every orders partition answers. It asks them: the client's metadata is a cache
// that outlives its broker.
func (t *Topics) Ping(ctx context.Context) error {
	_, err := t.EndOffsets(ctx)
	return err
}

// EndOffsets returns, for each partition of the orders topic, the offset after its last message (R10).
func (t *Topics) EndOffsets(ctx context.Context) (map[int]int64, error) {
	parts, err := t.partitions(ctx)
	if err != nil {
		return nil, err
	}
	reqs := make([]kafka.OffsetRequest, 0, len(parts))
	for _, p := range parts {
		reqs = append(reqs, kafka.LastOffsetOf(p))
	}
	res, err := t.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{t.o.OrdersTopic: reqs}})
	if err != nil {
		return nil, fmt.Errorf("list end offsets: %w", err)
	}
	ends := make(map[int]int64, len(parts))
	for _, p := range res.Topics[t.o.OrdersTopic] {
		if p.Error != nil {
			return nil, fmt.Errorf("list end offset of partition %d: %w", p.Partition, p.Error)
		}
		ends[p.Partition] = p.LastOffset
	}
	if len(ends) != len(parts) {
		return nil, fmt.Errorf("list end offsets: %d of %d partitions answered", len(ends), len(parts))
	}
	return ends, nil
}

// Committed returns, for each partition of the orders topic, the offset the group will read next: what it has committed, but
// never less than the first that is still there. A group that stood still for longer than Kafka keeps offsets and messages
// has none of either, and nothing to read.
func (t *Topics) Committed(ctx context.Context) (map[int]int64, error) {
	parts, err := t.partitions(ctx)
	if err != nil {
		return nil, err
	}
	res, err := t.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: t.o.Group, Topics: map[string][]int{t.o.OrdersTopic: parts}})
	if err != nil {
		return nil, fmt.Errorf("fetch committed offsets: %w", err)
	}
	// A group that no member ever joined has read nothing.
	if res.Error != nil && !errors.Is(res.Error, kafka.GroupIdNotFound) {
		return nil, fmt.Errorf("fetch committed offsets: %w", res.Error)
	}
	committed, err := t.firstOffsets(ctx, parts)
	if err != nil {
		return nil, err
	}
	for _, p := range res.Topics[t.o.OrdersTopic] {
		if p.Error != nil {
			return nil, fmt.Errorf("committed offset of partition %d: %w", p.Partition, p.Error)
		}
		committed[p.Partition] = max(committed[p.Partition], p.CommittedOffset)
	}
	return committed, nil
}

// firstOffsets are the first that are still there.
func (t *Topics) firstOffsets(ctx context.Context, parts []int) (map[int]int64, error) {
	reqs := make([]kafka.OffsetRequest, 0, len(parts))
	for _, p := range parts {
		reqs = append(reqs, kafka.FirstOffsetOf(p))
	}
	res, err := t.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{t.o.OrdersTopic: reqs}})
	if err != nil {
		return nil, fmt.Errorf("list first offsets: %w", err)
	}
	first := make(map[int]int64, len(parts))
	for _, p := range parts {
		first[p] = 0
	}
	for _, p := range res.Topics[t.o.OrdersTopic] {
		if p.Error != nil {
			return nil, fmt.Errorf("list first offset of partition %d: %w", p.Partition, p.Error)
		}
		first[p.Partition] = max(0, p.FirstOffset)
	}
	return first, nil
}

func (t *Topics) partitions(ctx context.Context) ([]int, error) {
	res, err := t.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{t.o.OrdersTopic}})
	if err != nil {
		return nil, fmt.Errorf("read topic metadata: %w", err)
	}
	if len(res.Topics) != 1 || res.Topics[0].Error != nil || len(res.Topics[0].Partitions) == 0 {
		return nil, fmt.Errorf("topic %s is not ready", t.o.OrdersTopic)
	}
	ids := make([]int, 0, len(res.Topics[0].Partitions))
	for _, p := range res.Topics[0].Partitions {
		ids = append(ids, p.ID)
	}
	return ids, nil
}
