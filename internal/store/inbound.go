package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// Message is one received message for one agent: the dedupe row, and the state it ends in (P2).
type Message struct {
	Instance, PlatformID, ThreadID, PlatformMessageID string

	AgentGroupID id.AgentGroup
	RowID        string // in the session's inbox
	SessionID    id.Session
	SenderID     string // user id; empty if nobody wrote it
	SenderName   string // as the platform tells it; kept with the user
	Trigger      bool   // false: stored as context; it ends at once
	State        channel.SettleState
	Reason       string
	Routed       []Choice  // what each wiring of the chat decided; written by Accept and read by Trace
	Received     time.Time // set when read
	Sticky       Sticky    // the thread that this message engages the agent in; written by Accept
}

// Sticky is a thread of a chat in which an agent was engaged. Without a thread it is nothing.
type Sticky struct {
	Chat   id.MessagingGroup
	Thread string
}

// Seen reports whether every given message is stored already: the quick answer to a re-delivered event.
func (s *Store) Seen(ctx context.Context, instance, platformID, platformMessageID string, group id.AgentGroup) (bool, error) {
	var n int
	err := s.r.QueryRowContext(ctx, `SELECT COUNT(*) FROM inbound_messages WHERE instance = ? AND platform_id = ? AND platform_message_id = ?
		AND agent_group_id = ?`, instance, platformID, platformMessageID, group).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look for message %s: %w", platformMessageID, err)
	}
	return n > 0, nil
}

// SeenByAny reports whether a message is stored for some agent.
func (s *Store) SeenByAny(ctx context.Context, instance, platformID, platformMessageID string) (bool, error) {
	var n int
	err := s.r.QueryRowContext(ctx, `SELECT COUNT(*) FROM inbound_messages WHERE instance = ? AND platform_id = ? AND platform_message_id = ?`,
		instance, platformID, platformMessageID).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look for message %s: %w", platformMessageID, err)
	}
	return n > 0, nil
}

// Accept is the second step of P1: the dedupe rows and the due time of their sessions, in one transaction, after the rows
// are in the inboxes. The sender is kept as a user, and a message that was context until now and engages is pending from then
// on, under its new row. Repeating it changes nothing. ended are rows that came to their end before they were accepted; their
// messages are final now.
func (s *Store) Accept(ctx context.Context, messages []Message) (ended []string, err error) {
	err = s.tx(ctx, "accept message", func(tx *txn) error {
		ended = nil
		now := s.stampNow()
		for _, m := range messages {
			state, final := "pending", sql.NullString{}
			if !m.Trigger {
				state, final = "context", null(now) // its end is told to nobody
			}
			fresh, err := touched(tx.ExecContext(ctx, `INSERT INTO inbound_messages (instance, platform_id, platform_message_id, agent_group_id, row_id,
				session_id, thread_id, sender_id, state, received_at, final_at, settled_at, routed)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
				m.Instance, m.PlatformID, m.PlatformMessageID, m.AgentGroupID, m.RowID, m.SessionID, m.ThreadID, m.SenderID, state, now, final, final, choices(m.Routed)))
			if err != nil {
				return err
			}
			if _, _, err := id.ParseUser(m.SenderID); err == nil {
				if _, err := seeUser(ctx, tx, id.User(m.SenderID), m.SenderName, now); err != nil {
					return err
				}
			}
			if !m.Trigger {
				continue
			}
			if !fresh {
				if _, err := tx.ExecContext(ctx, `UPDATE inbound_messages SET row_id = ?, session_id = ?, state = 'pending', received_at = ?, final_at = NULL,
					settled_at = NULL, routed = ? WHERE instance = ? AND platform_id = ? AND platform_message_id = ? AND agent_group_id = ? AND state = 'context'`,
					m.RowID, m.SessionID, now, choices(m.Routed), m.Instance, m.PlatformID, m.PlatformMessageID, m.AgentGroupID); err != nil {
					return err
				}
			}
			if m.Sticky.Thread != "" {
				if _, err := tx.ExecContext(ctx, `INSERT INTO engagements (messaging_group_id, agent_group_id, thread_id, engaged_at) VALUES (?, ?, ?, ?)
					ON CONFLICT (messaging_group_id, agent_group_id, thread_id) DO UPDATE SET engaged_at = excluded.engaged_at`,
					m.Sticky.Chat, m.AgentGroupID, m.Sticky.Thread, now); err != nil {
					return err
				}
			}
			if late, err := lateEnd(ctx, tx, m.RowID); err != nil {
				return err
			} else if late {
				ended = append(ended, m.RowID)
				continue
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO session_due (session_id, due_at) VALUES (?, ?)
				ON CONFLICT (session_id) DO UPDATE SET due_at = excluded.due_at WHERE excluded.due_at < session_due.due_at`, m.SessionID, now); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `UPDATE sessions SET last_active = ? WHERE id = ?`, now, m.SessionID); err != nil {
				return err
			}
		}
		return nil
	})
	return ended, err
}

const messageColumns = `instance, platform_id, thread_id, platform_message_id, agent_group_id, row_id, session_id, sender_id, state, reason,
	received_at`

func (m *Message) fields() []any {
	return []any{&m.Instance, &m.PlatformID, &m.ThreadID, &m.PlatformMessageID, &m.AgentGroupID, &m.RowID, &m.SessionID, &m.SenderID, &m.State, &m.Reason,
		moment{&m.Received}}
}

// MessageByRow finds a message by its row in the inbox; ErrNotFound for rows that are no chat messages.
func (s *Store) MessageByRow(ctx context.Context, rowID string) (Message, error) {
	var m Message
	err := s.r.QueryRowContext(ctx, `SELECT `+messageColumns+` FROM inbound_messages WHERE row_id = ?`, rowID).Scan(m.fields()...)
	return m, found(err, "message "+rowID)
}

