// Package e2e tests the product as its operators run it: role processes apart, on real Redis, Kafka and MySQL, driven
// over their public ports. It holds tests only.
package e2e
