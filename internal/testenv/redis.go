package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisGrace is how long Stop waits for a Redis to write its files.
const redisGrace = 5 * time.Second

// RedisOptions are the ways in which a private Redis can differ from an empty, memory-only one.
type RedisOptions struct {
	// AOF keeps an append-only file, flushed on every write, so that Kill and Restart lose nothing. Default
	// false: a restarted Redis is empty.
	AOF bool
	// MaxMemoryBytes makes writes fail at that size (policy noeviction). Default 0: no limit.
	MaxMemoryBytes int64
	// Args are further redis-server options, for example "--appendfsync", "everysec"; they win over the others.
	Args []string
}

// StartRedis starts a private Redis. The context bounds the start only; Close ends the server.
func StartRedis(ctx context.Context, opts RedisOptions) (*Server, error) {
	args := []string{"--appendonly", yesNo(opts.AOF), "--appendfsync", "always"}
	if opts.MaxMemoryBytes > 0 {
		args = append(args, "--maxmemory", strconv.FormatInt(opts.MaxMemoryBytes, 10),
			"--maxmemory-policy", "noeviction")
	}
	return startRedis(ctx, "redis", append(args, opts.Args...))
}

func startRedis(ctx context.Context, name string, args []string) (*Server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server: %w", ErrNotInstalled)
	}
	ports, err := reservePorts(2) // clients, cluster bus
	if err != nil {
		return nil, err
	}
	dir, err := newDir("redis")
	if err != nil {
		releasePorts(ports)
		return nil, err
	}
	base := []string{
		"--port", strconv.Itoa(ports[0].number), "--cluster-port", strconv.Itoa(ports[1].number),
		"--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no",
	}
	s := &Server{Name: name, Addr: ports[0].addr(), Dir: dir, ports: ports, grace: redisGrace}
	s.run = command{path: path, args: append(base, args...), dir: dir}
	s.ready = func(ctx context.Context) error { return pingRedis(ctx, s.Addr) }
	return startServer(ctx, s)
}

// redisClient makes a client for one question: no pool to speak of, no retries, so that errors come at once.
func redisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
}

// pingRedis succeeds once the server serves: a server that is still loading its file answers LOADING.
func pingRedis(ctx context.Context, addr string) error {
	// The client logs every failed dial; a server that is not up yet is no news.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	c := redisClient(addr)
	defer c.Close()
	return c.Ping(ctx).Err()
}

// clusterSlots is the number of hash slots of every Redis Cluster.
const clusterSlots = 16384

// StartRedisCluster starts n masters (3 or more) without replicas that share the slots and waits until all of them say the cluster is
// complete. A dead node makes the cluster refuse its slots; its restart heals it.
func StartRedisCluster(ctx context.Context, n int) (*Cluster, error) {
	c := &Cluster{}
	for i := range n {
		node, err := startRedis(ctx, fmt.Sprintf("redis cluster node %d", i), []string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		})
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.Nodes = append(c.Nodes, node)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := formRedis(ctx, c.Nodes); err != nil {
		return nil, errors.Join(fmt.Errorf("form redis cluster: %w", err), c.Close())
	}
	return c, nil
}

// formRedis gives every node its slots, introduces the others to the first, and waits for the gossip to settle.
func formRedis(ctx context.Context, nodes []*Server) error {
	first := nodes[0]
	for i, node := range nodes {
		from, to := i*clusterSlots/len(nodes), (i+1)*clusterSlots/len(nodes)-1
		client := redisClient(node.Addr)
		defer client.Close()
		// Distinct epochs beforehand spare the nodes a round of conflict solving.
		if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if err := client.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		host, p, err := net.SplitHostPort(first.Addr)
		if err != nil {
			return err
		}
		if err := client.Do(ctx, "CLUSTER", "MEET", host, p, first.ports[1].number).Err(); err != nil {
			return err
		}
	}
	for _, node := range nodes {
		if err := awaitCluster(ctx, node.Addr, len(nodes)); err != nil {
			return err
		}
	}
	return nil
}

// awaitCluster waits until the node at addr knows all nodes and calls the cluster complete.
func awaitCluster(ctx context.Context, addr string, nodes int) error {
	client := redisClient(addr)
	defer client.Close()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		info, err := client.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", nodes)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; node %s says:\n%s", ctx.Err(), addr, info)
		case <-tick.C:
		}
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
