package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"nanoclaw/internal/mailbox"
)

// Bounds of Prune on the runner's side. The newest rows always stay: numbers never go back, and an exchange that is run again
// knows what it has sent.
const (
	keptOut    = 1000
	prunePage  = 500
	pruneMost  = 20 * prunePage
	sqlOutEdge = `SELECT seq FROM messages_out ORDER BY seq DESC LIMIT 1 OFFSET ?`
	sqlAckEdge = `SELECT change FROM processing_ack ORDER BY change DESC LIMIT 1 OFFSET ?`
	sqlOutOld  = `SELECT seq, id FROM messages_out WHERE seq > ? AND seq <= ? AND timestamp < ? ORDER BY seq LIMIT ?`
	sqlAckOld  = `SELECT change, message_id FROM processing_ack WHERE change > ? AND change <= ? AND status <> 'processing' AND status_changed < ?
ORDER BY change LIMIT ?`
	sqlIsDelivered = `SELECT 1 FROM delivered WHERE message_out_id = ?`
	sqlIsPending   = `SELECT 1 FROM messages_in WHERE id = ? AND status IN ('pending', 'paused')`
	sqlDropOut     = `DELETE FROM messages_out WHERE seq = ?`
	sqlDropAck     = `DELETE FROM processing_ack WHERE change = ? AND status <> 'processing'`
)

// Prune removes what the host is done with and what is older than before: outbound rows whose outcome it has written, and acks
// whose rows it has settled. It works in short transactions, at most about 10,000 rows of each a call, and returns how many
// went (spec/runner.md W2).
func (r *Runner) Prune(ctx context.Context, before time.Time) (int, error) {
	limit := mailbox.FormatTime(before)
	rows, err := r.pruneOld(ctx, sqlOutEdge, sqlOutOld, sqlDropOut, limit, func(k *conn, id string) (bool, error) {
		var one int
		return k.one(sqlIsDelivered, []any{id}, &one)
	})
	if err != nil {
		return rows, err
	}
	acks, err := r.pruneOld(ctx, sqlAckEdge, sqlAckOld, sqlDropAck, limit, func(k *conn, id string) (bool, error) {
		var one int
		pending, err := k.one(sqlIsPending, []any{id}, &one)
		return !pending, err
	})
	return rows + acks, err
}

// pruneOld removes old rows of one table of which the inbound side says that the host is done with them.
func (r *Runner) pruneOld(ctx context.Context, edgeQuery, oldQuery, drop, limit string, done func(k *conn, id string) (bool, error)) (int, error) {
	var edge int64
	found := false
	err := r.own(ctx, "prune", func(_ context.Context, k *conn) (err error) {
		found, err = k.one(edgeQuery, []any{keptOut}, &edge)
		return err
	})
	if err != nil || !found {
		return 0, err
	}
	gone, after := 0, int64(0)
	for seen := 0; seen < pruneMost && ctx.Err() == nil; {
		var page []candidate
		err := r.own(ctx, "prune", func(ctx context.Context, k *conn) error {
			page = page[:0]
			return k.rows(ctx, oldQuery, []any{after, edge, limit, prunePage}, func(rows *sql.Rows) error {
				var c candidate
				err := rows.Scan(&c.seq, &c.id)
				page = append(page, c)
				return err
			})
		})
		if err != nil || len(page) == 0 {
			return gone, err
		}
		seen += len(page)
		after = page[len(page)-1].seq
		var old []candidate
		err = r.inbound(ctx, "prune", func(k *conn) error {
			old = old[:0]
			for _, c := range page {
				ok, err := done(k, c.id)
				if err != nil {
					return err
				}
				if ok {
					old = append(old, c)
				}
			}
			return nil
		})
		if err != nil {
			return gone, err
		}
		if err := r.drop(ctx, drop, old); err != nil {
			return gone, err
		}
		gone += len(old)
	}
	return gone, nil
}

func (r *Runner) drop(ctx context.Context, query string, rows []candidate) error {
	if len(rows) == 0 {
		return nil
	}
	return r.change(ctx, "prune", func(t *transaction) error {
		for _, c := range rows {
			if _, err := t.exec(query, c.seq); err != nil {
				return fmt.Errorf("remove %q: %w", c.id, err)
			}
		}
		return nil
	})
}
