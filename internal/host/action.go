package host

import (
	"context"

	"nanoclaw/internal/control"
	"nanoclaw/internal/delivery"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/operate"
)

// actions is what agents may ask of this host. Adding one is a line here.
func (h *Host) actions() map[string]delivery.Action {
	return map[string]delivery.Action{
		mailbox.ActionAdmin: operate.NewInside(h.desk, nil),
	}
}

// Admin carries out a command of the operator.
func (h *Host) Admin(ctx context.Context, r control.AdminRequest) (control.Frame, error) {
	return h.desk.Do(ctx, operate.Caller{}, id.New("cli"), r), nil
}
