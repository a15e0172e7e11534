// Package style holds the tests that keep the rules of this repository: sizes, doc comments, who may import whom, and
// that the tables in docs/ name tests which exist. It has no code of its own and imports none of ours.
package style
