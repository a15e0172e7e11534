// Package consumer decides orders: it takes batches from the queue, lets the database decide each of them in one
// transaction, settles the reservations in Redis, and announces the results. Only then is the batch finished and its
// offset committed, so whatever crashes, the message comes again and the same steps repeat the same outcome (R1, R2).
//
// It never invents stock, never compensates what it is not sure about, and makes no remote call but Kafka, Redis and
// the database (S19).
package consumer
