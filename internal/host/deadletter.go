package host

import (
	"context"

	"nanoclaw/internal/id"
	"nanoclaw/internal/operate"
)

var _ operate.Reviver = (*Host)(nil)

// Revive implements operate.Reviver.
func (h *Host) Revive(ctx context.Context, actor string, row id.Ledger) (bool, error) {
	return h.delivery.Revive(ctx, actor, row)
}
