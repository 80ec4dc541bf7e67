// Package admin is the ncl program: a thin client of the control socket. What it can do are the compiled-in definitions
// below, so that help works while no host runs.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
)

// Execute runs one command line and returns the exit code of the table in spec/operator.md 20.3.
func Execute(ctx context.Context, getenv func(string) string, args []string, stdout, stderr io.Writer) int {
	root := root(getenv, stdout)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	e := wireError(err)
	if asJSON, flagErr := cmd.Flags().GetBool("json"); flagErr == nil && asJSON {
		_ = encode(stderr, control.Envelope(e))
	} else {
		fmt.Fprintln(stderr, "ncl: "+e.Error())
	}
	return e.Exit()
}

func wireError(err error) *control.Error {
	var e *control.Error
	if errors.As(err, &e) {
		return e
	}
	return &control.Error{Code: control.CodeFailed, Message: err.Error(), Err: err}
}

func root(getenv func(string) string, out io.Writer) *cobra.Command {
	var home string
	cmd := &cobra.Command{
		Use:               "ncl",
		Short:             "Administers a running nanoclaw host",
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.PersistentFlags().StringVar(&home, "home", "", "home folder (default $NANOCLAW_HOME, else ~/.nanoclaw)")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return control.Invalid("", err.Error()) })
	cmd.AddCommand(statusCommand(getenv, out, &home), versionCommand(out))
	return cmd
}

func unknown(cmd *cobra.Command, name string) error {
	e := control.Invalid("", fmt.Sprintf("unknown command %q", name))
	e.Hint = "known:"
	for _, c := range cmd.Commands() {
		if !c.Hidden && c.Name() != "completion" {
			e.Hint += " " + c.Name()
		}
	}
	return e
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return control.Invalid("", fmt.Sprintf("%s takes no arguments, got %q", cmd.CommandPath(), args[0]))
	}
	return nil
}

func statusCommand(getenv func(string) string, out io.Writer, home *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show what the host does", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := config.Home(func(k string) string {
				if k == "NANOCLAW_HOME" && *home != "" {
					return *home
				}
				return getenv(k)
			})
			if err != nil {
				return control.Invalid("home", err.Error())
			}
			c := control.NewClient(h)
			defer c.Close()
			st, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON, err := cmd.Flags().GetBool("json"); err != nil || asJSON {
				return encode(out, st)
			}
			_, err = fmt.Fprintf(out, "host %s, process %d, version %s\nsandbox %s, provider %s, %d live sessions\n",
				st.State, st.PID, st.Version, st.Sandbox.Kind, st.Provider.Name, len(st.Sessions))
			return err
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// version is what `ncl version --json` prints.
type version struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
}

func versionCommand(out io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version{control.Version(), control.Protocol}
			if asJSON, err := cmd.Flags().GetBool("json"); err != nil || asJSON {
				return encode(out, v)
			}
			_, err := fmt.Fprintf(out, "ncl %s\n", v.Version)
			return err
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// encode writes v as one line of JSON.
func encode[T any](w io.Writer, v T) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
