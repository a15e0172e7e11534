package sale

import (
	"context"
	"testing"
)

// S9: a context carries the trace id of its request, and none by itself.
func TestTraceOfContext(t *testing.T) {
	t.Parallel()
	ctx := WithTrace(context.Background(), "4bf92f35")
	if TraceOf(ctx) != "4bf92f35" || TraceOf(context.Background()) != "" {
		t.Errorf("%q, %q", TraceOf(ctx), TraceOf(context.Background()))
	}
}
