// Package sale is the domain of a flash sale: activities and their items, reservations, decisions, orders,
// results, and the stable codes that clients see.
//
// It owns the meaning of these words and the rules that need no server to check: what an id looks like, when a
// sale is open, which status may follow which. It never does input or output and imports nothing of this
// project, so that every other package can share its types without depending on one another.
//
// Times inside the program are time.Time in UTC with millisecond precision; on the wire they are epoch
// milliseconds. Money is decimal.Decimal with two places, never a float. A user is a positive int64.
package sale
