// Command agent-runner is the program inside a session's sandbox.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // sandboxes need no zone files

	"nanoclaw/internal/runner/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(program.Execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
