package queue_test

import (
	"strings"
	"testing"

	"seckill/internal/embedded"
	"seckill/internal/queue/queuetest"
	"seckill/internal/testenv"
)

// The conformance suite on the stand-in. It protects S10; FS-037, FS-042, FS-043, FS-046, FS-047, FS-049, FS-051, FS-061
// and FS-062.
func TestConformanceEmbedded(t *testing.T) {
	t.Parallel()
	b, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	queuetest.Run(t, b.KafkaBrokers)
}

// The same suite on a real broker.
func TestConformanceKafka(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, strings.Split(testenv.Kafka(t), ","))
}
