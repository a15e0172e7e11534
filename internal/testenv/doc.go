// Package testenv gives tests real servers: Redis, a Redis Cluster, MariaDB with a delayed replica, Apache
// Kafka, and a Chromium to drive.
//
// It owns how such a server is found, started on a free loopback port with a private data folder, hurt (killed,
// paused, restarted on the same port and data) and stopped. Two ways lead to a server:
//
//   - Redis, RedisCluster, MySQL, MySQLReplica, Kafka and Chromium return the shared server that an environment
//     variable names, and skip the test when it is unset (or fail it when SECKILL_REQUIRE names the server).
//     The program in cmd/testrun starts these servers and sets the variables. A shared server is never hurt.
//   - OwnRedis, OwnRedisCluster, OwnMariaDB, OwnMariaDBReplica and OwnKafka start a private server for one test,
//     which may do to it as it likes.
//
// It never touches a server that it did not start, never stops a process by name, and is imported by tests and
// by cmd/testrun only. It needs a Unix system; on Linux the servers die with the process that started them,
// even when that one is killed.
package testenv
