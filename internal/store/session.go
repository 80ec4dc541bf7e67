package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// Session is one conversation of one agent group.
type Session struct {
	ID               id.Session
	Key              string
	AgentGroupID     id.AgentGroup
	MessagingGroupID id.MessagingGroup // empty without a chat
	ThreadID         string
	Incarnation      int64
	OutboundSeq      int64 // outbound rows up to here are in the ledger
	AckChange        int64 // acks up to here ended their messages
	AckProjected     int64 // acks up to here are in the inbox's own states
}

const sessionColumns = `id, session_key, agent_group_id, COALESCE(messaging_group_id, ''), thread_id, incarnation, outbound_seq, ack_change, ack_projected`

func (v *Session) fields() []any {
	return []any{&v.ID, &v.Key, &v.AgentGroupID, &v.MessagingGroupID, &v.ThreadID, &v.Incarnation, &v.OutboundSeq, &v.AckChange, &v.AckProjected}
}

// ResolveSession returns the active session of a key and makes it when there is none, so that two concurrent messages
// cannot make two (spec/host.md section 2.6, W60). A closed session is not revived.
func (s *Store) ResolveSession(ctx context.Context, key string, group id.AgentGroup, chat id.MessagingGroup, thread string) (Session, error) {
	if v, err := s.sessionByKey(ctx, key); !errors.Is(err, ErrNotFound) {
		return v, err
	}
	err := s.tx(ctx, "create session", func(tx *txn) error {
		now := s.stampNow()
		_, err := tx.ExecContext(ctx, `INSERT INTO sessions (id, session_key, agent_group_id, messaging_group_id, thread_id, created_at, last_active)
			VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, id.New(id.PrefixSession), key, group, null(string(chat)), thread, now, now)
		return err
	})
	if err != nil {
		return Session{}, err
	}
	return s.sessionByKey(ctx, key)
}

func (s *Store) sessionByKey(ctx context.Context, key string) (Session, error) {
	var v Session
	err := s.r.QueryRowContext(ctx, `SELECT `+sessionColumns+` FROM sessions WHERE session_key = ? AND status = 'active'`, key).Scan(v.fields()...)
	return v, found(err, "session of "+key)
}

// Session by id; ErrNotFound.
func (s *Store) Session(ctx context.Context, session id.Session) (Session, error) {
	var v Session
	err := s.r.QueryRowContext(ctx, `SELECT `+sessionColumns+` FROM sessions WHERE id = ? AND status = 'active'`, session).Scan(v.fields()...)
	return v, found(err, "session "+string(session))
}

// Sessions lists active sessions behind after in id order, at most limit: a page of a walk.
func (s *Store) Sessions(ctx context.Context, after id.Session, limit int) ([]Session, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+sessionColumns+` FROM sessions WHERE id > ? AND status = 'active' ORDER BY id LIMIT ?`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return collect(rows, "list sessions", (*Session).fields)
}

// Prunable lists active sessions behind after in id order, at most limit, that may hold rows older than before: those that were in use
// since their last pruning, unless that is so recent that little has grown old.
func (s *Store) Prunable(ctx context.Context, before, recent time.Time, after id.Session, limit int) ([]Session, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+sessionColumns+` FROM sessions WHERE id > ? AND status = 'active'
		AND created_at < ? AND pruned_before < ? AND last_active >= pruned_before ORDER BY id LIMIT ?`, after, mailbox.FormatTime(before), mailbox.FormatTime(recent), limit)
	if err != nil {
		return nil, fmt.Errorf("list sessions to prune: %w", err)
	}
	return collect(rows, "list sessions to prune", (*Session).fields)
}

// Pruned notes that a session's mailbox holds nothing final that is older than before.
func (s *Store) Pruned(ctx context.Context, session id.Session, before time.Time) error {
	if _, err := s.w.ExecContext(ctx, `UPDATE sessions SET pruned_before = ? WHERE id = ?`, mailbox.FormatTime(before), session); err != nil {
		return fmt.Errorf("note pruning of %s: %w", session, err)
	}
	return nil
}

// NextIncarnation gives the number of the session's next spawn.
func (s *Store) NextIncarnation(ctx context.Context, session id.Session) (int64, error) {
	var n int64
	err := s.w.strike(func() error {
		return s.w.QueryRowContext(ctx, `UPDATE sessions SET incarnation = incarnation + 1 WHERE id = ? RETURNING incarnation`, session).Scan(&n)
	})
	return n, found(err, "session "+string(session))
}

// Due lists sessions due at or before now, earliest first, and when the next one after them is due (zero: none).
func (s *Store) Due(ctx context.Context, now time.Time, limit int) (due []id.Session, next time.Time, err error) {
	rows, err := s.r.QueryContext(ctx, `SELECT session_id, due_at FROM session_due ORDER BY due_at LIMIT ?`, limit)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("list due sessions: %w", err)
	}
	type entry struct {
		session id.Session
		at      sql.NullString
	}
	all, err := collect(rows, "list due sessions", func(e *entry) []any { return []any{&e.session, &e.at} })
	if err != nil {
		return nil, time.Time{}, err
	}
	for _, e := range all {
		if at := instant(e.at); at.After(now) {
			return due, at, nil
		}
		due = append(due, e.session)
	}
	return due, time.Time{}, nil
}

// Projected notes that the inbox shows the ends of acks up to change, and when the session is due next (zero: never).
func (s *Store) Projected(ctx context.Context, session id.Session, change int64, due time.Time) error {
	return s.tx(ctx, "note projection", func(tx *txn) error {
		if _, err := tx.ExecContext(ctx, `UPDATE sessions SET ack_projected = ? WHERE id = ? AND ack_projected < ?`, change, session, change); err != nil {
			return err
		}
		if due.IsZero() {
			_, err := tx.ExecContext(ctx, `DELETE FROM session_due WHERE session_id = ?`, session)
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO session_due (session_id, due_at) VALUES (?, ?)
			ON CONFLICT (session_id) DO UPDATE SET due_at = excluded.due_at`, session, mailbox.FormatTime(due))
		return err
	})
}

