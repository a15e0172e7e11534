// Package hub is a sharded registry of clients, each with a bounded queue: whoever has something for a user or for the
// viewers of a sale puts it in here, and each client's single writer takes it out at its own speed.
//
// It owns which clients are there, what waits for each, and the two promises on order: an older version of a message
// never follows a newer one (FS-084), and a client that does not keep up is closed as slow instead of holding up anyone
// (FS-070). Under a shard's lock it only moves entries of queues; it never does input or output, starts no goroutine,
// and knows no network, Redis or JSON.
package hub
