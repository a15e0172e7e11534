package testenv

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

// kafkaGrace is how long Stop waits for a broker to hand over its partitions.
const kafkaGrace = 15 * time.Second

// StartKafka starts a private Kafka of 1 or 3 brokers and waits until every broker knows all the others and consumer
// groups can join. Topics are not created by themselves. Of 3 brokers 1 may be down: with fewer than 2 there is no
// controller, and a restart succeeds only once a second one is up. The context bounds the start only.
func StartKafka(ctx context.Context, brokers int) (*Cluster, error) {
	return startKafka(ctx, brokers, nil)
}

// StartKafkaBehind starts one broker that is also reached through proxies. A client connects to where the broker says
// that it is, so each proxy gets a listener of its own, which says that it is at the proxy's address, proxies[i]; the
// proxy has to lead to behind[i], where that listener really is.
func StartKafkaBehind(ctx context.Context, proxies []string) (c *Cluster, behind []string, err error) {
	c, err = startKafka(ctx, 1, proxies)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range c.Nodes[0].ports[2:] {
		behind = append(behind, p.addr())
	}
	return c, behind, nil
}

// startKafka starts the brokers; each has two ports, the first one besides one for each proxy.
func startKafka(ctx context.Context, brokers int, proxies []string) (*Cluster, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("java: %w", ErrNotInstalled)
	}
	libs, err := KafkaLibs(ctx)
	if err != nil {
		return nil, err
	}
	all, err := reservePorts(2*brokers + len(proxies))
	if err != nil {
		return nil, err
	}
	setup := kafkaSetup{
		java: java, classpath: filepath.Join(libs, "*"), clusterID: kafkaClusterID(), brokers: brokers, proxies: proxies,
	}
	ports := make([][]*port, brokers)
	for i := range brokers {
		ports[i] = slices.Clone(all[2*i : 2*i+2])
		setup.voters = append(setup.voters, fmt.Sprintf("%d@%s", i+1, ports[i][1].addr()))
	}
	ports[0] = append(ports[0], all[2*brokers:]...)
	c := &Cluster{Nodes: make([]*Server, brokers)}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var group errgroup.Group // a broker is ready only when a quorum runs, so all start at once
	for i := range brokers {
		group.Go(func() (err error) {
			c.Nodes[i], err = setup.start(ctx, i+1, ports[i])
			return err
		})
	}
	err = group.Wait()
	c.Nodes = slices.DeleteFunc(c.Nodes, func(s *Server) bool { return s == nil })
	if err == nil {
		err = awaitGroups(ctx, c.Addrs())
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// kafkaSetup is what the brokers of one cluster have in common.
type kafkaSetup struct {
	java      string
	classpath string
	clusterID string
	voters    []string // id@host:port of every controller
	brokers   int
	proxies   []string // advertised addresses of further listeners of the first broker
}

// kafkaClusterID makes the identifier that all brokers of a cluster are formatted with: 16 random bytes in Base64.
func kafkaClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f           // the id must not begin with a dash, which the tool would take for an option
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// sessionMillis is after how much silence a broker counts as dead: short where brokers are killed to see another take
// over, long for a single one, which a busy machine must not put out of service.
func (k kafkaSetup) sessionMillis() int {
	if k.brokers > 1 {
		return 3000
	}
	return 6000
}

// start formats the data folder of broker id and launches it. It owns the ports from here on.
func (k kafkaSetup) start(ctx context.Context, id int, ports []*port) (*Server, error) {
	dir, err := newDir("kafka")
	if err != nil {
		releasePorts(ports)
		return nil, err
	}
	s := &Server{
		Name: fmt.Sprintf("kafka %d", id), Addr: ports[0].addr(), Dir: dir, ports: ports, grace: kafkaGrace,
	}
	conf := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(conf, []byte(k.properties(id, ports, dir)), 0o600); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	jvm := []string{
		"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", k.classpath,
	}
	format := exec.CommandContext(ctx, k.java, slices.Concat(jvm, []string{
		"-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format", "--cluster-id=" + k.clusterID, "-c", conf,
	})...)
	format.SysProcAttr = ChildAttr()
	if out, err := format.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("format kafka storage: %w: %s", err, out), s.Close())
	}
	s.run = command{path: k.java, args: slices.Concat(jvm, []string{"kafka.Kafka", conf}), dir: dir}
	s.ready = func(ctx context.Context) error { return knowsBrokers(ctx, s.Addr, s.Addr) }
	return startServer(ctx, s)
}