// Counts of a home for `status`.
type Counts struct {
	Sessions, DueSessions, DeadLedger        int64
	QueuedLedger, RetryLedger, UnknownLedger int64 // open rows; queued counts those on their way, too
	PendingMessages                          int64
}

// Pending counts the messages without an end state, by session.
func (s *Store) Pending(ctx context.Context) (map[id.Session]int, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT session_id, COUNT(*) FROM inbound_messages WHERE state = 'pending' GROUP BY session_id`)
	if err != nil {
		return nil, fmt.Errorf("count pending messages: %w", err)
	}
	type pending struct {
		session id.Session
		n       int
	}
	list, err := collect(rows, "count pending messages", func(p *pending) []any { return []any{&p.session, &p.n} })
	out := make(map[id.Session]int, len(list))
	for _, p := range list {
		out[p.session] = p.n
	}
	return out, err
}

// Counts reads the figures of `status`.
func (s *Store) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	err := s.r.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM sessions WHERE status = 'active'), (SELECT COUNT(*) FROM session_due),
		q, r, u, (SELECT COUNT(*) FROM ledger WHERE state IN ('dead', 'refused', 'no-route')),
		(SELECT COUNT(*) FROM inbound_messages WHERE state = 'pending')
		FROM (SELECT COUNT(*) FILTER (WHERE state IN ('queued', 'sending')) q, COUNT(*) FILTER (WHERE state = 'retry') r,
			COUNT(*) FILTER (WHERE state = 'unknown') u FROM ledger WHERE state IN ('queued', 'sending', 'retry', 'unknown')) open`).
		Scan(&c.Sessions, &c.DueSessions, &c.QueuedLedger, &c.RetryLedger, &c.UnknownLedger, &c.DeadLedger, &c.PendingMessages)
	if err != nil {
		return Counts{}, fmt.Errorf("count: %w", err)
	}
	return c, nil
}
