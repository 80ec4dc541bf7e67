package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

func (a *app) stopCommand() *cobra.Command {
	var keep bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the host and its sandboxes",
		Long: `stop ends the host and every sandbox and returns when the host has ended. With --keep-sandboxes agents go on working
and the next host finds them again, as after SIGTERM to serve. If no host runs, sandboxes that one left are ended.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.stop(cmd.Context(), !keep, timeout) },
	}
	cmd.Flags().BoolVar(&keep, "keep-sandboxes", false, "leave sandboxes running")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "give up waiting after this")
	return cmd
}

func (a *app) stop(parent context.Context, sandboxes bool, timeout time.Duration) error {
	home, err := a.home()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	c := control.NewClient(home)
	defer c.Close()
	st, err := c.Stop(ctx, sandboxes)
	if control.IsCode(err, control.CodeUnreachable) && sandboxes {
		return a.stopLeft(ctx, home, err)
	}
	if err != nil {
		return err
	}
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		_, held := store.LockOwner(home)
		_, err := c.Status(ctx)
		if !held && control.IsCode(err, control.CodeUnreachable) {
			fmt.Fprintf(a.err, "stopped the host of %s (process %d)\n", home, st.PID)
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			if parent.Err() != nil {
				return &exitError{exitCancelled, errors.New("cancelled; the host is stopping")}
			}
			return &exitError{exitTimeout, fmt.Errorf("the host (process %d) still runs after %v; see its log", st.PID, timeout)}
		}
	}
}

// stopLeft ends the sandboxes of a host that is gone. Where nothing runs at all, that is the error.
func (a *app) stopLeft(ctx context.Context, home string, unreachable error) error {
	if _, held := store.LockOwner(home); held {
		return unreachable
	}
	s, err := a.settings()
	if errors.Is(err, fs.ErrPermission) {
		return unreachable // which says whose home it is
	}
	if err != nil {
		return err
	}
	n, err := a.StopLeft(ctx, s, obs.Logger(a.err, slog.LevelWarn, false))
	if err != nil {
		return fmt.Errorf("no host runs on %s; end the sandboxes that it left: %w", home, err)
	}
	if n == 0 {
		return unreachable
	}
	fmt.Fprintf(a.err, "no host runs on %s; ended what it had left running (sandboxes: %d)\n", home, n)
	return nil
}
