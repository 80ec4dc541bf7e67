// Command ncl is the admin client of a running host.
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
	os.Exit(admin.Execute(ctx, os.Getenv, os.Args[1:], os.Stdout, os.Stderr))
}
