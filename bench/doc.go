// Package bench measures the running product from outside, by its own protocols, on one machine: `seckill bench`.
//
// It starts what it measures, gives load at a stated rate whether or not the server keeps up (open loop), measures times
// from the moment something was due, and reads memory and processor time from the system. It decides nothing: figures
// are compared by people, since machines are noisy, and only with those of the same run.
package bench
