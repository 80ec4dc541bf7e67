package store

import (
	"context"
	"fmt"

	"nanoclaw/internal/id"
)

// Deliveries lists rows of the ledger for people, newest first, at most limit: those in one state or, without one, all that are
// on their way or dead.
func (s *Store) Deliveries(ctx context.Context, state LedgerState, limit int) ([]Ledger, error) {
	const open = `('queued', 'sending', 'retry', 'unknown', 'dead')`
	rows, err := s.r.QueryContext(ctx, `SELECT `+ledgerColumns+` FROM ledger WHERE state = ? OR ? = '' AND state IN `+open+` ORDER BY ord DESC LIMIT ?`,
		state, state, limit)
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	return ledgerRows(rows, "list deliveries")
}

// Delivery is one row of the ledger; ErrNotFound.
func (s *Store) Delivery(ctx context.Context, row id.Ledger) (Ledger, error) {
	var v ledgerRow
	err := s.r.QueryRowContext(ctx, `SELECT `+ledgerColumns+` FROM ledger WHERE id = ?`, row).Scan(v.fields()...)
	v.Content, v.NotBefore, v.CreatedAt = []byte(v.content), instant(v.notBefore), instant(v.created)
	return v.Ledger, found(err, "delivery "+string(row))
}

// Requeue puts a dead row into its queue again, with all its tries, and notes who did it. A row that may have arrived stays marked,
// and its next doubt is the last. changed is false if the row is not dead.
func (s *Store) Requeue(ctx context.Context, actor string, row id.Ledger) (changed bool, err error) {
	return s.bury(ctx, actor, "delivery.retry", row, `UPDATE ledger SET state = 'queued', tries = 0, marked = (marked OR unknowns > 0), not_before = NULL, reason = '',
		projected = 0, untold = 0, updated_at = ? WHERE id = ? AND state = 'dead'`)
}

// Drop ends a dead row for good, as refused, and notes who did it. changed is false if the row is not dead.
func (s *Store) Drop(ctx context.Context, actor string, row id.Ledger) (changed bool, err error) {
	return s.bury(ctx, actor, "delivery.drop", row, `UPDATE ledger SET state = 'refused', reason = 'dropped by the operator: ' || reason, updated_at = ?
		WHERE id = ? AND state = 'dead'`)
}

func (s *Store) bury(ctx context.Context, actor, action string, row id.Ledger, statement string) (changed bool, err error) {
	err = s.tx(ctx, action, func(tx *txn) error {
		r, err := tx.ExecContext(ctx, statement, s.stampNow(), row)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if changed = n == 1; err != nil || !changed {
			return err
		}
		return s.auditIn(ctx, tx, actor, action, string(row), map[string]string{})
	})
	return changed, err
}
