package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"

	"nanoclaw/internal/mailbox"
)

// RawOut is a row of messages_out as SQLite gives it: nil, int64, float64, string or []byte in each field, since a hostile file
// holds any type in any column. A text longer than its column allows arrives as an empty []byte.
type RawOut struct {
	Seq                                        int64
	ID, InReplyTo, Timestamp, DeliverAfter     any
	Kind, ChannelType, PlatformID, ThreadID    any
	Content                                    any
	Incarnation, Exchange, Segment, IsFallback any
}

// field reads the columns of one row and keeps the first complaint.
type field struct{ err error }

func (f *field) refuse(name, format string, args ...any) {
	if f.err == nil {
		f.err = &mailbox.FieldError{Field: name, Reason: fmt.Sprintf(format, args...)}
	}
}

// text reads a column that holds text; NULL is the empty string if it may be.
func (f *field) text(name string, v any, optional bool) string {
	switch v := v.(type) {
	case string:
		return v
	case nil:
		if !optional {
			f.refuse(name, "missing")
		}
	case []byte:
		f.refuse(name, "not text, or too long")
	default:
		f.refuse(name, "a number instead of text")
	}
	return ""
}

func (f *field) number(name string, v any) int64 {
	n, ok := v.(int64)
	if !ok {
		f.refuse(name, "not a whole number")
	}
	return n
}

// DecodeOut turns a row of a sandbox's file into an OutRow. The error is a *mailbox.FieldError that names the first column
// that no runner writes so; ID and Seq are then set as far as they can be read, for the record of the refused row.
func DecodeOut(raw RawOut) (mailbox.OutRow, error) {
	var f field
	row := mailbox.OutRow{Seq: raw.Seq}
	row.ID = f.text("id", raw.ID, false)
	if raw.Seq <= 0 || raw.Seq%2 == 0 {
		f.refuse("seq", "%d is not odd and positive", raw.Seq)
	}
	row.InReplyTo = f.text("in_reply_to", raw.InReplyTo, true)
	stamp := f.text("timestamp", raw.Timestamp, false)
	after := f.text("deliver_after", raw.DeliverAfter, true)
	row.Kind = mailbox.Kind(f.text("kind", raw.Kind, false))
	row.ChannelType = f.text("channel_type", raw.ChannelType, true)
	row.PlatformID = f.text("platform_id", raw.PlatformID, true)
	row.ThreadID = f.text("thread_id", raw.ThreadID, true)
	content := f.text("content", raw.Content, false)
	row.Incarnation = f.number("incarnation", raw.Incarnation)
	row.Exchange = f.text("exchange", raw.Exchange, true)
	row.Segment = int(f.number("segment", raw.Segment))
	row.Fallback = f.number("fallback", raw.IsFallback) != 0
	if f.err != nil {
		return mailbox.OutRow{ID: row.ID, Seq: row.Seq}, f.err
	}
	var err error
	if row.Timestamp, err = mailbox.ParseTime(stamp); err != nil || stamp == "" {
		f.refuse("timestamp", "not a time")
	}
	if row.DeliverAfter, err = mailbox.ParseTime(after); err != nil {
		f.refuse("deliver_after", "not a time")
	}
	row.Content = json.RawMessage(strings.ToValidUTF8(content, "\uFFFD"))
	if f.err == nil {
		f.err = row.Validate()
	}
	if f.err != nil {
		return mailbox.OutRow{ID: row.ID, Seq: row.Seq}, f.err
	}
	return row, nil
}
