package delivery

import (
	"context"

	"nanoclaw/internal/id"
)

// Revive puts a dead row into its queue again, behind what waits there. changed is false if the row is not dead. It is durable on
// return. A row older than a day gets one more try where its platform is away.
func (s *Service) Revive(ctx context.Context, actor string, rowID id.Ledger) (changed bool, err error) {
	if changed, err = s.opt.Store.Requeue(ctx, actor, rowID); err != nil || !changed {
		return changed, err
	}
	row, err := s.opt.Store.Delivery(ctx, rowID)
	if err != nil {
		return true, err
	}
	s.push(row.Destination, item{row: &row})
	return true, nil
}
