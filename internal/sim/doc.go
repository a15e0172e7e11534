// Package sim runs whole sales inside one process, thousands of them, to find the interleavings that lose or double
// something.
//
// The logic under test is the product's own: consumer.Consumer, reconciler.Reconciler and reconciler.Auditor, over ports
// in memory that keep the promises of the Lua scripts and of the ledger (differential tests hold them against the real
// ones). Two parts are mirrored instead, because they live behind network code: the admission steps of the gateway (R9,
// R14) in gateway.go, and the loop of a consumer group member in broker.go.
//
// Every call of a port stops at the scheduler. It decides, by one seeded random source, who goes on, what fails before or
// after its effect, whose effect comes late, which process dies, when Redis is lost or comes back old; and time is that of
// a testing/synctest bubble. So a seed is one history, and a failing seed can be read step by step. The package never
// decides anything for the product: it only looks, during the run and when everything is quiet.
package sim
