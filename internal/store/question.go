package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// Question that an agent asked. Its id is that of the ledger row that asks it: question ids of sandboxes are not unique.
type Question struct {
	ID         id.Ledger
	SessionID  id.Session
	QuestionID string // the sandbox's own
	Exchange   string
	Destination
	Asked     string // user id of the only person who may answer; empty: whoever has access to the agent
	Title     string
	Text      string
	Options   []mailbox.Option
	AskedAt   time.Time
	ExpiresAt time.Time
	ClosedAt  time.Time // zero: open. Also set by an answer
	Value     string    // of the chosen option, with AnsweredAt set
	By        string    // user id of who answered
	MessageID string    // platform id of the message that answered; empty: an option was pressed
	Answered  time.Time
	Told      bool // the agent has its answer and the chat shows it

	State             LedgerState // of the row that asks; empty if it is pruned
	PlatformMessageID string      // of the message that shows it
}

// Open reports whether it can be answered at a moment.
func (q *Question) Open(now time.Time) bool {
	return q.ClosedAt.IsZero() && now.Before(q.ExpiresAt) && q.State != Refused && q.State != NoRoute && q.State != Dead
}

// Option with a value, or nil.
func (q *Question) Option(value string) *mailbox.Option {
	for i := range q.Options {
		if q.Options[i].Value == value {
			return &q.Options[i]
		}
	}
	return nil
}

const questionColumns = `q.id, q.session_id, q.question_id, q.exchange, q.instance, q.platform_id, q.thread_id, q.asked_user, q.title, q.question,
	q.options, q.asked_at, q.expires_at, q.closed_at, q.value, q.answered_by, q.answer_message, q.answered_at, q.told,
	COALESCE(l.state, ''), COALESCE(l.platform_message_id, '') FROM pending_questions q LEFT JOIN ledger l ON l.id = q.id`

type questionRow struct {
	Question
	options                          string
	asked, expires, closed, answered sql.NullString
}

func (v *questionRow) fields() []any {
	return []any{&v.ID, &v.SessionID, &v.QuestionID, &v.Exchange, &v.Instance, &v.PlatformID, &v.ThreadID, &v.Asked, &v.Title, &v.Text,
		&v.options, &v.asked, &v.expires, &v.closed, &v.Value, &v.By, &v.MessageID, &v.answered, &v.Told, &v.State, &v.PlatformMessageID}
}

func (v *questionRow) question() (Question, error) {
	v.AskedAt, v.ExpiresAt, v.ClosedAt, v.Answered = instant(v.asked), instant(v.expires), instant(v.closed), instant(v.answered)
	if err := json.Unmarshal([]byte(v.options), &v.Options); err != nil {
		return Question{}, fmt.Errorf("read the options of question %s: %w", v.ID, err)
	}
	return v.Question, nil
}

func insertQuestion(ctx context.Context, tx *txn, row Ledger, now string) error {
	q := row.Question
	options, err := mailbox.EncodeContent(q.Options)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO pending_questions (id, session_id, question_id, exchange, instance, platform_id, thread_id, asked_user,
		title, question, options, asked_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		row.ID, row.SessionID, q.QuestionID, row.Exchange, row.Instance, row.PlatformID, row.ThreadID, q.Asked, q.Title, q.Text, string(options),
		now, stamp(q.ExpiresAt))
	return err
}

// closeQuestions of exchanges: nobody waits for their answers any more.
func closeQuestions(ctx context.Context, tx *txn, session id.Session, exchanges []string, now string) error {
	for _, exchange := range exchanges {
		if _, err := tx.ExecContext(ctx, `UPDATE pending_questions SET closed_at = ? WHERE session_id = ? AND exchange = ? AND closed_at IS NULL`,
			now, session, exchange); err != nil {
			return err
		}
	}
	return nil
}

// Question by id; ErrNotFound.
func (s *Store) Question(ctx context.Context, question id.Ledger) (Question, error) {
	var v questionRow
	if err := s.r.QueryRowContext(ctx, `SELECT `+questionColumns+` WHERE q.id = ?`, question).Scan(v.fields()...); err != nil {
		return Question{}, found(err, "question "+string(question))
	}
	return v.question()
}

// QuestionsAt lists the questions of a chat that are not closed, and those that a message answered; oldest first.
func (s *Store) QuestionsAt(ctx context.Context, instance, platformID, messageID string) ([]Question, error) {
	return s.questions(ctx, `SELECT `+questionColumns+` WHERE q.instance = ? AND q.platform_id = ?
		AND (q.closed_at IS NULL OR q.answer_message <> '' AND q.answer_message = ?) ORDER BY q.asked_at, q.id`, instance, platformID, messageID)
}

// UntoldQuestions are closed, but not everybody who has to know of it does yet; at most limit.
func (s *Store) UntoldQuestions(ctx context.Context, limit int) ([]Question, error) {
	return s.questions(ctx, `SELECT `+questionColumns+` WHERE q.closed_at IS NOT NULL AND q.told = 0 ORDER BY q.closed_at LIMIT ?`, limit)
}

func (s *Store) questions(ctx context.Context, query string, args ...any) ([]Question, error) {
	rows, err := s.r.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list questions: %w", err)
	}
	all, err := collect(rows, "list questions", (*questionRow).fields)
	if err != nil {
		return nil, err
	}
	out := make([]Question, 0, len(all))
	for i := range all {
		q, err := all[i].question()
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

// AnswerQuestion closes an open question with an answer and reports whether this was the first one.
func (s *Store) AnswerQuestion(ctx context.Context, q Question) (bool, error) {
	now := s.stampNow()
	r, err := s.w.ExecContext(ctx, `UPDATE pending_questions SET value = ?, answered_by = ?, answer_message = ?, answered_at = ?, closed_at = ?
		WHERE id = ? AND closed_at IS NULL`, q.Value, q.By, q.MessageID, now, now, q.ID)
	if err != nil {
		return false, fmt.Errorf("note the answer to question %s: %w", q.ID, err)
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// CloseQuestions of the sessions that rows of inboxes belong to: their agent was given up, and nobody waits.
func (s *Store) CloseQuestions(ctx context.Context, rowIDs ...string) error {
	for _, row := range rowIDs {
		if _, err := s.w.ExecContext(ctx, `UPDATE pending_questions SET closed_at = ? WHERE closed_at IS NULL
			AND session_id = (SELECT session_id FROM inbound_messages WHERE row_id = ?)`, s.stampNow(), row); err != nil {
			return fmt.Errorf("close questions: %w", err)
		}
	}
	return nil
}

// ExpireQuestions closes those whose time is over at a moment.
func (s *Store) ExpireQuestions(ctx context.Context, now time.Time) error {
	if _, err := s.w.ExecContext(ctx, `UPDATE pending_questions SET closed_at = ? WHERE closed_at IS NULL AND expires_at <= ?`,
		mailbox.FormatTime(now), mailbox.FormatTime(now)); err != nil {
		return fmt.Errorf("close old questions: %w", err)
	}
	return nil
}

// QuestionTold notes that nothing is left to do about a closed question.
func (s *Store) QuestionTold(ctx context.Context, question id.Ledger) error {
	if _, err := s.w.ExecContext(ctx, `UPDATE pending_questions SET told = 1 WHERE id = ?`, question); err != nil {
		return fmt.Errorf("note that question %s is told: %w", question, err)
	}
	return nil
}
