package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

const (
	sqlInsertOut = `INSERT INTO messages_out (seq, id, in_reply_to, timestamp, deliver_after, kind, channel_type, platform_id, thread_id,
content, incarnation, exchange, segment, fallback) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	sqlOutByID      = `SELECT ` + outColumns + ` FROM messages_out WHERE id = ?`
	sqlOutBySeq     = `SELECT ` + outColumns + ` FROM messages_out WHERE seq = ?`
	sqlOutExchange  = `SELECT ` + outColumns + ` FROM messages_out WHERE exchange = ? ORDER BY seq`
	sqlSetContainer = `INSERT INTO container_state (id, turn, current_tool, tool_declared_timeout_ms, tool_started_at, updated_at, queued)
VALUES (1, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET turn = coalesce(excluded.turn, turn), current_tool = excluded.current_tool,
tool_declared_timeout_ms = excluded.tool_declared_timeout_ms, tool_started_at = excluded.tool_started_at, updated_at = excluded.updated_at,
queued = excluded.queued`
)

// Write stores one outbound row and returns it with its id, number and time. A row whose id is there already changes nothing:
// the stored one is returned. A refused row is mailbox.ErrInvalid and names the field.
func (r *Runner) Write(ctx context.Context, row mailbox.OutRow) (mailbox.OutRow, error) {
	rows, err := r.prepare([]mailbox.OutRow{row})
	if err != nil {
		return mailbox.OutRow{}, fmt.Errorf("write outbound row: %w", err)
	}
	var out []mailbox.OutRow
	err = r.change(ctx, "write outbound row", func(t *transaction) (err error) {
		out, err = r.insert(t, rows)
		return err
	})
	if err != nil {
		return mailbox.OutRow{}, err
	}
	return out[0], nil
}

// prepare gives rows their defaults and refuses what no host would take.
func (r *Runner) prepare(rows []mailbox.OutRow) ([]mailbox.OutRow, error) {
	out := make([]mailbox.OutRow, 0, len(rows))
	for i, row := range rows {
		if row.ID == "" {
			row.ID = id.New(id.PrefixMessage)
		}
		if row.Timestamp.IsZero() {
			row.Timestamp = r.opt.Now()
		}
		row.Timestamp = row.Timestamp.UTC().Truncate(time.Millisecond)
		if !row.DeliverAfter.IsZero() {
			row.DeliverAfter = row.DeliverAfter.UTC().Truncate(time.Millisecond)
		}
		row.Incarnation = r.opt.Incarnation
		if row.Kind == mailbox.KindChatSDK {
			return nil, fmt.Errorf("row %d: %w", i+1, &mailbox.FieldError{Field: "kind", Reason: "chat-sdk is read, never written"})
		}
		if err := row.Validate(); err != nil {
			return nil, fmt.Errorf("row %d: %w", i+1, err)
		}
		out = append(out, row)
	}
	return out, nil
}

func (r *Runner) insert(t *transaction, rows []mailbox.OutRow) ([]mailbox.OutRow, error) {
	out := make([]mailbox.OutRow, 0, len(rows))
	for _, row := range rows {
		before := t.lastSeq
		row.Seq = t.nextSeq(r.seenIn.Load())
		n, err := t.exec(sqlInsertOut, row.Seq, row.ID, null(row.InReplyTo), mailbox.FormatTime(row.Timestamp), null(mailbox.FormatTime(row.DeliverAfter)),
			string(row.Kind), null(row.ChannelType), null(row.PlatformID), null(row.ThreadID), string(row.Content), row.Incarnation, null(row.Exchange),
			row.Segment, row.Fallback)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			t.lastSeq = before
			if row, err = t.outByID(row.ID); err != nil {
				return nil, err
			}
		}
		out = append(out, row)
	}
	return out, nil
}

func (t *transaction) outByID(rowID string) (mailbox.OutRow, error) {
	rows, err := scanOut(context.Background(), t.conn, sqlOutByID, rowID)
	if err != nil {
		return mailbox.OutRow{}, err
	}
	if len(rows) == 0 || rows[0].Err != nil {
		return mailbox.OutRow{}, fmt.Errorf("%w: row %q is there and cannot be read", mailbox.ErrCorrupt, rowID)
	}
	return rows[0].Row, nil
}

// scanOut reads and decodes outbound rows.
func scanOut(ctx context.Context, k *conn, query string, args ...any) ([]OutResult, error) {
	var out []OutResult
	err := k.rows(ctx, query, args, func(r *sql.Rows) error {
		raw, err := scanRaw(r)
		if err != nil {
			return err
		}
		row, err := DecodeOut(raw)
		out = append(out, OutResult{Row: row, Err: err})
		return nil
	})
	return out, err
}

func scanRaw(r *sql.Rows) (RawOut, error) {
	var raw RawOut
	err := r.Scan(&raw.Seq, &raw.ID, &raw.InReplyTo, &raw.Timestamp, &raw.DeliverAfter, &raw.Kind, &raw.ChannelType,
		&raw.PlatformID, &raw.ThreadID, &raw.Content, &raw.Incarnation, &raw.Exchange, &raw.Segment, &raw.IsFallback)
	return raw, err
}

// Sent returns the rows that an exchange has written, by whatever incarnation, in order. Its cost does not depend on history.
func (r *Runner) Sent(ctx context.Context, exchange string) ([]mailbox.OutRow, error) {
	var rows []OutResult
	err := r.own(ctx, "read rows of exchange", func(ctx context.Context, k *conn) (err error) {
		rows, err = scanOut(ctx, k, sqlOutExchange, exchange)
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []mailbox.OutRow
	for _, row := range rows {
		if row.Err == nil {
			out = append(out, row.Row)
		}
	}
	return out, nil
}

// own runs f, which may run more than once, on the outbound side. Without an outbound file, which only a read-only runner
// meets, f does not run.
func (r *Runner) own(ctx context.Context, what string, f func(ctx context.Context, k *conn) error) error {
	r.out.Lock()
	defer r.out.Unlock()
	if r.out.conn == nil {
		return r.outside.read(ctx, what, f)
	}
	return failure(what, retry(ctx, func() error { return f(context.Background(), r.out.conn) }))
}

// StateValue reads one value of session state and whether it is there.
func (r *Runner) StateValue(ctx context.Context, key string) (string, bool, error) {
	var value string
	var found bool
	err := r.own(ctx, "read session state", func(_ context.Context, k *conn) (err error) {
		found, err = k.one(`SELECT value FROM session_state WHERE key = ?`, []any{key}, &value)
		return err
	})
	return value, found, err
}

// SetState stores one value of session state.
func (r *Runner) SetState(ctx context.Context, key, value string) error {
	return r.change(ctx, "set session state", func(t *transaction) error {
		_, err := t.exec(sqlSetState, key, value, t.now)
		return err
	})
}

// DeleteState removes one value of session state; a missing one is no error.
func (r *Runner) DeleteState(ctx context.Context, key string) error {
	return r.change(ctx, "delete session state", func(t *transaction) error {
		_, err := t.exec(sqlDeleteState, key)
		return err
	})
}

// SetContainer says what the runner does. An empty Turn leaves the turn as it is, which Claim, Release and Finish keep; a zero
// UpdatedAt is now.
func (r *Runner) SetContainer(ctx context.Context, c mailbox.ContainerState) error {
	return r.change(ctx, "set container state", func(t *transaction) error {
		updated := mailbox.FormatTime(c.UpdatedAt)
		if updated == "" {
			updated = t.now
		}
		var timeout any
		if c.ToolTimeout > 0 {
			timeout = c.ToolTimeout.Milliseconds()
		}
		_, err := t.exec(sqlSetContainer, null(string(c.Turn)), null(c.CurrentTool), timeout, null(mailbox.FormatTime(c.ToolStartedAt)), updated, c.Queued)
		return err
	})
}

// Beat is the sign of life: it sets the modification time of the heartbeat file and makes the file if need be.
func (r *Runner) Beat() error {
	path := filepath.Join(r.root, outDir, heartbeatFile)
	now := r.opt.Now()
	err := os.Chtimes(path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			err = errors.Join(f.Close(), os.Chtimes(path, now, now))
		}
	}
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}
