package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// inColumns of messages_in in the order that scanIn reads them.
const inColumns = `seq, id, kind, timestamp, status, process_after, recurrence, series_id, tries, trigger, channel_type,
platform_id, thread_id, content, platform_message_id, source_session_id, after_incarnation`

const (
	sqlInsertIn = `INSERT INTO messages_in (` + inColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING`
	sqlInSeqByID  = `SELECT seq FROM messages_in WHERE id = ?`
	sqlInByID     = `SELECT ` + inColumns + ` FROM messages_in WHERE id = ?`
	sqlMaxIn      = `SELECT max(seq) FROM messages_in`
	sqlCounter    = `SELECT value FROM counter WHERE name = ?`
	sqlSetCounter = `INSERT INTO counter (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)`

	sqlDueReady = `SELECT count(*) FROM messages_in WHERE trigger = 1 AND status = 'pending' AND process_after IS NULL AND kind <> 'system'`
	sqlDueTimed = `SELECT count(*) FROM messages_in WHERE trigger = 1 AND status = 'pending' AND process_after IS NOT NULL
AND process_after <= ? AND kind <> 'system'`
	sqlNextDue = `SELECT min(process_after) FROM messages_in WHERE trigger = 1 AND status = 'pending' AND process_after IS NOT NULL
AND process_after > ? AND kind <> 'system'`
)

// Names in the counter table.
const (
	counterSeq         = "seq"
	counterChange      = "change"
	counterIncarnation = "incarnation"
)

// scanIn reads one row. The error names the field when the row itself is not what Put stores; id and seq are then set.
func scanIn(r *sql.Rows) (mailbox.InRow, error) {
	var row mailbox.InRow
	var stamp, content string
	var after, recurrence, series, channel, platform, thread, message, source sql.NullString
	err := r.Scan(&row.Seq, &row.ID, &row.Kind, &stamp, &row.Status, &after, &recurrence, &series, &row.Tries, &row.Trigger,
		&channel, &platform, &thread, &content, &message, &source, &row.AfterIncarnation)
	if err != nil {
		return row, err
	}
	row.Recurrence, row.SeriesID = recurrence.String, series.String
	row.Address = mailbox.Address{ChannelType: channel.String, PlatformID: platform.String, ThreadID: thread.String}
	row.PlatformMessageID, row.SourceSessionID = message.String, source.String
	row.Content = json.RawMessage(content)
	if row.Timestamp, err = mailbox.ParseTime(stamp); err != nil {
		return row, &mailbox.FieldError{Field: "timestamp", Reason: err.Error()}
	}
	if row.ProcessAfter, err = mailbox.ParseTime(after.String); err != nil {
		return row, &mailbox.FieldError{Field: "process_after", Reason: err.Error()}
	}
	check := row
	if check.Kind == mailbox.KindChatSDK {
		check.Kind = mailbox.KindChat
	}
	return row, check.Validate()
}

// nextIn is the next even number, above every one that was ever given.
func nextIn(k *conn) (int64, error) {
	highest, err := highestSeq(k, sqlMaxIn)
	return highest - highest%2 + 2, err
}

// highestSeq is the highest number given on one side, also of rows that were pruned since.
func highestSeq(k *conn, query string) (int64, error) {
	var rows, floor sql.NullInt64
	if _, err := k.one(query, nil, &rows); err != nil {
		return 0, err
	}
	if _, err := k.one(sqlCounter, []any{counterSeq}, &floor); err != nil {
		return 0, err
	}
	return max(rows.Int64, floor.Int64), nil
}

// Put stores rows for the agent, all or none, and is durable on return. A row whose id is there already changes nothing and
// is reported as a duplicate with the seq it has. Empty fields get the table's defaults: an id, now, pending. A refused row
// is an error that matches mailbox.ErrInvalid, wraps a *mailbox.FieldError and names the row's position.
func (h *Host) Put(ctx context.Context, rows ...mailbox.InRow) ([]mailbox.PutResult, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	for i, r := range rows {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("put row %d: %w", i+1, err)
		}
	}
	var out []mailbox.PutResult
	err := h.change(ctx, "put", func(k *conn) error {
		out = make([]mailbox.PutResult, 0, len(rows))
		seq, err := nextIn(k)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.ID == "" {
				r.ID = id.New(id.PrefixMessage)
			}
			stamp := mailbox.FormatTime(r.Timestamp)
			if stamp == "" {
				stamp = h.now()
			}
			if r.Status == "" {
				r.Status = mailbox.StatusPending
			}
			n, err := k.exec(sqlInsertIn, seq, r.ID, string(r.Kind), stamp, string(r.Status), null(mailbox.FormatTime(r.ProcessAfter)),
				null(r.Recurrence), null(r.SeriesID), r.Tries, r.Trigger, null(r.ChannelType), null(r.PlatformID), null(r.ThreadID),
				string(r.Content), null(r.PlatformMessageID), null(r.SourceSessionID), r.AfterIncarnation)
			if err != nil {
				return err
			}
			p := mailbox.PutResult{ID: r.ID, Seq: seq}
			if n == 0 {
				p.Duplicate = true
				if _, err := k.one(sqlInSeqByID, []any{r.ID}, &p.Seq); err != nil {
					return err
				}
			} else {
				seq += 2
			}
			out = append(out, p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Row returns one inbound row, or mailbox.ErrNotExist.
func (h *Host) Row(ctx context.Context, id string) (mailbox.InRow, error) {
	var row mailbox.InRow
	err := h.look(ctx, "read inbound row", func(k *conn) (err error) {
		row, err = rowByID(k, id)
		return err
	})
	return row, err
}

func rowByID(k *conn, id string) (mailbox.InRow, error) {
	var row mailbox.InRow
	found := false
	err := k.rows(context.Background(), sqlInByID, []any{id}, func(r *sql.Rows) (err error) {
		found = true
		row, err = scanIn(r)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("row %q: %w", id, mailbox.ErrNotExist)
	}
	return row, err
}
