package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// Choice is what one wiring decided about a message, and by which rule.
type Choice struct {
	Wiring id.Wiring     `json:"wiring"`
	Group  id.AgentGroup `json:"agent_group"`
	Action string        `json:"action"` // engage, accumulate, drop
	Reason string        `json:"reason"`
}

// choices is the form in which a message keeps them.
func choices(all []Choice) string {
	if len(all) == 0 {
		return ""
	}
	b, err := mailbox.EncodeContent(all)
	if err != nil {
		return ""
	}
	return string(b)
}

// Change is one state that a delivery went through.
type Change struct {
	At     time.Time
	State  LedgerState
	Reason string
}

// stepReason is how much of a reason the history of a delivery keeps, in bytes.
const stepReason = 200

// step is one line of a delivery's history.
func step(now string, v Ledger) string {
	reason := strings.Join(strings.Fields(v.Reason), " ")
	if len(reason) > stepReason {
		reason = strings.ToValidUTF8(reason[:stepReason], "") + "…"
	}
	if v.State == Sending {
		reason = "" // the one of the try before
	}
	return now + " " + string(v.State) + " " + reason + "\n"
}

func changes(history string) []Change {
	var out []Change
	for line := range strings.Lines(history) {
		at, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		state, reason, _ := strings.Cut(rest, " ")
		if t, err := mailbox.ParseTime(at); err == nil && state != "" {
			out = append(out, Change{At: t, State: LedgerState(state), Reason: reason})
		}
	}
	return out
}

// moment reads a time column; NULL and what is no time are the zero time.
type moment struct{ t *time.Time }

// Scan implements sql.Scanner.
func (m moment) Scan(v any) error {
	var s sql.NullString
	if err := s.Scan(v); err != nil {
		return err
	}
	*m.t = instant(s)
	return nil
}

// Traced is a message with all that the central database knows of it.
type Traced struct {
	Message
	Final   time.Time // when it came to its end
	Settled time.Time // when its channel was told
}

const tracedColumns = messageColumns + `, final_at, settled_at, routed`

type tracedRow struct {
	Traced
	routed string
}

func (v *tracedRow) fields() []any {
	return append(v.Message.fields(), moment{&v.Final}, moment{&v.Settled}, &v.routed)
}

func traced(rows *sql.Rows, what string) ([]Traced, error) {
	all, err := collect(rows, what, (*tracedRow).fields)
	if err != nil {
		return nil, err
	}
	out := make([]Traced, len(all))
	for i, v := range all {
		_ = json.Unmarshal([]byte(v.routed), &v.Routed) // of an older version: nothing is known
		out[i] = v.Traced
	}
	return out, nil
}

// traceLimit bounds what one look-up returns: a platform's id may stand for messages of several chats.
const traceLimit = 20

// TraceMessages finds messages by the id of their inbox row or by the platform's own id, newest first. It walks the table:
// for people, not for the way of a message.
func (s *Store) TraceMessages(ctx context.Context, anyID string) ([]Traced, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+tracedColumns+` FROM inbound_messages WHERE row_id = ? OR platform_message_id = ?
		ORDER BY received_at DESC, row_id LIMIT ?`, anyID, anyID, traceLimit)
	if err != nil {
		return nil, fmt.Errorf("look for message %s: %w", anyID, err)
	}
	return traced(rows, "look for message "+anyID)
}

// TraceLast is the newest message, of one session if one is given; ErrNotFound. Context rows do not count.
func (s *Store) TraceLast(ctx context.Context, session id.Session) (Traced, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+tracedColumns+` FROM inbound_messages WHERE (? = '' OR session_id = ?) AND state <> 'context'
		ORDER BY received_at DESC, row_id LIMIT 1`, session, session)
	if err != nil {
		return Traced{}, fmt.Errorf("look for the newest message: %w", err)
	}
	all, err := traced(rows, "look for the newest message")
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("newest message: %w", ErrNotFound)
	}
	if err != nil {
		return Traced{}, err
	}
	return all[0], nil
}

// TracedLedger is a delivery with its history.
type TracedLedger struct {
	Ledger
	Updated time.Time
	History []Change // oldest first; a very long one misses its end, which the row itself tells
}

const tracedLedger = `SELECT ` + ledgerColumns + `, updated_at, history FROM ledger WHERE `

