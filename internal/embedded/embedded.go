// Package embedded starts stand-ins for the back ends inside the process: miniredis for Redis, kfake for Kafka, and a
// folder for SQLite. The program speaks to them over loopback with the same clients and protocols as to the real
// servers, so nothing else needs to know.
//
// It only starts them and returns addresses. It is for trying the product out and for tests; it is no store for a
// real sale, and no figure of the product is measured on it.
package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"
)

// expiryTick is how often keys of miniredis expire; it has no clock of its own for that (FS-098).
const expiryTick = 250 * time.Millisecond

// Backends are running stand-ins.
type Backends struct {
	RedisAddr    string
	KafkaBrokers []string
	SQLitePath   string

	redis   *miniredis.Miniredis
	kafka   *kfake.Cluster
	stop    chan struct{}
	done    chan struct{}
	tempDir string
}

// Start starts all three. The queue and the database live in dataDir, and in a temporary folder that Close removes
// when dataDir is empty. Redis always starts empty: the product rebuilds it, as after a real loss.
func Start(dataDir string) (*Backends, error) {
	b := &Backends{stop: make(chan struct{}), done: make(chan struct{})}
	if dataDir == "" {
		dir, err := os.MkdirTemp("", "seckill-")
		if err != nil {
			return nil, fmt.Errorf("make data folder: %w", err)
		}
		b.tempDir, dataDir = dir, dir
	}
	queueDir := filepath.Join(dataDir, "queue")
	if err := os.MkdirAll(queueDir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("make data folder: %w", err), b.removeTemp())
	}
	b.SQLitePath = filepath.Join(dataDir, "seckill.db")

	b.redis = miniredis.NewMiniRedis()
	if err := b.redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded redis: %w", err), b.removeTemp())
	}
	b.RedisAddr = b.redis.Addr()

	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(queueDir)}
	if b.tempDir == "" {
		opts = append(opts, kfake.SyncWrites()) // what was acknowledged outlives a crash
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		b.redis.Close()
		return nil, errors.Join(fmt.Errorf("start embedded kafka: %w", err), b.removeTemp())
	}
	b.kafka, b.KafkaBrokers = cluster, cluster.ListenAddrs()
	go b.expireKeys()
	return b, nil
}

// expireKeys lets time pass for miniredis.
func (b *Backends) expireKeys() {
	defer close(b.done)
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-b.stop:
			return
		case now := <-tick.C:
			b.redis.FastForward(now.Sub(last))
			last = now
		}
	}
}

// Close stops the stand-ins and removes the temporary folder, if there was one.
func (b *Backends) Close() error {
	close(b.stop)
	<-b.done
	b.kafka.Close()
	b.redis.Close()
	return b.removeTemp()
}

func (b *Backends) removeTemp() error {
	if b.tempDir == "" {
		return nil
	}
	if err := os.RemoveAll(b.tempDir); err != nil {
		return fmt.Errorf("remove data folder: %w", err)
	}
	return nil
}
