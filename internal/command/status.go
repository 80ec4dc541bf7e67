package command

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"nanoclaw/internal/control"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the host runs and what it does",
		Long:  "status shows what the host does. Exit codes: 0 running, 6 not running, 9 running but something needs a person.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer c.Close()
			st, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				a.printJSON(a.out, st)
			} else if err := printStatus(a.out, st); err != nil {
				return err
			}
			if st.State == control.HostDegraded {
				return &exitError{code: exitChecks}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printStatus(out io.Writer, st control.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("host", "%s, process %d, version %s, since %s", st.State, st.PID, st.Version, st.Started.Local().Format(time.DateTime))
	row("home", "%s", st.Home)
	row("sandbox", "%s, %d of %d running, %d waiting for a place", sandboxLine(st.Sandbox.Kind, st.Sandbox.Reason), st.Sandbox.Live, st.Sandbox.MaxLive, st.Sandbox.Waiting)
	if st.Sandbox.Limits != "" {
		row("limits", "%s", st.Sandbox.Limits)
	}
	key := "no key"
	if st.Provider.Free {
		key = "needs no key"
	}
	if st.Provider.Key {
		key = "key present"
	}
	row("provider", "%s, %s", st.Provider.Name, key)
	for _, c := range st.Channels {
		row("channel", "%s %s %s", c.Instance, c.State, c.Reason)
	}
	d := st.Deliveries
	row("deliveries", "%d queued, %d to retry, %d unknown, %d dead", d.Queued, d.Retry, d.Unknown, d.Dead)
	for _, s := range st.Sessions {
		tool := ""
		if s.Tool != "" {
			tool = ", tool " + s.Tool
		}
		row("session", "%s: %s%s, %d waiting", s.ID, s.State, tool, s.Due)
	}
	for _, b := range st.Builds {
		row("build", "%s", b)
	}
	for _, warning := range st.Warnings {
		row("warning", "%s", warning)
	}
	return w.Flush()
}
