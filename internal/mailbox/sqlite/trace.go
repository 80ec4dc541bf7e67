package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"nanoclaw/internal/mailbox"
)

const (
	sqlAckOf  = `SELECT ` + ackColumns + ` FROM processing_ack WHERE message_id = ?`
	sqlAcksOf = `SELECT ` + ackColumns + ` FROM processing_ack WHERE exchange = ? ORDER BY change LIMIT 100`
	sqlNote   = `SELECT iif(octet_length(value) > 262144, '', value) FROM session_state WHERE key = ? AND typeof(value) = 'text'`
	sqlOutOf  = `SELECT ` + outColumns + ` FROM messages_out WHERE exchange = ? ORDER BY seq LIMIT 200`
)

// Trace tells all that the mailbox knows of one inbound row. It changes nothing, and it is no error that there is nothing: what
// cannot be read stands in Problems. For people who ask, not for the way of a message: it walks the acks.
func (h *Host) Trace(ctx context.Context, rowID string) (mailbox.Trace, error) {
	var t mailbox.Trace
	row, err := h.Row(ctx, rowID)
	var field *mailbox.FieldError
	switch {
	case err == nil:
		t.Row = &row
	case errors.As(err, &field):
		t.Problems = append(t.Problems, err.Error())
	case !errors.Is(err, mailbox.ErrNotExist):
		return t, err
	}
	err = h.outside(ctx, "read trace", func(ctx context.Context, k *conn) error {
		t.Ack, t.With, t.Out, t.Usage, t.Note = nil, nil, nil, nil, nil
		acks, err := scanAcks(ctx, k, sqlAckOf, []any{rowID}, nil)
		if err != nil {
			return err
		}
		if t.State, err = containerState(ctx, k); err != nil || len(acks) == 0 {
			return err
		}
		t.Ack = &acks[0]
		return traceExchange(ctx, k, t.Ack.Exchange, rowID, &t)
	})
	h.traced(&t, err)
	return t, ctx.Err()
}

// TraceExchange is Trace for an exchange, whatever rows it had; Row and Ack stay nil and With names all of them.
func (h *Host) TraceExchange(ctx context.Context, exchange string) (mailbox.Trace, error) {
	var t mailbox.Trace
	err := h.outside(ctx, "read trace", func(ctx context.Context, k *conn) (err error) {
		t.With, t.Out, t.Usage, t.Note = nil, nil, nil, nil
		if t.State, err = containerState(ctx, k); err != nil {
			return err
		}
		return traceExchange(ctx, k, exchange, "", &t)
	})
	h.traced(&t, err)
	return t, ctx.Err()
}

func (h *Host) traced(t *mailbox.Trace, err error) {
	if err != nil {
		t.Hostile = errors.Is(err, mailbox.ErrHostile)
		t.Problems = append(t.Problems, err.Error())
	}
	h.out.Lock()
	defer h.out.Unlock()
	t.Beat = h.out.heartbeat(h.opt.Now())
}

func traceExchange(ctx context.Context, k *conn, exchange, but string, t *mailbox.Trace) error {
	if exchange == "" {
		return nil
	}
	acks, err := scanAcks(ctx, k, sqlAcksOf, []any{exchange}, nil)
	if err != nil {
		return err
	}
	for _, a := range acks {
		if a.MessageID != but {
			t.With = append(t.With, a.MessageID)
		}
	}
	rows, err := scanOut(ctx, k, sqlOutOf, exchange)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Err == nil {
			t.Out = append(t.Out, r.Row)
		}
	}
	all, err := scanUsage(ctx, k, 0, keptUsage)
	if err != nil {
		return err
	}
	for _, u := range all {
		if u.Exchange == exchange {
			t.Usage = append(t.Usage, u)
		}
	}
	return k.rows(ctx, sqlNote, []any{mailbox.NoteKey(exchange)}, func(r *sql.Rows) error {
		var value string
		if err := r.Scan(&value); err != nil {
			return err
		}
		t.Note = mailbox.DecodeNote(exchange, value)
		return nil
	})
}
