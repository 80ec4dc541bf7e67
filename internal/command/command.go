// Package command is the nanoclaw program: one file per subcommand. Data goes to standard output, everything else to
// standard error; exit codes are one table (exit.go).
package command

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
	"nanoclaw/internal/egress"
	"nanoclaw/internal/host"
)

// Deps is what the commands use of the machine. System gives the real ones.
type Deps struct {
	Getenv   func(string) string
	Environ  func() []string
	Unsetenv func(string) error
	// Serve runs a host until ctx ends and calls ready when it accepts work.
	Serve func(ctx context.Context, s config.Settings, log *slog.Logger, ready func()) error
	// StopLeft ends the sandboxes that a host which is gone has left running, and returns how many.
	StopLeft func(ctx context.Context, s config.Settings, log *slog.Logger) (int, error)
	// Spawn starts `nanoclaw serve` with args in the background, apart from this terminal, its output appended to logPath.
	// The channel gets how it ended, should it end.
	Spawn func(args, env []string, logPath string) (<-chan error, error)
	// Terminal reports whether a stream is a terminal.
	Terminal func(stream any) bool
	Machine  Machine
}

// System is the machine the program runs on.
func System() Deps {
	return Deps{
		Getenv: os.Getenv, Environ: os.Environ, Unsetenv: os.Unsetenv,
		Serve: serveHost, StopLeft: host.StopLeft, Spawn: spawn, Terminal: isTerminal, Machine: realMachine{},
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(f.Fd())
}

// app is what every subcommand shares.
type app struct {
	Deps
	in       io.Reader
	out, err io.Writer
	homeFlag string
	flags    map[string]string // settings by dotted key, set on the command line
}

// Execute runs one command line on this machine and returns the exit code.
func Execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return Run(ctx, System(), args, stdin, stdout, stderr)
}

// Run is Execute with other means. It starts nothing that outlives it but a host it was asked for.
func Run(ctx context.Context, deps Deps, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{Deps: deps, in: stdin, out: stdout, err: stderr, flags: map[string]string{}}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return a.report(ctx, cmd, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "nanoclaw",
		Short: "Connects your chats to AI agents that each run in a sandbox of their own",
		Long: `nanoclaw connects the chats you already use to AI agents that each run in a sandbox of their own.

Exit codes: 0 done, 1 failed, 2 wrong usage, 6 host not reachable and not startable, 7 no answer in time,
8 in use by another, 9 checks failed, 10 cancelled.`,
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.PersistentFlags().StringVar(&a.homeFlag, "home", "", "home folder (default $NANOCLAW_HOME, else ~/.nanoclaw)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(a.serveCommand(), a.chatCommand(), a.statusCommand(), a.stopCommand(), a.doctorCommand(), a.versionCommand())
	root.AddCommand(a.otherCommands()...)
	return root
}

// home is the absolute home folder.
func (a *app) home() (string, error) {
	h, err := config.Home(func(k string) string {
		if k == "NANOCLAW_HOME" && a.homeFlag != "" {
			return a.homeFlag
		}
		return a.Getenv(k)
	})
	if err != nil {
		return "", usage(err)
	}
	return h, nil
}

// settings of the home, flags included.
func (a *app) settings() (config.Settings, error) {
	h, err := a.home()
	if err != nil {
		return config.Settings{}, err
	}
	s, err := a.load(h)
	var wrong *config.Error
	if errors.As(err, &wrong) {
		return s, usage(err)
	}
	return s, err
}

// load reads the settings and checks what only the part that uses them can.
func (a *app) load(home string) (config.Settings, error) {
	s, err := config.Load(home, a.Getenv, a.flags)
	if err != nil {
		return s, err
	}
	if err := egress.CheckAllow(s.EgressAllow); err != nil {
		return s, config.Wrong("egress.allow", err.Error(), a.Getenv, a.flags)
	}
	return s, nil
}

func (a *app) client() (*control.Client, error) {
	h, err := a.home()
	if err != nil {
		return nil, err
	}
	return control.NewClient(h), nil
}

// setting adds a flag that overrides one setting.
func (a *app) setting(cmd *cobra.Command, flag, key, help string) {
	cmd.Flags().Func(flag, help, func(v string) error {
		a.flags[key] = v
		return nil
	})
}
