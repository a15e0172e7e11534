package queue_test

import (
	"os"
	"strings"
	"testing"

	"seckill/internal/embedded"
	"seckill/internal/queue/queuetest"
)

func TestConformanceEmbedded(t *testing.T) {
	t.Parallel()
	b, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	queuetest.Run(t, b.KafkaBrokers)
}

func TestConformanceKafka(t *testing.T) {
	t.Parallel()
	addr := os.Getenv("SECKILL_TEST_KAFKA")
	if addr == "" {
		t.Skip("SECKILL_TEST_KAFKA is not set: no real Kafka")
	}
	queuetest.Run(t, strings.Split(addr, ","))
}
