package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"seckill/bench"
	"seckill/internal/push"
)

func (c *command) benchCommand() *cobra.Command {
	cmd := groupCommand("bench", "Measure on this machine")
	cmd.AddCommand(c.benchPushCommand(), &cobra.Command{
		Use: "push-worker", Hidden: true, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return bench.PushWorker(cmd.Context(), os.Stdin, c.out) },
	})
	return cmd
}

func (c *command) benchPushCommand() *cobra.Command {
	o := bench.PushOptions{Log: c.err}
	cmd := &cobra.Command{
		Use: "push", Short: "Measure sockets: memory, connects, latency, most results a second", Args: noArgs,
		Long: "Starts pushers of its own on free loopback ports with a database of their own, and as many client processes.\n" +
			"The Redis it is given should be used by nothing else meanwhile; it publishes there and leaves no key behind.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Redis == "" || o.Sockets < o.Processes || o.Processes < 1 || o.Processes > push.DefaultShards || o.Rate < 1 {
				return usageError{fmt.Errorf("--redis must be given, --rate be positive, --processes between 1 and %d, --sockets at least as many", push.DefaultShards)}
			}
			if o.For < 0 || o.Idle < 0 || o.Live < 0 {
				return usageError{errors.New("--for, --idle and --live must not be negative")}
			}
			var err error
			if o.Program, err = os.Executable(); err != nil {
				return fmt.Errorf("own path: %w", err)
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // so that it stops what it started
			defer stop()
			report, err := bench.Push(ctx, o)
			if err != nil {
				return err
			}
			out := json.NewEncoder(c.out)
			out.SetIndent("", "  ")
			return out.Encode(report)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Redis, "redis", "", "host:port of a Redis")
	f.StringVar(&o.Floor, "floor", "", "measure this program instead of the pusher: go build ./bench/floor")
	f.IntVar(&o.Sockets, "sockets", 5000, "sockets in all")
	f.IntVar(&o.Processes, "processes", 1, "pushers, and as many client processes")
	f.IntVar(&o.Rate, "rate", 2000, "results a second while latency is measured")
	f.DurationVar(&o.For, "for", 20*time.Second, "how long at that rate, and then at full speed; 0: not at all")
	f.DurationVar(&o.Live, "live", 0, "how long every socket is told a stock that changes all the time, beside the rate; 0: not at all")
	f.BoolVar(&o.Restart, "restart", false, "at the end, kill a pusher and wait until its sockets are back")
	f.DurationVar(&o.Idle, "idle", 60*time.Second, "from the last connect until memory is read")
	return cmd
}
