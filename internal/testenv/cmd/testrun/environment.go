package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/testenv"
)

// environment is the servers of one run. A nil one has none.
type environment struct {
	mu      sync.Mutex
	servers []*testenv.Server
}

// startEnvironment provides and starts everything, and sets the SECKILL_TEST_* variables for the stages. Close what it
// returns even when it fails.
func startEnvironment(ctx context.Context) (*environment, error) {
	env := &environment{}
	if err := provide(ctx); err != nil {
		return env, err
	}
	fmt.Println("== servers ==")
	begin := time.Now()
	var group errgroup.Group
	for _, start := range []struct {
		name, variable string
		do             func(context.Context) error
	}{
		{testenv.NameRedis, testenv.EnvRedis, env.startRedis},
		{testenv.NameRedis, testenv.EnvRedisCluster, env.startRedisCluster},
		{testenv.NameMySQL, testenv.EnvMySQL, env.startMariaDB},
		{testenv.NameKafka, testenv.EnvKafka, env.startKafka},
		{testenv.NameChromium, testenv.EnvChromium, env.findChromium},
	} {
		if value := os.Getenv(start.variable); value != "" {
			env.say("%s is given: %s", start.variable, value)
			continue
		}
		group.Go(func() error {
			err := start.do(ctx)
			if errors.Is(err, testenv.ErrNotInstalled) && !testenv.Required(start.name) {
				env.say("%s stays unset: %v", start.variable, err)
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return env, err
	}
	fmt.Printf("servers are up after %.1f s\n", time.Since(begin).Seconds())
	return env, nil
}

func (e *environment) startRedis(ctx context.Context) error {
	begin := time.Now()
	s, err := testenv.StartRedis(ctx, testenv.RedisOptions{})
	if err != nil {
		return err
	}
	e.add(s)
	return e.export(testenv.EnvRedis, s.Addr, begin)
}

func (e *environment) startRedisCluster(ctx context.Context) error {
	begin := time.Now()
	c, err := testenv.StartRedisCluster(ctx, 3)
	if err != nil {
		return err
	}
	e.add(c.Nodes...)
	return e.export(testenv.EnvRedisCluster, strings.Join(c.Addrs(), ","), begin)
}

// startMariaDB starts the primary, and the replica unless one is given.
func (e *environment) startMariaDB(ctx context.Context) error {
	begin := time.Now()
	primary, err := testenv.StartMariaDB(ctx)
	if err != nil {
		return err
	}
	e.add(primary)
	if err := e.export(testenv.EnvMySQL, primary.DSN, begin); err != nil {
		return err
	}
	begin = time.Now()
	replica, err := testenv.StartMariaDBReplica(ctx, primary, testenv.ReplicaDelay)
	if err != nil {
		return err
	}
	e.add(replica)
	return e.export(testenv.EnvMySQLReplica, replica.DSN, begin)
}

func (e *environment) startKafka(ctx context.Context) error {
	begin := time.Now()
	if _, err := testenv.KafkaLibs(ctx); err != nil {
		return err
	}
	e.say("Apache Kafka %s is there after %.1f s", testenv.KafkaVersion, time.Since(begin).Seconds())
	begin = time.Now()
	c, err := testenv.StartKafka(ctx, 1)
	if err != nil {
		return err
	}
	e.add(c.Nodes...)
	return e.export(testenv.EnvKafka, c.Nodes[0].Addr, begin)
}

func (e *environment) findChromium(context.Context) error {
	path, err := testenv.FindChromium()
	if err != nil {
		return err
	}
	return e.export(testenv.EnvChromium, path, time.Now())
}

// export sets the variable for the stages.
func (e *environment) export(variable, value string, begin time.Time) error {
	e.say("%s=%s (%.1f s)", variable, value, time.Since(begin).Seconds())
	return os.Setenv(variable, value)
}

// say prints one line; servers start side by side.
func (e *environment) say(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Printf("  "+format+"\n", args...)
}

func (e *environment) add(servers ...*testenv.Server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.servers = append(e.servers, servers...)
}

// reportDead prints the log of every server that died on its own: after a failed stage it may be the reason.
func (e *environment) reportDead() {
	for _, s := range e.servers {
		if !s.Running() {
			fmt.Printf("== %s at %s has died; its log ends:\n%s\n", s.Name, s.Addr, s.LogTail())
		}
	}
}

// close ends all servers. It prints nothing: the last lines of a run are those of its last stage.
func (e *environment) close() error {
	errs := make([]error, len(e.servers))
	for i, s := range e.servers {
		errs[i] = s.Close()
	}
	return errors.Join(errs...)
}
