// Package push owns the pub/sub channels that carry results and live state from those who decide to those who hold
// sockets, and every frame a socket gets.
//
// Channels: seckill:push:<i> carries results for the users of hub shard i, seckill:live:<A> the state and stock of
// sale A. A message may be lost (pub/sub keeps nothing): after every subscription, the first and each later one, the
// subscriber says so, and the shard then reads its users' states from Redis (S29). Messages carry versions, so one that
// comes late or twice does no harm.
//
// It never touches a key, never decides what a user may see, and knows no socket.
package push
