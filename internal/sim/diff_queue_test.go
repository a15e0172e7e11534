package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/shopspring/decimal"

	"seckill/internal/embedded"
	"seckill/internal/queue"
	"seckill/internal/sale"
	"seckill/internal/testenv"
)

// The simulation proves the product only if its broker keeps and gives what a Kafka does: random histories of publish,
// fetch, commit and rebalance, call by call. The members speak the group's protocol themselves, so that one which has
// lost its partitions can still try to commit.
func TestBrokerKeepsWhatKafkaKeeps(t *testing.T) {
	t.Parallel()
	t.Run("kfake", func(t *testing.T) {
		b, err := embedded.Start("")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		compareBrokers(t, b.KafkaBrokers, histories(200))
	})
	t.Run("kafka", func(t *testing.T) {
		compareBrokers(t, strings.Split(testenv.Kafka(t), ","), histories(60))
	})
}

// A history is some fifteen calls on one topic that all histories share, each with generations of its own.
func compareBrokers(t *testing.T, brokers []string, n int) {
	h := newQueueHistory(t, brokers)
	for seed := range uint64(n) {
		h.r, h.log = rand.New(rand.NewPCG(seed, 11)), nil
		h.rebalance(t.Context())
		for range 15 {
			h.step(t.Context())
			if h.wrong != "" {
				t.Fatalf("history %d: %s\nafter\n%s", seed, h.wrong, strings.Join(h.log, "\n"))
			}
		}
	}
	t.Logf("%d messages, %d generations, %d commits, %d of them refused", h.sent, h.generations, h.commits, h.refused)
}

const queuePartitions = 3

// queueHistory drives a Kafka and the simulation's broker with the same calls.
type queueHistory struct {
	r      *rand.Rand
	o      queue.Options
	topics *queue.Topics
	out    *queue.Producer
	client *kafka.Client
	twin   *broker

	now, before groupMember // the member that has the partitions, and the one that had them
	log         []string
	wrong       string

	sent, generations, commits, refused int
}

// groupMember is one member in one generation, on both sides.
type groupMember struct {
	id         string
	generation int
	twins      [queuePartitions]*member // nil before there is one
}

