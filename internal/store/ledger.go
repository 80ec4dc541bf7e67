package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"nanoclaw/internal/id"
)

// LedgerState of an outbound row (design.md section 8).
type LedgerState string

// Ledger states. sent, refused, no-route and dead are final.
const (
	Queued  LedgerState = "queued"
	Sending LedgerState = "sending"
	Sent    LedgerState = "sent"
	Retry   LedgerState = "retry"
	Refused LedgerState = "refused"
	NoRoute LedgerState = "no-route"
	Unknown LedgerState = "unknown"
	Dead    LedgerState = "dead"
)

// Final reports whether nothing more happens to the row.
func (s LedgerState) Final() bool {
	return s == Sent || s == Refused || s == NoRoute || s == Dead
}

// Destination of a ledger row: the unit of order.
type Destination struct{ Instance, PlatformID, ThreadID string }

// Ledger is one outbound row on its way: a copy of the content as it was taken over.
type Ledger struct {
	ID         id.Ledger
	SessionID  id.Session // empty for words of the host itself
	OutboundID string
	Seq        int64
	Destination
	Kind              string // chat, system, task_log, notice
	Content           json.RawMessage
	ReplyTo           string // platform message id
	Exchange          string
	Fallback          bool
	Files             bool // files of the row may still lie in the session's outbox
	State             LedgerState
	Tries             int
	Unknowns          int
	Marked            bool
	NotBefore         time.Time
	PlatformMessageID string   // of part 0
	Part              int      // that goes next, or went last
	PartIDs           []string // platform ids of the parts before Part; of all of them once it is sent
	Reason            string
	CreatedAt         time.Time
	Question          *Question // asked by this row; taken over with it, never read back
}

const ledgerColumns = `id, COALESCE(session_id, ''), outbound_id, seq, instance, platform_id, thread_id, kind, content, reply_to, exchange,
	fallback, files, state, tries, unknowns, marked, not_before, platform_message_id, part, part_ids, reason, created_at`

type ledgerRow struct {
	Ledger
	content, parts     string
	notBefore, created sql.NullString
}

func (v *ledgerRow) fields() []any {
	return []any{&v.ID, &v.SessionID, &v.OutboundID, &v.Seq, &v.Instance, &v.PlatformID, &v.ThreadID, &v.Kind, &v.content, &v.ReplyTo, &v.Exchange,
		&v.Fallback, &v.Files, &v.State, &v.Tries, &v.Unknowns, &v.Marked, &v.notBefore, &v.PlatformMessageID, &v.Part, &v.parts, &v.Reason, &v.created}
}

func ledgerRows(rows *sql.Rows, what string) ([]Ledger, error) {
	all, err := collect(rows, what, (*ledgerRow).fields)
	if err != nil {
		return nil, err
	}
	out := make([]Ledger, len(all))
	for i, v := range all {
		v.Content, v.NotBefore, v.CreatedAt = json.RawMessage(v.content), instant(v.notBefore), instant(v.created)
		if v.PartIDs, err = splitIDs(v.parts); err != nil {
			return nil, fmt.Errorf("%s: parts of delivery %s: %w", what, v.ID, err)
		}
		out[i] = v.Ledger
	}
	return out, nil
}

// Ingest is what one look at a session's outbox brings into the centre.
type Ingest struct {
	Session     id.Session
	OutboundSeq int64 // new cursor
	AckChange   int64 // new cursor
	Rows        []Ledger
	Ends        []End
	Broken      []string // exchanges with a failed message: what they asked before this look is closed
	Over        []string // exchanges that have ended: all they asked is closed
}