// properties is the broker's configuration: defaults, but for what makes a small cluster start and fail over quickly.
func (k kafkaSetup) properties(id int, ports []*port, dir string) string {
	advertised := "PLAINTEXT://" + ports[0].addr()
	listeners := advertised + ",CONTROLLER://" + ports[1].addr()
	protocols := "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	for i, p := range ports[2:] {
		name := fmt.Sprintf("PROXY%d", i)
		listeners += "," + name + "://" + p.addr()
		advertised += "," + name + "://" + k.proxies[i]
		protocols += "," + name + ":PLAINTEXT"
	}
	lines := []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", id),
		"controller.quorum.voters=" + strings.Join(k.voters, ","),
		"controller.listener.names=CONTROLLER",
		"listeners=" + listeners,
		"advertised.listeners=" + advertised,
		"listener.security.protocol.map=" + protocols,
		"inter.broker.listener.name=PLAINTEXT",
		"log.dirs=" + filepath.Join(dir, "data"),
		"auto.create.topics.enable=false",
		"group.initial.rebalance.delay.ms=0",
		"group.min.session.timeout.ms=1000",
		fmt.Sprintf("offsets.topic.replication.factor=%d", k.brokers),
		"offsets.topic.num.partitions=3",
		fmt.Sprintf("transaction.state.log.replication.factor=%d", k.brokers),
		"transaction.state.log.min.isr=1",
		"transaction.state.log.num.partitions=1",
		// A killed broker cannot come back before this is over.
		"broker.session.timeout.ms=" + strconv.Itoa(k.sessionMillis()),
		"broker.heartbeat.interval.ms=500",
		// Small buffers: the default index files alone take 20 MB a partition.
		"log.index.size.max.bytes=1048576",
		"log.cleaner.dedupe.buffer.size=4194304",
		"num.network.threads=2",
		"num.io.threads=4",
	}
	return strings.Join(lines, "\n") + "\n"
}

// knowsBrokers succeeds when the broker at addr lists every one of want as alive.
func knowsBrokers(ctx context.Context, addr string, want ...string) error {
	conn, err := kafka.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	brokers, err := conn.Brokers()
	if err != nil {
		return err
	}
	for _, w := range want {
		if !slices.ContainsFunc(brokers, func(b kafka.Broker) bool {
			return fmt.Sprintf("%s:%d", b.Host, b.Port) == w
		}) {
			return fmt.Errorf("broker %s does not list %s yet", addr, w)
		}
	}
	return nil
}

// awaitGroups waits until all brokers know one another and one of them coordinates consumer groups. The first question
// for a coordinator makes Kafka create the offsets topic, which would cost the first test some seconds.
func awaitGroups(ctx context.Context, all []string) error {
	transport := &kafka.Transport{DialTimeout: pingLimit}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(all...), Timeout: pingLimit, Transport: transport}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		err := groupsReady(ctx, all, client)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kafka cluster: %w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// groupsReady asks every broker for its peers and one of them for a coordinator.
func groupsReady(ctx context.Context, all []string, client *kafka.Client) error {
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	for _, addr := range all {
		if err := knowsBrokers(ctx, addr, all...); err != nil {
			return err
		}
	}
	resp, err := client.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{
		Key: "testenv", KeyType: kafka.CoordinatorKeyTypeConsumer,
	})
	if err != nil {
		return err
	}
	return resp.Error
}
