package sqlite

import (
	"context"
	"fmt"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

const (
	sqlAckStatus = `SELECT status FROM processing_ack WHERE message_id = ?`
	sqlClaim     = `INSERT INTO processing_ack (change, message_id, status, status_changed, incarnation, exchange) VALUES (?, ?, 'processing', ?, ?, ?)
ON CONFLICT (message_id) DO UPDATE SET change = excluded.change, status = excluded.status, status_changed = excluded.status_changed,
incarnation = excluded.incarnation, exchange = excluded.exchange, reason = NULL WHERE processing_ack.status = 'processing'`
	sqlFinal = `INSERT INTO processing_ack (change, message_id, status, status_changed, incarnation, reason) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (message_id) DO UPDATE SET change = excluded.change, status = excluded.status, status_changed = excluded.status_changed,
incarnation = excluded.incarnation, reason = excluded.reason WHERE processing_ack.status = 'processing'`
	sqlRelease = `DELETE FROM processing_ack WHERE message_id = ? AND status = 'processing' AND incarnation = ?`
	sqlTurn    = `INSERT INTO container_state (id, turn, updated_at) VALUES (1, ?, ?)
ON CONFLICT (id) DO UPDATE SET turn = excluded.turn, updated_at = excluded.updated_at`
	sqlSetState = `INSERT INTO session_state (key, value, updated_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`
	sqlDeleteState = `DELETE FROM session_state WHERE key = ?`
)

// Claim takes rows for an exchange and says in the same transaction that the runner is working. Claim before the prompt is
// sent. A claim of an earlier incarnation is taken over. If one of the rows is finished already, nothing is claimed and the
// error is mailbox.ErrInvalid.
func (r *Runner) Claim(ctx context.Context, exchange string, ids []string) error {
	if !id.Safe(exchange) {
		return fmt.Errorf("claim: %w", &mailbox.FieldError{Field: "exchange", Reason: fmt.Sprintf("%q is not an exchange id", exchange)})
	}
	return r.change(ctx, "claim", func(t *transaction) error {
		for _, message := range ids {
			n, err := t.exec(sqlClaim, t.nextChange(), message, t.now, t.mine, exchange)
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("%w: row %q is finished", mailbox.ErrInvalid, message)
			}
		}
		_, err := t.exec(sqlTurn, string(mailbox.TurnWorking), t.now)
		return err
	})
}

// Release gives own claims back: the rows are fetched again, without their exchange. Rows that are finished, or claimed by
// somebody else, stay as they are.
func (r *Runner) Release(ctx context.Context, ids []string) error {
	return r.change(ctx, "release claims", func(t *transaction) error {
		if err := t.release(ids); err != nil {
			return err
		}
		return t.rest()
	})
}

func (t *transaction) release(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	for _, message := range ids {
		if _, err := t.exec(sqlRelease, message, t.mine); err != nil {
			return err
		}
	}
	// The number of a removed row must not be given again: a host's cursor may stand on it.
	_, err := t.exec(sqlSetCounter, counterChange, t.lastChange)
	return err
}

// rest says that the runner waits, once it holds no claim.
func (t *transaction) rest() error {
	var one int
	working, err := t.one(sqlHasClaim, []any{t.mine}, &one)
	if err != nil || working {
		return err
	}
	_, err = t.exec(sqlTurn, string(mailbox.TurnIdle), t.now)
	return err
}

// Finish ends an exchange: its last outbound rows, its acks, the claims it gives back and session state become durable
// together or not at all. Rows of Completed, Failed and Skipped need no claim; the first final ack of a row stands. It returns the
// outbound rows as stored, with their numbers. Usage is kept for the newest thousand results. When no own claim is left the runner counts as idle.
func (r *Runner) Finish(ctx context.Context, f mailbox.Finish) ([]mailbox.OutRow, error) {
	rows, err := r.prepare(f.Out)
	if err != nil {
		return nil, fmt.Errorf("finish exchange: %w", err)
	}
	var out []mailbox.OutRow
	err = r.change(ctx, "finish exchange", func(t *transaction) (err error) {
		if out, err = r.insert(t, rows); err != nil {
			return err
		}
		for _, message := range f.Completed {
			if _, err := t.exec(sqlFinal, t.nextChange(), message, string(mailbox.AckCompleted), t.now, t.mine, nil); err != nil {
				return err
			}
		}
		for _, x := range f.Failed {
			if _, err := t.exec(sqlFinal, t.nextChange(), x.ID, string(mailbox.AckFailed), t.now, t.mine, null(x.Reason)); err != nil {
				return err
			}
		}
		for _, x := range f.Skipped {
			if _, err := t.exec(sqlFinal, t.nextChange(), x.ID, string(mailbox.AckScriptError), t.now, t.mine, null(x.Reason)); err != nil {
				return err
			}
		}
		if err := t.release(f.Release); err != nil {
			return err
		}
		for key, value := range f.State {
			if _, err := t.exec(sqlSetState, key, value, t.now); err != nil {
				return err
			}
		}
		for _, key := range f.Forget {
			if _, err := t.exec(sqlDeleteState, key); err != nil {
				return err
			}
		}
		if err := t.spend(f.Usage); err != nil {
			return err
		}
		return t.rest()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
