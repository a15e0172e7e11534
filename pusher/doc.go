// Package pusher is the WebSocket end of the sale: it tells users the results of their requests and the viewers of a
// sale its state, and nothing else.
//
// It owns the handshake (who may connect, from where, how many), the frames and close codes of a socket, and the promise
// that no result is missed (S29): a socket is registered and its hub shard subscribed before the user's state is read
// and sent, and the shard's users are read again after every new subscription. One goroutine reads each socket and one
// writes to it; the hub between them is where slow clients are told from quick ones.
//
// It never decides anything, never writes to Redis or the database, and never lets a token into a log: a request is
// logged by its trace id, not by its address line or headers (FS-077).
package pusher
