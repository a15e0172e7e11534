package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Environment variables that name the shared servers of a test run.
const (
	// EnvRedis is host:port of a plain Redis.
	EnvRedis = "SECKILL_TEST_REDIS"
	// EnvRedisCluster is host:port of at least three Redis Cluster nodes, comma-separated.
	EnvRedisCluster = "SECKILL_TEST_REDIS_CLUSTER"
	// EnvMySQL is a root user's DSN in the form of go-sql-driver/mysql, without a database.
	EnvMySQL = "SECKILL_TEST_MYSQL"
	// EnvMySQLReplica is the same for a replica that lags ReplicaDelay behind.
	EnvMySQLReplica = "SECKILL_TEST_MYSQL_REPLICA"
	// EnvKafka is host:port of a Kafka broker.
	EnvKafka = "SECKILL_TEST_KAFKA"
	// EnvChromium is the path of a Chromium or Chrome.
	EnvChromium = "SECKILL_TEST_CHROMIUM"
	// EnvRequire lists the servers whose absence is a failure instead of a skip: redis, mysql, kafka, chromium,
	// comma-separated.
	EnvRequire = "SECKILL_REQUIRE"
	// EnvLong is 1 in the long run (make test-long), when tests use the full times of the cases.
	EnvLong = "SECKILL_LONG"
	// EnvE2E is 1 in the stage that runs the end-to-end tests; they skip without it.
	EnvE2E = "SECKILL_E2E"
)

// Names for EnvRequire.
const (
	NameRedis    = "redis"
	NameMySQL    = "mysql"
	NameKafka    = "kafka"
	NameChromium = "chromium"
	NameNode     = "node"
)

// Required reports whether SECKILL_REQUIRE lists a server or program.
func Required(name string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(EnvRequire), ","), func(s string) bool {
		return strings.TrimSpace(s) == name
	})
}

// Long reports whether this is the long run: SECKILL_LONG=1 and no -short.
func Long() bool { return os.Getenv(EnvLong) == "1" && !testing.Short() }

// Redis is the address of the shared Redis.
func Redis(t testing.TB) string {
	t.Helper()
	return shared(t, NameRedis, EnvRedis)
}

// RedisCluster is the addresses of the shared Redis Cluster.
func RedisCluster(t testing.TB) []string {
	t.Helper()
	return strings.Split(shared(t, NameRedis, EnvRedisCluster), ",")
}

// MySQL is the DSN of a root user on the shared database server, without a database: a test makes its own.
func MySQL(t testing.TB) string {
	t.Helper()
	return shared(t, NameMySQL, EnvMySQL)
}

// MySQLReplica is the DSN of a root user on the delayed replica of the server that MySQL names.
func MySQLReplica(t testing.TB) string {
	t.Helper()
	return shared(t, NameMySQL, EnvMySQLReplica)
}

// Kafka is the address of the shared broker.
func Kafka(t testing.TB) string {
	t.Helper()
	return shared(t, NameKafka, EnvKafka)
}

// Chromium is the path of the browser.
func Chromium(t testing.TB) string {
	t.Helper()
	return shared(t, NameChromium, EnvChromium)
}

// shared reads the variable, or ends the test: skipped, or failed when the server is required.
func shared(t testing.TB, name, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value != "" {
		return value
	}
	if Required(name) {
		t.Fatalf("%s lists %s, but %s is unset", EnvRequire, name, variable)
	}
	t.Skipf("needs a real server: set %s (make test does)", variable)
	return ""
}
