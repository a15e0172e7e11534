package sale

import "context"

// traceKey is the key under which a context carries a trace id.
type traceKey struct{}

// WithTrace returns a context that carries the trace id of the request it serves, so that the log row of a change says
// which request made it (S9).
func WithTrace(ctx context.Context, traceID string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceID)
}

// TraceOf returns the trace id that a context carries, "" when it carries none.
func TraceOf(ctx context.Context) string {
	id, _ := ctx.Value(traceKey{}).(string)
	return id
}
