package store

import (
	"context"
	"database/sql"
	"fmt"

	"nanoclaw/internal/channel"
)

// KV is the private map of one adapter instance (channel.KV).
func (s *Store) KV(scope string) channel.KV { return &kv{s, scope} }

type kv struct {
	s     *Store
	scope string
}

func (k *kv) Get(ctx context.Context, key string) (string, bool, error) {
	var v string
	err := k.s.r.QueryRowContext(ctx, `SELECT value FROM kv WHERE scope = ? AND key = ?`, k.scope, key).Scan(&v)
	if err == sql.ErrNoRows {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read %s of %s: %w", key, k.scope, err)
	}
	return v, true, nil
}

func (k *kv) List(ctx context.Context, from, to string, limit int) ([]channel.Pair, error) {
	rows, err := k.s.r.QueryContext(ctx, `SELECT key, value FROM kv WHERE scope = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?`, k.scope, from, to, limit)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", k.scope, err)
	}
	return collect(rows, "list "+k.scope, func(p *channel.Pair) []any { return []any{&p.Key, &p.Value} })
}

func (k *kv) Update(ctx context.Context, pairs ...channel.Pair) error {
	return k.s.tx(ctx, "write to "+k.scope, func(tx *txn) error {
		for _, p := range pairs {
			var err error
			switch {
			case p.Delete:
				_, err = tx.ExecContext(ctx, `DELETE FROM kv WHERE scope = ? AND key = ?`, k.scope, p.Key)
			case p.IfAbsent:
				var r sql.Result
				if r, err = tx.ExecContext(ctx, `INSERT INTO kv (scope, key, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, k.scope, p.Key, p.Value); err == nil {
					if n, _ := r.RowsAffected(); n == 0 {
						return fmt.Errorf("%s: %w", p.Key, channel.ErrExists)
					}
				}
			default:
				_, err = tx.ExecContext(ctx, `INSERT INTO kv (scope, key, value) VALUES (?, ?, ?)
					ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value`, k.scope, p.Key, p.Value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
