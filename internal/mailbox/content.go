package mailbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// EncodeContent is the one encoder of message content: compact JSON with HTML escaping off, so that `<` stays `<` for the
// echo guard and the adapters (spec/runner.md W34).
func EncodeContent(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode content: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// ChatOut is the content of an outbound chat row. Exactly one meaning per row: a text (with files), an edit or a
// reaction by Operation, or a question or card by Type.
type ChatOut struct {
	Text      string   `json:"text,omitempty"`
	Files     []string `json:"files,omitempty"`
	Operation string   `json:"operation,omitempty"` // edit, reaction
	MessageID string   `json:"messageId,omitempty"` // platform id of the message that Operation is about
	Emoji     string   `json:"emoji,omitempty"`
	Type      string   `json:"type,omitempty"` // ask_question, card
	Notice    bool     `json:"notice,omitempty"`
}

// Sender of a chat row that the host wrote itself.
const SenderSystem = "system"

// ChatIn is the content of an inbound chat row.
type ChatIn struct {
	Text        string       `json:"text"`
	Sender      string       `json:"sender,omitempty"`   // display name
	SenderID    string       `json:"senderId,omitempty"` // namespaced user id
	ReplyTo     *ReplyTo     `json:"replyTo,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"`
}

// ReplyTo is the quoted message.
type ReplyTo struct {
	ID     string `json:"id,omitempty"`
	Text   string `json:"text,omitempty"`
	Sender string `json:"sender,omitempty"`
}

// Attachment of an inbound message. LocalPath is relative to /workspace.
type Attachment struct {
	Type      string `json:"type,omitempty"`
	Name      string `json:"name,omitempty"`
	MimeType  string `json:"mimeType,omitempty"`
	Size      int64  `json:"size,omitempty"`
	LocalPath string `json:"localPath,omitempty"`
	URL       string `json:"url,omitempty"`
}

// TimeLayout is UTC RFC 3339 with milliseconds, the one form of time at every boundary. It sorts as text.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// FormatTime renders t in TimeLayout; the zero time is the empty string.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(TimeLayout)
}

// ParseTime reads RFC 3339 with any offset and fraction, and the zoneless `2006-01-02 15:04:05` and
// `2006-01-02T15:04:05` as UTC (old rows; spec/host.md 11.2). The empty string is the zero time.
func ParseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("time %q is not RFC 3339, for example %s", s, TimeLayout)
}