// Ingest takes outbound rows, the ends of messages and the cursors over, in one transaction. It is idempotent by (session,
// outbound id). It returns the rows that are new, with their creation time.
func (s *Store) Ingest(ctx context.Context, in Ingest) (fresh []Ledger, err error) {
	err = s.tx(ctx, "take over outbound rows", func(tx *txn) error {
		fresh = fresh[:0]
		at := s.now()
		now := s.stampNow()
		if err := closeQuestions(ctx, tx, in.Session, in.Broken, now); err != nil {
			return err
		}
		for _, v := range in.Rows {
			added, err := insertLedger(ctx, tx, v, now)
			if err != nil {
				return err
			}
			if added && v.Question != nil {
				err = insertQuestion(ctx, tx, v, now)
			}
			if err != nil {
				return err
			}
			if added {
				v.CreatedAt = at
				fresh = append(fresh, v)
			}
		}
		if err := closeQuestions(ctx, tx, in.Session, in.Over, now); err != nil {
			return err
		}
		if err := endMessages(ctx, tx, in.Ends, now); err != nil {
			return err
		}
		if in.Session == "" {
			return nil
		}
		if _, err := tx.ExecContext(ctx, `UPDATE sessions SET outbound_seq = ? WHERE id = ? AND outbound_seq < ?`, in.OutboundSeq, in.Session, in.OutboundSeq); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE sessions SET ack_change = ? WHERE id = ? AND ack_change < ?`, in.AckChange, in.Session, in.AckChange)
		return err
	})
	return fresh, err
}

func insertLedger(ctx context.Context, tx *txn, v Ledger, now string) (bool, error) {
	r, err := tx.ExecContext(ctx, `INSERT INTO ledger (id, session_id, outbound_id, seq, instance, platform_id, thread_id, kind, content, reply_to,
		exchange, fallback, files, untold, state, not_before, reason, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, v.ID, null(string(v.SessionID)), v.OutboundID, v.Seq, v.Instance, v.PlatformID, v.ThreadID, v.Kind,
		string(v.Content), v.ReplyTo, v.Exchange, v.Fallback, v.Files, v.failed(), v.State, stamp(v.NotBefore), v.Reason, now, now)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// failed: the row led to nothing, and its agent has to learn that.
func (v Ledger) failed() bool {
	return v.SessionID != "" && (v.State == Refused || v.State == NoRoute || v.State == Dead)
}

// OpenLedger lists every row that is not final, in order per destination: what a starting host goes on with. The one that was begun is
// first: sessions that write to one place at the same time may have queued in another order than they were stored.
func (s *Store) OpenLedger(ctx context.Context) ([]Ledger, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+ledgerColumns+` FROM ledger WHERE state IN ('queued', 'sending', 'retry', 'unknown')
		ORDER BY instance, platform_id, thread_id, state = 'queued', ord`)
	if err != nil {
		return nil, fmt.Errorf("list open deliveries: %w", err)
	}
	return ledgerRows(rows, "list open deliveries")
}

// Answered reports whether the exchange has a row of the model's own words on its way or delivered.
func (s *Store) Answered(ctx context.Context, session id.Session, exchange string) (bool, error) {
	var n int
	err := s.r.QueryRowContext(ctx, `SELECT COUNT(*) FROM ledger WHERE session_id = ? AND exchange = ? AND exchange <> '' AND kind = 'chat'`,
		session, exchange).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look for answers of exchange %s: %w", exchange, err)
	}
	return n > 0, nil
}

// UpdateLedger writes the row's state, counters, mark, due time, platform ids, part and reason. A final row is never changed.
func (s *Store) UpdateLedger(ctx context.Context, v Ledger) error {
	now := s.stampNow()
	_, err := s.w.ExecContext(ctx, `UPDATE ledger SET state = ?, untold = ?, tries = ?, unknowns = ?, marked = ?, not_before = ?, platform_message_id = ?,
		part = ?, part_ids = ?, reason = ?, updated_at = ?, history = CASE WHEN length(history) < 4000 THEN history || ? ELSE history END
		WHERE id = ? AND state IN ('queued', 'sending', 'retry', 'unknown')`,
		v.State, v.failed(), v.Tries, v.Unknowns, v.Marked, stamp(v.NotBefore), v.PlatformMessageID, v.Part, joinIDs(v.PartIDs), v.Reason, now, step(now, v), v.ID)
	if err != nil {
		return fmt.Errorf("note state of delivery %s: %w", v.ID, err)
	}
	return nil
}

// Unprojected lists final rows of a session that its inbox does not know yet, at most limit.
func (s *Store) Unprojected(ctx context.Context, session id.Session, limit int) ([]Ledger, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+ledgerColumns+` FROM ledger WHERE session_id = ? AND projected = 0
		AND state IN ('sent', 'refused', 'no-route', 'dead') LIMIT ?`, session, limit)
	if err != nil {
		return nil, fmt.Errorf("list outcomes to project: %w", err)
	}
	return ledgerRows(rows, "list outcomes to project")
}

// MarkProjected notes that the inbox knows the outcomes.
func (s *Store) MarkProjected(ctx context.Context, rows []Ledger) error {
	return s.tx(ctx, "note projection", func(tx *txn) error {
		for _, v := range rows {
			if _, err := tx.ExecContext(ctx, `UPDATE ledger SET projected = 1 WHERE id = ? AND state = ?`, v.ID, v.State); err != nil {
				return err
			}
		}
		return nil
	})
}

// Ledgers lists the rows of a session in order, newest last, at most limit: for people and tests.
func (s *Store) Ledgers(ctx context.Context, session id.Session, limit int) ([]Ledger, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+ledgerColumns+` FROM (SELECT * FROM ledger WHERE session_id = ? ORDER BY ord DESC LIMIT ?) ORDER BY ord`, session, limit)
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	return ledgerRows(rows, "list deliveries")
}

// LeftFiles lists final rows whose files may still lie in their session's outbox, at most limit.
func (s *Store) LeftFiles(ctx context.Context, limit int) ([]Ledger, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+ledgerColumns+` FROM ledger WHERE files = 1 AND state IN ('sent', 'refused', 'no-route', 'dead')
		ORDER BY ord LIMIT ?`, limit)
	if err != nil {
		return nil, fmt.Errorf("list files of ended deliveries: %w", err)
	}
	return ledgerRows(rows, "list files of ended deliveries")
}

// FilesRemoved notes that a row has no files in the outbox any more.
func (s *Store) FilesRemoved(ctx context.Context, row id.Ledger) error {
	if _, err := s.w.ExecContext(ctx, `UPDATE ledger SET files = 0 WHERE id = ?`, row); err != nil {
		return fmt.Errorf("note that the files of delivery %s are gone: %w", row, err)
	}
	return nil
}

// Untold lists rows that led to nothing and of which nobody was told yet, at most limit.
func (s *Store) Untold(ctx context.Context, limit int) ([]Ledger, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+ledgerColumns+` FROM ledger WHERE untold = 1 ORDER BY ord LIMIT ?`, limit)
	if err != nil {
		return nil, fmt.Errorf("list failures to tell: %w", err)
	}
	return ledgerRows(rows, "list failures to tell")
}

// FailureTold notes that the agent, or the owner, was told that a row led to nothing.
func (s *Store) FailureTold(ctx context.Context, row id.Ledger) error {
	if _, err := s.w.ExecContext(ctx, `UPDATE ledger SET untold = 0 WHERE id = ?`, row); err != nil {
		return fmt.Errorf("note that the failure of delivery %s was told: %w", row, err)
	}
	return nil
}
