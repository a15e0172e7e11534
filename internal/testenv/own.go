package testenv

import (
	"errors"
	"testing"
	"time"
)

// ReplicaDelay is how far the replica of a test run lags behind.
const ReplicaDelay = 3 * time.Second

// OwnRedis starts a private Redis that ends with the test.
func OwnRedis(t testing.TB, opts RedisOptions) *Server {
	t.Helper()
	s, err := StartRedis(t.Context(), opts)
	return own(t, NameRedis, s, err)
}

// OwnRedisCluster starts a private Redis Cluster of three masters that ends with the test.
func OwnRedisCluster(t testing.TB) *Cluster {
	t.Helper()
	c, err := StartRedisCluster(t.Context(), 3)
	return own(t, NameRedis, c, err)
}

// OwnMariaDB starts a private MariaDB that ends with the test.
func OwnMariaDB(t testing.TB) *Server {
	t.Helper()
	s, err := StartMariaDB(t.Context())
	return own(t, NameMySQL, s, err)
}

// OwnMariaDBReplica starts a private replica of primary, delay behind it, that ends with the test.
func OwnMariaDBReplica(t testing.TB, primary *Server, delay time.Duration) *Server {
	t.Helper()
	s, err := StartMariaDBReplica(t.Context(), primary, delay)
	return own(t, NameMySQL, s, err)
}

// OwnKafka starts a private Kafka of 1 or 3 brokers that ends with the test.
func OwnKafka(t testing.TB, brokers int) *Cluster {
	t.Helper()
	c, err := StartKafka(t.Context(), brokers)
	return own(t, NameKafka, c, err)
}

// OwnKafkaBehind starts a private broker behind proxies, as StartKafkaBehind does, that ends with the test.
func OwnKafkaBehind(t testing.TB, proxies []string) (c *Cluster, behind []string) {
	t.Helper()
	c, behind, err := StartKafkaBehind(t.Context(), proxies)
	return own(t, NameKafka, c, err), behind
}

// own closes the server at the end of the test. When it is not installed the test is skipped, unless it is required.
func own[S interface{ Close() error }](t testing.TB, name string, server S, err error) S {
	t.Helper()
	if errors.Is(err, ErrNotInstalled) && !Required(name) {
		t.Skipf("needs a real server: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return server
}