// PendingMessages of a session: those without an end state.
func (s *Store) PendingMessages(ctx context.Context, session id.Session) ([]Message, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+messageColumns+` FROM inbound_messages WHERE session_id = ? AND state = 'pending'
		ORDER BY received_at`, session)
	if err != nil {
		return nil, fmt.Errorf("list pending messages: %w", err)
	}
	return collect(rows, "list pending messages", (*Message).fields)
}

// Unsettled lists messages whose end state was not yet told to their adapter, oldest first.
func (s *Store) Unsettled(ctx context.Context, limit int) ([]Message, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+messageColumns+` FROM inbound_messages WHERE final_at IS NOT NULL AND settled_at IS NULL
		ORDER BY final_at LIMIT ?`, limit)
	if err != nil {
		return nil, fmt.Errorf("list unsettled messages: %w", err)
	}
	return collect(rows, "list unsettled messages", (*Message).fields)
}

// MarkSettled notes that the adapter was told.
func (s *Store) MarkSettled(ctx context.Context, rowID string) error {
	if _, err := s.w.ExecContext(ctx, `UPDATE inbound_messages SET settled_at = ? WHERE row_id = ? AND settled_at IS NULL`, s.stampNow(), rowID); err != nil {
		return fmt.Errorf("note settlement of %s: %w", rowID, err)
	}
	return nil
}

// End is the end state of an inbox row.
type End struct {
	RowID  string
	State  channel.SettleState
	Reason string
}

// endMessages ends the messages of rows. A row that is not accepted yet (a host died between the two steps of P1, and the
// agent was faster than the replay) leaves its end for Accept.
func endMessages(ctx context.Context, tx *txn, ends []End, now string) error {
	for _, e := range ends {
		r, err := tx.ExecContext(ctx, `UPDATE inbound_messages SET state = ?, reason = ?, final_at = ? WHERE row_id = ? AND state = 'pending'`,
			e.State, e.Reason, now, e.RowID)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n > 0 || !strings.HasPrefix(e.RowID, id.PrefixMessage+"-") {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO early_ends (row_id, state, reason, ended_at)
			SELECT ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM inbound_messages WHERE row_id = ?) ON CONFLICT DO NOTHING`,
			e.RowID, e.State, e.Reason, now, e.RowID); err != nil {
			return err
		}
	}
	return nil
}

// lateEnd gives a message that was just accepted the end its row came to before, and reports whether there was one.
func lateEnd(ctx context.Context, tx *txn, rowID string) (bool, error) {
	r, err := tx.ExecContext(ctx, `UPDATE inbound_messages SET (state, reason, final_at) = (SELECT state, reason, ended_at FROM early_ends WHERE row_id = ?)
		WHERE row_id = ? AND state = 'pending' AND EXISTS (SELECT 1 FROM early_ends WHERE row_id = ?)`, rowID, rowID, rowID)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	if err != nil || n == 0 {
		return false, err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM early_ends WHERE row_id = ?`, rowID)
	return true, err
}

// pruned is how many rows one transaction of Prune deletes: few enough that nobody waits for it.
const pruned = 500

// Prune deletes what is final and older than before: messages, ledger rows that their inbox knows of, parts of messages, and audit entries. It
// goes in small transactions and returns how many rows went, also beside an error; calling it again goes on.
func (s *Store) Prune(ctx context.Context, before time.Time) (total int64, err error) {
	for _, q := range []string{
		`DELETE FROM inbound_messages WHERE row_id IN (SELECT row_id FROM inbound_messages WHERE settled_at IS NOT NULL AND settled_at < ? LIMIT ?)`,
		`DELETE FROM ledger WHERE id IN (SELECT id FROM ledger WHERE state IN ('sent', 'refused', 'no-route', 'dead') AND updated_at < ?
			AND (projected = 1 OR session_id IS NULL) AND untold = 0 LIMIT ?)`,
		`DELETE FROM pending_questions WHERE id IN (SELECT id FROM pending_questions WHERE closed_at < ? AND told = 1 LIMIT ?)`,
		`DELETE FROM approvals WHERE id IN (SELECT a.id FROM approvals a WHERE a.decided_at < ? AND a.done = 1 AND a.choice <> 'block'
			AND NOT EXISTS (SELECT 1 FROM approval_cards c WHERE c.approval_id = a.id AND c.told = 0) LIMIT ?)`,
		`DELETE FROM engagements WHERE engaged_at < ? AND engaged_at IN (SELECT engaged_at FROM engagements ORDER BY engaged_at LIMIT ?)`,
		`DELETE FROM dropped_messages WHERE last_seen < ? AND last_seen IN (SELECT last_seen FROM dropped_messages ORDER BY last_seen LIMIT ?)`,
		`DELETE FROM told WHERE key IN (SELECT key FROM told WHERE at < ? LIMIT ?)`,
		`DELETE FROM message_parts WHERE (instance, platform_id, message_id) IN (SELECT instance, platform_id, message_id FROM message_parts WHERE updated_at < ? LIMIT ?)`,
		`DELETE FROM early_ends WHERE row_id IN (SELECT row_id FROM early_ends WHERE ended_at < ? LIMIT ?)`,
		`DELETE FROM audit WHERE ord IN (SELECT ord FROM audit WHERE at < ? LIMIT ?)`,
	} {
		for n := int64(pruned); n == pruned; total += n {
			r, err := s.w.ExecContext(ctx, q, mailbox.FormatTime(before), pruned)
			if err != nil {
				return total, fmt.Errorf("prune: %w", err)
			}
			if n, err = r.RowsAffected(); err != nil {
				return total, fmt.Errorf("prune: %w", err)
			}
		}
	}
	return total, nil
}
