package command

import (
	"context"
	"errors"
	"log/slog"

	"nanoclaw/internal/config"
)

func serveHost(context.Context, config.Settings, *slog.Logger, func()) error {
	return errors.New("run the host: this build has none")
}
