// Package reconciler makes good what crashes left undone: it enqueues again what stays occupied, returns the units of
// cancelled orders to stock, tells statuses that were not told, rebuilds Redis from the database, and shows the live
// state of each sale.
//
// It never decides an order and never releases a reservation: that is the consumer's (R3). One reconciler leads at a
// time, by a fenced lease in the database (R17); each of its steps may be repeated without harm.
package reconciler
