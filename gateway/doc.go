// Package gateway is the HTTP front of the sale: it checks each request, sets stock aside in Redis with one script
// call for all that wait, publishes to Kafka, and answers "accepted". It also answers results and orders, serves the
// page, and takes the operators' commands.
//
// It keeps traffic out and never decides an order: a reservation whose publish is uncertain is answered `pending` and
// left occupied, never given back (R3). Nothing of a fasthttp.RequestCtx is kept after its handler has returned: every
// byte that lives on is copied first (FS-024).
package gateway
