package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
)

// maxLine is the longest line of `mailbox put`, in bytes: the largest content and room for the rest.
const maxLine = 4 * mailbox.MaxContent

// readRows reads rows, one JSON object per line; blank lines are passed over. The error lists every bad line as `line N:
// field: reason`.
func readRows(r io.Reader, route mailbox.Address) ([]mailbox.InRow, error) {
	var rows []mailbox.InRow
	var bad []error
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		row, err := parseRow(line)
		if err != nil {
			bad = append(bad, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		if row.Kind == mailbox.KindChat && row.Address.Zero() {
			row.Address = route
		}
		rows = append(rows, row)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		bad = append(bad, fmt.Errorf("line %d: row: longer than %d bytes", n+1, maxLine))
	case err != nil:
		return nil, fmt.Errorf("read rows: %w", err)
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("nothing was stored: %w", errors.Join(bad...))
	}
	return rows, nil
}

func refuse(field, format string, args ...any) error {
	return &mailbox.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// parseRow reads one row with the table's defaults.
func parseRow(line []byte) (mailbox.InRow, error) {
	row := mailbox.InRow{Kind: mailbox.KindChat, Trigger: true}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return row, refuse("row", "not a JSON object")
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if string(fields[name]) == "null" && name != "content" {
			continue
		}
		if err := setField(&row, name, fields[name]); err != nil {
			return row, err
		}
	}
	// Half an address is nobody's, and would not be filled from the routing either.
	switch {
	case row.Kind != mailbox.KindChat:
	case row.ChannelType != "" && row.PlatformID == "":
		return row, refuse("platform_id", "missing beside channel_type")
	case row.ChannelType == "" && row.PlatformID != "":
		return row, refuse("channel_type", "missing beside platform_id")
	case row.ChannelType == "" && row.ThreadID != "":
		return row, refuse("thread_id", "needs channel_type and platform_id")
	}
	return row, row.Validate()
}

// setField sets one column from its JSON value.
func setField(row *mailbox.InRow, name string, value json.RawMessage) error {
	var kind, status string
	texts := map[string]*string{
		"id": &row.ID, "kind": &kind, "status": &status, "recurrence": &row.Recurrence, "series_id": &row.SeriesID,
		"channel_type": &row.ChannelType, "platform_id": &row.PlatformID, "thread_id": &row.ThreadID,
		"platform_message_id": &row.PlatformMessageID, "source_session_id": &row.SourceSessionID,
	}
	if into := texts[name]; into != nil {
		if err := json.Unmarshal(value, into); err != nil {
			return refuse(name, "not a string")
		}
		switch name {
		case "kind":
			row.Kind = mailbox.Kind(kind)
		case "status":
			row.Status = mailbox.Status(status)
		}
		return nil
	}
	switch name {
	case "content":
		if len(value) > 0 && value[0] == '"' {
			return refuse(name, "a string; give the JSON value itself")
		}
		row.Content = slices.Clone(value)
	case "trigger":
		switch string(value) {
		case "true", "1":
			row.Trigger = true
		case "false", "0":
			row.Trigger = false
		default:
			return refuse(name, "not true, false, 1 or 0")
		}
	case "timestamp":
		return setTime(name, value, &row.Timestamp)
	case "process_after":
		return setTime(name, value, &row.ProcessAfter)
	case "tries":
		var n int64
		if err := json.Unmarshal(value, &n); err != nil || n < 0 || n > math.MaxInt32 {
			return refuse(name, "not a whole number from 0 on")
		}
		row.Tries = int(n)
	case "after_incarnation":
		if err := json.Unmarshal(value, &row.AfterIncarnation); err != nil {
			return refuse(name, "not a whole number")
		}
	case "seq":
		return refuse(name, "is given by put")
	default:
		return refuse(name, "no such column")
	}
	return nil
}

func setTime(name string, value json.RawMessage, into *time.Time) error {
	var s string
	if err := json.Unmarshal(value, &s); err != nil || s == "" {
		return refuse(name, "not a time such as %q", mailbox.TimeLayout)
	}
	at, err := mailbox.ParseTime(s)
	if err != nil {
		return refuse(name, "%v", err)
	}
	*into = at
	return nil
}

// outRowLine is a row of messages_out as it is printed.
type outRowLine struct {
	Seq          int64           `json:"seq"`
	ID           string          `json:"id"`
	InReplyTo    *string         `json:"in_reply_to"`
	Timestamp    string          `json:"timestamp"`
	DeliverAfter *string         `json:"deliver_after"`
	Kind         mailbox.Kind    `json:"kind"`
	ChannelType  *string         `json:"channel_type"`
	PlatformID   *string         `json:"platform_id"`
	ThreadID     *string         `json:"thread_id"`
	Content      json.RawMessage `json:"content"`
	Incarnation  int64           `json:"incarnation"`
	Exchange     *string         `json:"exchange"`
	Segment      int             `json:"segment"`
	Fallback     bool            `json:"fallback"`
}

// badRowLine is a row that no runner writes.
type badRowLine struct {
	Seq   int64  `json:"seq"`
	ID    string `json:"id,omitempty"`
	Error string `json:"error"`
}

func outLine(r sqlite.OutResult) any {
	row := r.Row
	if r.Err != nil {
		return badRowLine{Seq: row.Seq, ID: row.ID, Error: r.Err.Error()}
	}
	return outRowLine{
		Seq: row.Seq, ID: row.ID, InReplyTo: orNull(row.InReplyTo), Timestamp: mailbox.FormatTime(row.Timestamp),
		DeliverAfter: orNull(mailbox.FormatTime(row.DeliverAfter)), Kind: row.Kind, ChannelType: orNull(row.ChannelType),
		PlatformID: orNull(row.PlatformID), ThreadID: orNull(row.ThreadID), Content: row.Content, Incarnation: row.Incarnation,
		Exchange: orNull(row.Exchange), Segment: row.Segment, Fallback: row.Fallback,
	}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

type ackLine struct {
	MessageID     string            `json:"message_id"`
	Status        mailbox.AckStatus `json:"status"`
	StatusChanged string            `json:"status_changed"`
	Incarnation   int64             `json:"incarnation"`
	Exchange      *string           `json:"exchange"`
	Reason        *string           `json:"reason"`
}

type containerLine struct {
	Turn          *string `json:"turn"`
	CurrentTool   *string `json:"current_tool"`
	ToolTimeoutMS *int64  `json:"tool_declared_timeout_ms"`
	ToolStartedAt *string `json:"tool_started_at"`
	UpdatedAt     *string `json:"updated_at"`
	Queued        int     `json:"queued"`
}

// stateOutput is what `mailbox state` prints.
type stateOutput struct {
	Acks      []ackLine         `json:"acks"`
	Session   map[string]string `json:"session_state"`
	Container containerLine     `json:"container_state"`
	Heartbeat *string           `json:"heartbeat"`
}

func stateLine(s mailbox.State) stateOutput {
	c := s.Container
	out := stateOutput{
		Acks: []ackLine{}, Session: s.Session, Heartbeat: orNull(mailbox.FormatTime(s.Heartbeat)),
		Container: containerLine{
			Turn: orNull(string(c.Turn)), CurrentTool: orNull(c.CurrentTool), ToolStartedAt: orNull(mailbox.FormatTime(c.ToolStartedAt)),
			UpdatedAt: orNull(mailbox.FormatTime(c.UpdatedAt)), Queued: c.Queued,
		},
	}
	if c.ToolTimeout > 0 {
		ms := c.ToolTimeout.Milliseconds()
		out.Container.ToolTimeoutMS = &ms
	}
	for _, a := range s.Acks {
		out.Acks = append(out.Acks, ackLine{
			MessageID: a.MessageID, Status: a.Status, StatusChanged: mailbox.FormatTime(a.StatusChanged), Incarnation: a.Incarnation,
			Exchange: orNull(a.Exchange), Reason: orNull(strings.TrimSpace(a.Reason)),
		})
	}
	return out
}
