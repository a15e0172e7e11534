// Package stock owns the Redis keys of a sale: their names, their types, their lifetime, and every script that
// writes them.
//
// It reserves stock (a batch of requests in one script call), carries decisions of the database over to the tokens,
// returns units, answers results, rebuilds a sale that Redis lost, and cleans up. The states of a token are
// occupied -> committed | released and committed -> released; each move happens once and only from the state before.
//
// It never decides whether a reservation becomes an order, never touches the queue, the database or a socket, and
// never creates a stock key outside a rebuild.
//
// # Retries
//
// Every script gives the same end state when it runs twice with the same arguments, so the retries that go-redis
// makes by itself after a lost reply are harmless (FS-013): a second reserve of a token answers "repeat", a second
// settle or return answers "already". The limiter windows are the exception: a retry counts once more, which can
// only make them stricter. A script that the server does not know (restart, failover, SCRIPT FLUSH) is sent in full
// once (FS-011).
//
// # Cluster
//
// All keys of a sale carry the hash tag {activity id}, every key a script touches is in its KEYS, and one call
// concerns one sale, so each call runs on one node (FS-012). The word "system" is no activity id: its tag belongs to
// the system-wide window.
//
// # Time
//
// Scripts get the time as an argument and never ask the server for it, so a sale opens by the clock of the gateways
// and tests can choose the time. Only lifetimes of keys follow the clock of the server. Gateways whose clocks differ
// by up to two seconds share limiter windows without loss; a window from further ahead counts as empty.
package stock
