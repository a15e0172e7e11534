// Seckill is a flash-sale service: a small stock against a very large crowd. Without arguments it runs every role in
// one process on embedded back ends and opens a demo sale; see `seckill --help` for the roles.
package main

import (
	"os"

	"seckill/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }
