// Package queue owns the Kafka topics: their set-up, the message form, publishing, reading in a consumer group,
// and parking what can never succeed.
//
// It never decides an order and never touches stock. Delivery is at least once: a message may come twice, a
// publish that failed may still arrive (R3), and only Publish returning nil means that the in-sync replicas have it.
//
// Sharp edges of the client library that this package takes care of: the writer's batch wait is one second by
// default (FS-037), its acks default to none when built as a literal (FS-038), a reader of a group may commit in a
// generation it no longer belongs to (FS-048), and topics are created by nobody unless asked (FS-043).
package queue