func newQueueHistory(t *testing.T, brokers []string) *queueHistory {
	t.Helper()
	id := "sim" + strconv.FormatUint(uint64(rand.Uint32()), 36)
	h := &queueHistory{o: queue.Options{
		Brokers: brokers, OrdersTopic: id + ".orders", DeadTopic: id + ".dead", ResultsTopic: id + ".results", Group: id,
		Partitions: queuePartitions, PublishTimeout: 15 * time.Second,
	}}
	h.topics, h.out = queue.NewTopics(h.o), queue.NewProducer(h.o)
	t.Cleanup(func() { _ = h.out.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := h.topics.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	h.client = &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 20 * time.Second}
	w := newWorld(Config{})
	w.calm = true
	h.twin = newBroker(w, queuePartitions)
	h.twin.partOf = func(user int64, partitions int) int {
		all := make([]int, partitions)
		for i := range all {
			all[i] = i
		}
		return (&kafka.Hash{}).Balance(kafka.Message{Key: strconv.AppendInt(nil, user, 10)}, all...)
	}
	return h
}

func (h *queueHistory) step(ctx context.Context) {
	steps := []func(context.Context){h.publish, h.publish, h.fetch, h.fetch, h.fetch, h.commit, h.commit, h.lateCommit, h.offsets, h.offsets}
	steps[h.r.IntN(len(steps))](ctx)
	if h.r.IntN(12) == 0 {
		h.rebalance(ctx)
	}
}

// both notes what the two sides say of one call.
func (h *queueHistory) both(name, real, twin string) {
	h.log = append(h.log, name+" -> "+real)
	if real != twin && h.wrong == "" {
		h.wrong = fmt.Sprintf("%s\nreal: %s\ntwin: %s", name, real, twin)
	}
}

func (h *queueHistory) publish(ctx context.Context) {
	var rs []sale.Reservation
	for range 1 + h.r.IntN(4) {
		h.sent++
		rs = append(rs, sale.Reservation{
			Token: "m" + strconv.Itoa(h.sent), UserID: int64(1 + h.r.IntN(12)), ActivityID: "A", CommodityID: "C", Price: decimal.New(9900, -2),
			Quantity: 1, Epoch: 1, At: time.UnixMilli(1_700_000_000_000),
		})
	}
	errs := h.out.Publish(ctx, rs)
	for i := range rs {
		if errs == nil || errs[i] == nil {
			h.twin.append(rs[i])
		}
	}
	h.both(fmt.Sprintf("publish %d up to m%d", len(rs), h.sent), fmt.Sprint(errs), "[]")
}

// rebalance gives all partitions to another member, or to the same one anew, from where the group is.
func (h *queueHistory) rebalance(ctx context.Context) {
	h.before = h.now
	id := h.now.id
	if id != "" && h.r.IntN(2) == 0 { // it leaves, and another one comes
		res, err := h.client.LeaveGroup(ctx, &kafka.LeaveGroupRequest{GroupID: h.o.Group, Members: []kafka.LeaveGroupRequestMember{{ID: id}}})
		if err == nil {
			err = res.Error
		}
		h.both("leave", fmt.Sprint(err), "<nil>")
		id = ""
	}
	var err error
	if h.now, err = h.join(ctx, id); err != nil {
		h.wrong = "join: " + err.Error()
		return
	}
	h.generations++
	owner := h.twin.w.spawn("consumer")
	for i := range h.now.twins {
		h.now.twins[i] = h.twin.give(i, owner)
	}
	h.log = append(h.log, fmt.Sprintf("generation %d", h.now.generation))
	h.offsets(ctx)
}

// join makes a member the only one of the group.
func (h *queueHistory) join(ctx context.Context, id string) (m groupMember, err error) {
	for range 3 {
		var res *kafka.JoinGroupResponse
		res, err = h.client.JoinGroup(ctx, &kafka.JoinGroupRequest{
			GroupID: h.o.Group, MemberID: id, SessionTimeout: 5 * time.Minute, RebalanceTimeout: 10 * time.Second, ProtocolType: "consumer",
			Protocols: []kafka.GroupProtocol{{Name: "range", Metadata: kafka.GroupProtocolSubscription{Topics: []string{h.o.OrdersTopic}}}},
		})
		if err != nil {
			return m, err
		}
		if errors.Is(res.Error, kafka.MemberIDRequired) {
			id = res.MemberID
			continue
		}
		if err = res.Error; err != nil {
			return m, err
		}
		m.id, m.generation = res.MemberID, res.GenerationID
		break
	}
	all := make([]int, queuePartitions)
	for i := range all {
		all[i] = i
	}
	sync, err := h.client.SyncGroup(ctx, &kafka.SyncGroupRequest{
		GroupID: h.o.Group, GenerationID: m.generation, MemberID: m.id, ProtocolType: "consumer", ProtocolName: "range",
		Assignments: []kafka.SyncGroupRequestAssignment{{MemberID: m.id, Assignment: kafka.GroupProtocolAssignment{
			AssignedPartitions: map[string][]int{h.o.OrdersTopic: all},
		}}},
	})
	if err == nil {
		err = sync.Error
	}
	return m, err
}

// fetch reads a partition on, as far as the twin does; at its end there is nothing more on either side.
func (h *queueHistory) fetch(ctx context.Context) {
	m := h.now.twins[h.r.IntN(queuePartitions)]
	part := h.twin.parts[m.part]
	h.twin.w.rng = h.r // the size of the batch is this history's
	batch := m.fetch(part)
	got, err := h.read(ctx, m.part, m.next, max(1, len(batch)))
	real, twin := fmt.Sprint(got, err), "[] <nil>"
	if len(batch) > 0 {
		var names []string
		for i := range batch {
			names = append(names, fmt.Sprintf("%s/%d@%d", batch[i].Token, batch[i].UserID, batch[i].Offset))
		}
		twin = fmt.Sprint(names, nil)
	}
	h.both(fmt.Sprintf("fetch %d from %d", m.part, m.next), real, twin)
	m.next += int64(len(batch))
}

// read takes messages of a partition from an offset on.
func (h *queueHistory) read(ctx context.Context, partition int, offset int64, most int) (got []string, err error) {
	res, err := h.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: h.o.OrdersTopic, Partition: partition, Offset: offset, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Millisecond,
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return nil, err
	}
	for len(got) < most {
		rec, err := res.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return got, err
		}
		if rec.Offset < offset {
			continue
		}
		value, err := io.ReadAll(rec.Value)
		if err != nil {
			return got, err
		}
		r, err := queue.Decode(value, 8<<10)
		if err != nil {
			return got, err
		}
		got = append(got, fmt.Sprintf("%s/%d@%d", r.Token, r.UserID, rec.Offset))
	}
	return got, nil
}

// commit moves the group's offset of one partition to where its member is.
func (h *queueHistory) commit(ctx context.Context) { h.commitOf(ctx, "commit", &h.now) }

// lateCommit is one by the member that has lost the partitions; it must not move anything (FS-048).
func (h *queueHistory) lateCommit(ctx context.Context) {
	if h.before.twins[0] != nil {
		h.commitOf(ctx, "late commit", &h.before)
	}
}

func (h *queueHistory) commitOf(ctx context.Context, name string, g *groupMember) {
	m := g.twins[h.r.IntN(queuePartitions)]
	res, err := h.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: h.o.Group, GenerationID: g.generation, MemberID: g.id,
		Topics: map[string][]kafka.OffsetCommit{h.o.OrdersTopic: {{Partition: m.part, Offset: m.next}}},
	})
	if err == nil {
		err = res.Topics[h.o.OrdersTopic][0].Error
	}
	real := fmt.Sprint(err)
	if errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.UnknownMemberId) {
		real = "refused"
	}
	twin := "<nil>"
	if m.move(h.twin.parts[m.part], m.next) != nil {
		twin = "refused"
		h.refused++
	}
	h.commits++
	h.both(fmt.Sprintf("%s of %d to %d, generation %d", name, m.part, m.next, g.generation), real, twin)
}

// offsets compares how far the topic and the group are.
func (h *queueHistory) offsets(ctx context.Context) {
	ends, err := h.topics.EndOffsets(ctx)
	committed, cerr := h.topics.Committed(ctx)
	twinEnds, twinCommitted := map[int]int64{}, map[int]int64{}
	for i, p := range h.twin.parts {
		twinEnds[i], twinCommitted[i] = int64(len(p.log)), p.committed
	}
	h.both("offsets", fmt.Sprint(ends, err, committed, cerr), fmt.Sprint(twinEnds, nil, twinCommitted, nil))
}
