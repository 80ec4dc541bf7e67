package sqlite

import (
	"context"
	"database/sql"

	"nanoclaw/internal/mailbox"
)

// ackReader is how Fetch sees the acks: the runner's own file, or somebody else's as a host reads it.
type ackReader interface {
	// claims returns all acks in state processing.
	claims(ctx context.Context) ([]mailbox.Ack, error)
	// finished tells which of the rows have a final ack.
	finished(ctx context.Context, rows []candidate) (map[string]bool, error)
}

// ownAcks reads through the runner's writing connection; Fetch holds its lock.
type ownAcks struct {
	r *Runner
	// done are rows found to have a final ack, which stands: while the host has not settled them each Fetch meets them again.
	done map[int64]bool
}

// maxDone bounds what is remembered; more is looked up again.
const maxDone = 4096

func (a ownAcks) claims(ctx context.Context) ([]mailbox.Ack, error) {
	return scanAcks(context.Background(), a.r.out.conn, sqlClaims, nil, nil)
}

func (a ownAcks) finished(ctx context.Context, rows []candidate) (map[string]bool, error) {
	known := map[string]bool{}
	var open []candidate
	for _, c := range rows {
		if a.done[c.seq] {
			known[c.id] = true
		} else {
			open = append(open, c)
		}
	}
	found, err := finishedIn(context.Background(), a.r.out.conn, open)
	if err != nil {
		return nil, err
	}
	if len(a.done) > maxDone {
		clear(a.done)
	}
	for _, c := range open {
		if found[c.id] {
			known[c.id], a.done[c.seq] = true, true
		}
	}
	return known, nil
}

type foreignAcks struct{ o *outside }

func (a foreignAcks) claims(ctx context.Context) ([]mailbox.Ack, error) {
	var out []mailbox.Ack
	err := a.o.read(ctx, "read claims", func(ctx context.Context, k *conn) (err error) {
		out, err = scanAcks(ctx, k, sqlClaims, nil, nil)
		return err
	})
	return out, err
}

func (a foreignAcks) finished(ctx context.Context, rows []candidate) (map[string]bool, error) {
	var out map[string]bool
	err := a.o.read(ctx, "read acks", func(ctx context.Context, k *conn) (err error) {
		out, err = finishedIn(ctx, k, rows)
		return err
	})
	return out, err
}

func finishedIn(ctx context.Context, k *conn, rows []candidate) (map[string]bool, error) {
	done := map[string]bool{}
	for _, c := range rows {
		err := k.rows(ctx, sqlAckStatus, []any{c.id}, func(r *sql.Rows) error {
			var status any
			if err := r.Scan(&status); err != nil {
				return err
			}
			if s, ok := status.(string); ok && mailbox.AckStatus(s).Final() {
				done[c.id] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return done, nil
}
