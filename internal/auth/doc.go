// Package auth says who is asking: it verifies JWTs, makes and checks request tokens, and compares admin tokens.
//
// It keeps no sessions and knows no users; a user is what the `sub` of a valid JWT says. Secrets come from the
// configuration and never appear in an error or a log line.
package auth
