// Command ncl gives commands to a host: beside it, or from inside a sandbox.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"nanoclaw/internal/admin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	info, err := os.Stdin.Stat()
	os.Exit(admin.Execute(ctx, admin.Program{
		Args: os.Args[1:], Getenv: os.Getenv, Stdin: os.Stdin, Terminal: err != nil || info.Mode()&os.ModeCharDevice != 0,
		Stdout: os.Stdout, Stderr: os.Stderr,
	}))
}
