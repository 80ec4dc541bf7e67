// Command nanoclaw is the host and its operations.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"nanoclaw/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(command.Execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
