package host

import (
	"context"
	"slices"

	"nanoclaw/internal/id"
	"nanoclaw/internal/operate"
)

var _ operate.Restarter = (*Host)(nil)

// outfitting are the commands about what sandboxes are made of.
func (h *Host) outfitting() []operate.Command {
	return slices.Concat(operate.Mounts(h.store, h, h), operate.Skills(h.store, h, h.shelf.Names), operate.Servers(h.store, h),
		[]operate.Command{operate.Restart(h.store, h, h)})
}

// RestartTelling implements operate.Restarter.
func (h *Host) RestartTelling(ctx context.Context, group id.AgentGroup, key, text string) (int, error) {
	return h.sessions.Restart(ctx, group, "", key, text)
}
