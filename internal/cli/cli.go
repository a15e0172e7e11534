// Package cli is the command line: it reads flags and configuration, and runs the roles or speaks to the admin API of
// a running gateway. It decides nothing.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"seckill/internal/app"
	"seckill/internal/config"
	"seckill/internal/telemetry"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitDiffers = 3
)

// command is what all subcommands share.
type command struct {
	env         []string
	out, err    io.Writer
	configFile  string
	checkConfig bool
	set         []string
	json        bool
	short       map[string]*string // flags that stand for one key
}

// Main runs the command line and returns the exit code.
func Main(args, env []string, out, errOut io.Writer) int {
	c := &command{env: env, out: out, err: errOut}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.Execute()
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, config.ErrConfig), errors.Is(err, app.ErrUsage), errors.As(err, new(usageError)):
		fmt.Fprintln(errOut, "seckill:", err)
		return exitUsage
	case errors.Is(err, errDifference):
		fmt.Fprintln(errOut, "seckill:", err)
		return exitDiffers
	}
	fmt.Fprintln(errOut, "seckill:", err)
	return exitFailure
}

// usageError is a wrong flag or argument.
type usageError struct{ error }

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "seckill",
		Short:         "Flash-sale service: a small stock against a very large crowd",
		Long:          "Without arguments every role runs in this process on embedded back ends, with a demo sale.",
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return c.serve(cmd.Context(), app.AllRoles()) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&c.configFile, "config", "", "YAML configuration file")
	f.BoolVar(&c.checkConfig, "check-config", false, "print the effective configuration with secrets masked, and stop")
	f.StringArrayVar(&c.set, "set", nil, "set one key of the configuration, key=value; may be repeated")
	f.BoolVar(&c.json, "json", false, "print JSON")
	c.short = map[string]*string{}
	for flag, key := range map[string]string{
		"data": "data", "gateway-addr": "gateway.addr", "pusher-addr": "pusher.addr",
		"consumer-addr": "consumer.addr", "reconciler-addr": "reconciler.addr",
	} {
		c.short[key] = f.String(flag, "", "short for --set "+key+"=…")
	}
	for _, role := range app.AllRoles() {
		root.AddCommand(c.roleCommand(role, "Run the "+role+" alone", []string{role}))
	}
	root.AddCommand(c.roleCommand("all", "Run every role in this process", app.AllRoles()),
		c.migrateCommand(), c.tokenCommand(), c.activityCommand(), c.userCommand(), c.deadCommand(), c.auditCommand(), c.benchCommand())
	return root
}

// groupCommand only holds others: alone it shows its help, with a command it does not know it is wrong usage.
func groupCommand(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

func (c *command) roleCommand(use, short string, roles []string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.serve(cmd.Context(), roles) },
	}
}

// load reads the configuration: defaults < YAML < environment < flags.
func (c *command) load() (app.Config, error) {
	cfg := app.Defaults()
	flags := c.set
	for key, value := range c.short {
		if *value != "" {
			flags = append(flags, key+"="+*value)
		}
	}
	err := config.Load(&cfg, c.configFile, c.env, flags)
	return cfg, err
}

// serve runs roles until a signal.
func (c *command) serve(ctx context.Context, roles []string) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if c.checkConfig {
		if _, err := fmt.Fprint(c.out, config.Print(&cfg)); err != nil {
			return err
		}
		if err := cfg.Pusher.Check(); err != nil {
			return fmt.Errorf("%w: %w", config.ErrConfig, err)
		}
		return nil
	}
	log, err := telemetry.NewLogger(c.err, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrConfig, err)
	}
	a, err := app.New(cfg, roles, log)
	if err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	return app.Serve(ctx, a, c.out)
}

func (c *command) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "Create or upgrade the database tables; never while a sale is open", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			if cfg.Database.DSN == "" {
				return fmt.Errorf("%w: database.dsn is not set", config.ErrConfig)
			}
			ctx, cancel := context.WithTimeout(context.Background(), cfg.StartWait)
			defer cancel()
			l, err := app.OpenLedger(ctx, cfg, []string{"migrate"})
			if err != nil {
				return err
			}
			defer func() { _ = l.Close() }()
			if err := l.Migrate(ctx); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.out, "the database is up to date")
			return err
		},
	}
}
