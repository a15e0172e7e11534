package testenv

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
)

// A required server must not be skipped: a run that skips everything would look green.
func TestRequiredFailsInsteadOfSkipping(t *testing.T) {
	for _, tc := range []struct {
		name, require, addr string
		want                string
	}{
		{"set", "redis", "127.0.0.1:1", "value"},
		{"unset", "", "", "skip"},
		{"unset and another one required", "kafka, mysql", "", "skip"},
		{"unset and required", "kafka, redis", "", "fail"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(EnvRequire, tc.require)
			t.Setenv(EnvRedis, tc.addr)
			rec := &recorder{TB: t}
			value := rec.run(func() string { return Redis(rec) })
			if rec.end != tc.want || value != tc.addr {
				t.Errorf("ended by %q with %q, want %q with %q", rec.end, value, tc.want, tc.addr)
			}
		})
	}
}

// recorder is a test that notes how it was ended instead of ending.
type recorder struct {
	testing.TB
	end string
}

type ended struct{}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.end = "skip"; panic(ended{}) }
func (r *recorder) Fatalf(string, ...any) { r.end = "fail"; panic(ended{}) }

func (r *recorder) run(f func() string) (value string) {
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(ended); !ok {
				panic(e)
			}
		}
	}()
	value = f()
	r.end = "value"
	return value
}

// Two reservations never give the same port, and a released one can be had again.
func TestPortsAreExclusive(t *testing.T) {
	t.Parallel()
	ports, err := reservePorts(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p.number] {
			t.Errorf("port %d given twice", p.number)
		}
		seen[p.number] = true
		if p.number >= 32768 {
			t.Errorf("port %d is in the range of outgoing connections", p.number)
		}
	}
	releasePorts(ports)
}

// A kill loses what a memory-only Redis held and keeps what the append-only file holds; port and address stay.
func TestRedisKillAndRestart(t *testing.T) {
	t.Parallel()
	for _, aof := range []bool{false, true} {
		t.Run("aof="+strconv.FormatBool(aof), func(t *testing.T) {
			t.Parallel()
			s := OwnRedis(t, RedisOptions{AOF: aof})
			c := redis.NewClient(&redis.Options{Addr: s.Addr})
			defer c.Close()
			if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			must(t, s.Kill())
			if s.Running() {
				t.Error("still running after Kill")
			}
			must(t, s.Restart(t.Context()))
			got, err := c.Get(t.Context(), "k").Result()
			if aof && got != "v" || !aof && !errors.Is(err, redis.Nil) {
				t.Errorf("after the restart: %q, %v", got, err)
			}
		})
	}
}

// A paused server keeps its connections and says nothing; a resumed one goes on.
func TestRedisPauseResume(t *testing.T) {
	t.Parallel()
	s := OwnRedis(t, RedisOptions{})
	must(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := pingRedis(ctx, s.Addr); err == nil {
		t.Error("a paused server answered")
	}
	must(t, s.Resume())
	must(t, pingRedis(t.Context(), s.Addr))
}

// All slots are served, and keys of different slots work through a cluster client (R-rules need this server: FS-012).
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	cluster := OwnRedisCluster(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer c.Close()
	for i := range 50 {
		must(t, c.Set(t.Context(), "key"+strconv.Itoa(i), i, 0).Err())
	}
}

// A commit survives a kill, and the replica shows it, but not before its delay (FS-065 needs such a replica).
func TestMariaDBAndDelayedReplica(t *testing.T) {
	t.Parallel()
	primary := OwnMariaDB(t)
	replica := OwnMariaDBReplica(t, primary, 2*time.Second)
	exec := func(query string) {
		t.Helper()
		db, err := openQuiet(primary.DSN)
		must(t, err)
		defer db.Close()
		_, err = db.ExecContext(t.Context(), query)
		must(t, err)
	}
	exec("CREATE DATABASE lag")
	exec("CREATE TABLE lag.t (id INT PRIMARY KEY) ENGINE=InnoDB")
	exec("INSERT INTO lag.t VALUES (7)")
	written := time.Now()
	must(t, primary.Kill())
	must(t, primary.Restart(t.Context()))

	db, err := openQuiet(replica.DSN)
	must(t, err)
	defer db.Close()
	for {
		var id int
		if err := db.QueryRowContext(t.Context(), "SELECT id FROM lag.t").Scan(&id); err == nil {
			break
		}
		if time.Since(written) > 30*time.Second {
			t.Fatal("the row did not reach the replica")
		}
		time.Sleep(20 * time.Millisecond)
	}
	// The delay counts whole seconds of the event's own time stamp.
	if lag := time.Since(written); lag < time.Second {
		t.Errorf("the row reached the replica after %v, before its delay", lag)
	}
}

// One broker of three dies: the topic goes on with the other two, and the dead one comes back with its data.
func TestKafkaSurvivesOneBroker(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three JVMs")
	}
	cluster := OwnKafka(t, 3)
	client := &kafka.Client{Addr: kafka.TCP(cluster.Addrs()...), Timeout: 10 * time.Second}
	resp, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: "t", NumPartitions: 3, ReplicationFactor: 3},
	}})
	must(t, err)
	must(t, resp.Errors["t"])
	w := &kafka.Writer{Addr: kafka.TCP(cluster.Addrs()...), Topic: "t", RequiredAcks: kafka.RequireAll,
		BatchTimeout: time.Millisecond, MaxAttempts: 60}
	defer w.Close()
	must(t, w.WriteMessages(t.Context(), kafka.Message{Value: []byte("before")}))
	must(t, cluster.Nodes[2].Kill())
	must(t, w.WriteMessages(t.Context(), kafka.Message{Value: []byte("during")}))
	must(t, cluster.Nodes[2].Restart(t.Context()))

	r := kafka.NewReader(kafka.ReaderConfig{Brokers: cluster.Addrs(), GroupID: "g", Topic: "t", MaxWait: time.Second})
	defer r.Close()
	got := map[string]bool{}
	for len(got) < 2 {
		m, err := r.ReadMessage(t.Context())
		must(t, err)
		got[string(m.Value)] = true
	}
}

// A server dies with the process that started it, even when that one is killed. The test runs itself as that process.
func TestServerDiesWithItsParent(t *testing.T) {
	if os.Getenv("TESTENV_CHILD") == "1" {
		s, err := StartRedis(t.Context(), RedisOptions{})
		must(t, err)
		_, err = os.Stdout.WriteString("server " + s.Addr + " " + s.Dir + "\n")
		must(t, err)
		select {}
	}
	t.Parallel()
	OwnRedis(t, RedisOptions{}) // skips, or fails, where there is none
	if !diesWithParent {
		t.Skip("no parent-death signal on this system")
	}
	child := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithItsParent$")
	child.Env = append(os.Environ(), "TESTENV_CHILD=1")
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	buf := make([]byte, 256)
	n, err := out.Read(buf)
	must(t, err)
	said := strings.Fields(string(buf[:n]))
	if len(said) != 3 || said[0] != "server" {
		t.Fatalf("the child said %q", buf[:n])
	}
	addr, dir := said[1], said[2]
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) }) // a killed process cannot do it
	must(t, pingRedis(t.Context(), addr))
	must(t, child.Process.Kill())
	_ = child.Wait()
	for start := time.Now(); pingRedis(t.Context(), addr) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 5*time.Second {
			t.Fatal("the server outlived its parent")
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
