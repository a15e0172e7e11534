// Package model is a small model of what happens to reservations, searched exhaustively: every order in which three users,
// a gateway, two consumers that may own one partition for a while, and the reconciler can take their steps, with one crash
// of each, publishes that get lost or come late, a cancellation of each order, and refusals.
//
// It says in a few hundred lines what rules R1-R9 of the design say in words, and it is complete where the simulation
// only samples. It knows no time, no lost Redis, no epochs and no waitlist: those are the simulation's. It shares nothing
// with the product but the table of token states of package sale, which each of its transitions is checked against.
package model
