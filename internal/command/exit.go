package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

// Exit codes of this program (spec/operator.md 20.3).
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 6
	exitTimeout     = 7
	exitConflict    = 8
	exitChecks      = 9
	exitCancelled   = 10
)

// exitError ends the program with a code. A nil err prints nothing: everything was said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{exitUsage, err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// noArgs is cobra.NoArgs with our exit code.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	hint := "see: " + cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q; %s", name, hint)
}

// exitCode is the code for an error.
func exitCode(ctx context.Context, err error) int {
	var exit *exitError
	var fromHost *control.Error
	var locked *store.LockedError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &fromHost):
		return fromHost.Exit()
	case errors.As(err, &locked):
		return exitConflict
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitCancelled
	}
	return exitFailed
}

// report prints an error the way the command promised (JSON with --json) and returns the exit code.
func (a *app) report(ctx context.Context, cmd *cobra.Command, err error) int {
	code := exitCode(ctx, err)
	var exit *exitError
	if err == nil || errors.As(err, &exit) && exit.err == nil {
		return code
	}
	if asJSON, flagErr := cmd.Flags().GetBool("json"); flagErr == nil && asJSON {
		a.printJSON(a.err, control.Envelope(wireError(err, code)))
		return code
	}
	fmt.Fprintln(a.err, "nanoclaw: "+err.Error())
	return code
}

func wireError(err error, code int) *control.Error {
	var e *control.Error
	if errors.As(err, &e) {
		return e
	}
	kinds := map[int]control.Code{
		exitUsage: control.CodeInvalid, exitUnreachable: control.CodeUnreachable, exitTimeout: control.CodeTimeout,
		exitConflict: control.CodeConflict, exitCancelled: control.CodeCancelled,
	}
	kind, ok := kinds[code]
	if !ok {
		kind = control.CodeFailed
	}
	return &control.Error{Code: kind, Message: err.Error()}
}

// printJSON writes v as one line.
func (a *app) printJSON(w interface{ Write([]byte) (int, error) }, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}
