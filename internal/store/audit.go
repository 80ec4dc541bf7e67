package store

import (
	"context"
	"encoding/json"
	"fmt"
)

// AuditEntry is one act worth remembering: who did what to what. Detail is a JSON object without bodies and secrets.
type AuditEntry struct {
	At, Actor, Action, Subject string
	Detail                     json.RawMessage
}

// Audit appends entries in their order, all or none.
func (s *Store) Audit(ctx context.Context, entries ...AuditEntry) error {
	return s.tx(ctx, "write audit log", func(tx *txn) error {
		for _, e := range entries {
			if e.At == "" {
				e.At = s.stampNow()
			}
			if len(e.Detail) == 0 {
				e.Detail = json.RawMessage("{}")
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO audit (at, actor, action, subject, detail) VALUES (?, ?, ?, ?, ?)`,
				e.At, e.Actor, e.Action, e.Subject, string(e.Detail)); err != nil {
				return fmt.Errorf("entry %s: %w", e.Action, err)
			}
		}
		return nil
	})
}

// AuditTail lists the newest entries, oldest of them first.
func (s *Store) AuditTail(ctx context.Context, limit int) ([]AuditEntry, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT at, actor, action, subject, detail FROM (SELECT * FROM audit ORDER BY ord DESC LIMIT ?) ORDER BY ord`, limit)
	if err != nil {
		return nil, fmt.Errorf("list audit entries: %w", err)
	}
	type row struct {
		AuditEntry
		detail string
	}
	all, err := collect(rows, "list audit entries", func(r *row) []any { return []any{&r.At, &r.Actor, &r.Action, &r.Subject, &r.detail} })
	if err != nil {
		return nil, err
	}
	out := make([]AuditEntry, len(all))
	for i, r := range all {
		r.AuditEntry.Detail = json.RawMessage(r.detail)
		out[i] = r.AuditEntry
	}
	return out, nil
}