type tracedLedgerRow struct {
	ledgerRow
	updated time.Time
	history string
}

func (s *Store) traceLedger(ctx context.Context, where string, args ...any) ([]TracedLedger, error) {
	rows, err := s.r.QueryContext(ctx, tracedLedger+where, args...)
	if err != nil {
		return nil, fmt.Errorf("look for deliveries: %w", err)
	}
	all, err := collect(rows, "look for deliveries", func(v *tracedLedgerRow) []any {
		return append(v.fields(), moment{&v.updated}, &v.history)
	})
	if err != nil {
		return nil, err
	}
	out := make([]TracedLedger, len(all))
	for i, v := range all {
		v.Content, v.NotBefore, v.CreatedAt = json.RawMessage(v.content), instant(v.notBefore), instant(v.created)
		out[i] = TracedLedger{Ledger: v.Ledger, Updated: v.updated, History: changes(v.history)}
	}
	return out, nil
}

// TraceExchange lists the deliveries of an exchange in order.
func (s *Store) TraceExchange(ctx context.Context, session id.Session, exchange string) ([]TracedLedger, error) {
	return s.traceLedger(ctx, `session_id = ? AND exchange = ? AND exchange <> '' ORDER BY ord LIMIT 200`, session, exchange)
}

// TraceDelivery finds deliveries by the ledger's id, the id of the outbound row, or the platform's id of what was sent,
// newest first. It walks the table.
func (s *Store) TraceDelivery(ctx context.Context, anyID string) ([]TracedLedger, error) {
	return s.traceLedger(ctx, `id = ? OR outbound_id = ? OR platform_message_id = ? ORDER BY ord DESC LIMIT 20`, anyID, anyID, anyID)
}

// TraceNotices lists the host's own words under a key: those that told of a message's end.
func (s *Store) TraceNotices(ctx context.Context, key string) ([]TracedLedger, error) {
	return s.traceLedger(ctx, `session_id IS NULL AND outbound_id = ? ORDER BY ord LIMIT 20`, key)
}

// Drop is a message that was not stored, and the rule that dropped it.
type Drop struct {
	At                time.Time
	Sender, Instance  string
	PlatformID        string
	PlatformMessageID string
	Reason            string
}

// dropsRead is how many of the newest drops are looked through.
const dropsRead = 10_000

// Drops finds dropped messages by the platform's own id, newest first; an empty id is the newest drop of all.
func (s *Store) Drops(ctx context.Context, platformMessageID string) ([]Drop, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT at, actor, subject, detail FROM audit WHERE action = 'message.drop' ORDER BY ord DESC LIMIT ?`, dropsRead)
	if err != nil {
		return nil, fmt.Errorf("look for dropped messages: %w", err)
	}
	type row struct {
		Drop
		detail string
	}
	all, err := collect(rows, "look for dropped messages", func(v *row) []any { return []any{moment{&v.At}, &v.Sender, &v.Instance, &v.detail} })
	if err != nil {
		return nil, err
	}
	var out []Drop
	for _, v := range all {
		var d struct {
			PlatformID string `json:"platform_id"`
			MessageID  string `json:"message_id"`
			Reason     string `json:"reason"`
		}
		if json.Unmarshal([]byte(v.detail), &d) != nil || platformMessageID != "" && d.MessageID != platformMessageID {
			continue
		}
		v.PlatformID, v.PlatformMessageID, v.Reason = d.PlatformID, d.MessageID, d.Reason
		if out = append(out, v.Drop); platformMessageID == "" || len(out) == traceLimit {
			break
		}
	}
	return out, nil
}

// LedgerStates counts the deliveries in every state.
func (s *Store) LedgerStates(ctx context.Context) (map[LedgerState]int64, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT state, COUNT(*) FROM ledger WHERE kind <> 'task_log' GROUP BY state`)
	if err != nil {
		return nil, fmt.Errorf("count deliveries: %w", err)
	}
	type entry struct {
		state LedgerState
		n     int64
	}
	all, err := collect(rows, "count deliveries", func(e *entry) []any { return []any{&e.state, &e.n} })
	out := make(map[LedgerState]int64, len(all))
	for _, e := range all {
		out[e.state] = e.n
	}
	return out, err
}
