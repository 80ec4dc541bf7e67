package command

import (
	"context"
	"log/slog"

	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
	"nanoclaw/internal/host"
)

func serveHost(ctx context.Context, s config.Settings, log *slog.Logger, ready func()) error {
	return host.Run(ctx, host.Options{Settings: s, Version: control.Version(), Log: log, Ready: ready})
}
