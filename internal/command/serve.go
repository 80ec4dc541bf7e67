package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the host in the foreground",
		Long: `serve runs the host in the foreground until SIGINT or SIGTERM. Running sandboxes stay: the next host finds them
again. To end them too, use: nanoclaw stop

Settings come from flags, the environment (NANOCLAW_…), nanoclaw.toml in the home folder, and defaults, in this order.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
	a.settingFlags(cmd)
	a.setting(cmd, "log-format", "log.format", "text or json")
	a.setting(cmd, "log-level", "log.level", "debug, info, warn or error")
	a.setting(cmd, "log-file", "log.file", "file that the log goes to (default standard error)")
	return cmd
}

// settingFlags are the flags that serve takes and chat hands on to it.
func (a *app) settingFlags(cmd *cobra.Command) {
	a.setting(cmd, "sandbox", "sandbox.kind", "where agents run: docker, bubblewrap, process (no isolation) or auto")
}

func (a *app) serve(ctx context.Context) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	log, file, err := a.logger(s)
	if err != nil {
		return err
	}
	if file != nil {
		defer func() { _ = file.Close() }()
	}
	defer a.obeyHangup(ctx, log, file)()
	// Keys come over the control socket; what stands in the environment must reach no child.
	for _, k := range keyVariables {
		if err := a.Unsetenv(k.variable); err != nil {
			return fmt.Errorf("clear %s: %w", k.variable, err)
		}
	}
	return a.Serve(ctx, s, log, func() {
		log.Info("host ready", obs.KeyHome, s.Home, obs.KeyVersion, control.Version())
	})
}
