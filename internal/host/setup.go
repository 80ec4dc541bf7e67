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
	return slices.Concat(operate.Mounts(h.store, h, h), operate.Skills(h.store, h, h.shelf.Names), operate.Servers(h.store, h), operate.Packages(h.store, h, noImages(h.images)),
		[]operate.Command{operate.Restart(h.store, h, h)})
}

// noImages says why packages cannot be had here.
func noImages(m *images) string {
	if m.builder == nil {
		return "this sandbox has no images, so agents use the programs of this machine"
	}
	return ""
}

// RestartTelling implements operate.Restarter.
func (h *Host) RestartTelling(ctx context.Context, group id.AgentGroup, key, text string) (int, error) {
	return h.sessions.Restart(ctx, group, "", key, text)
}
