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
// reaction by Operation, or a question (QuestionOut) or card (CardOut) by Type. The bytes of Files lie in the outbox.
type ChatOut struct {
	Text      string   `json:"text,omitempty"`
	Files     []string `json:"files,omitempty"`
	Operation string   `json:"operation,omitempty"` // one of the Operation constants
	MessageID string   `json:"messageId,omitempty"` // platform id of the message that Operation is about
	Emoji     string   `json:"emoji,omitempty"`
	Type      string   `json:"type,omitempty"` // ask_question, card
	Notice    bool     `json:"notice,omitempty"`
}

// Values of ChatOut.Operation.
const (
	OperationEdit     = "edit"
	OperationReaction = "reaction"
	OperationDelete   = "delete" // only in rows of the host itself
)

// Values of the field type in the content of outbound chat rows, and of inbound system rows that answer them.
const (
	TypeQuestion   = "ask_question"
	TypeCard       = "card"
	TypeAnswer     = "question_response"
	TypeClosed     = "question_closed" // in rows of the host itself: QuestionID is the ledger row that asked
	TypeCardClosed = "card_closed"     // in rows of the host itself: a card that the host showed counts no more
	TypeResponse   = "cli_response"
)

// ActionAdmin is the action of a system row that asks the host to run a command of ncl.
const ActionAdmin = "cli_request"

// QuestionOut is the content of an outbound row that asks a person.
type QuestionOut struct {
	Type       string   `json:"type"` // TypeQuestion
	QuestionID string   `json:"questionId"`
	Title      string   `json:"title"`
	Question   string   `json:"question"`
	Options    []Option `json:"options"`
}

// Option of a question. SelectedLabel is shown once it was chosen.
type Option struct {
	Label         string `json:"label"`
	SelectedLabel string `json:"selectedLabel"`
	Value         string `json:"value"`
}

// AnswerIn is the content of the inbound row AnswerPrefix + question id.
type AnswerIn struct {
	Type           string `json:"type"` // TypeAnswer
	QuestionID     string `json:"questionId"`
	SelectedOption string `json:"selectedOption"` // value of an option
	UserID         string `json:"userId,omitempty"`
}

// CardOut is the content of an outbound row that shows a card.
type CardOut struct {
	Type     string          `json:"type"` // TypeCard
	Card     json.RawMessage `json:"card"`
	Fallback string          `json:"fallbackText,omitempty"` // for chats that show no cards
}

// AdminOut is the content of an outbound system row by which a program of the sandbox asks for a command of ncl.
type AdminOut struct {
	Action    string                     `json:"action"` // ActionAdmin
	RequestID string                     `json:"requestId"`
	Command   string                     `json:"command"` // words joined with a dash
	Args      map[string]json.RawMessage `json:"args"`
}

// ResponseIn is the content of the inbound row ResponsePrefix + request id.
type ResponseIn struct {
	Type      string          `json:"type"` // TypeResponse
	RequestID string          `json:"requestId"`
	Frame     json.RawMessage `json:"frame"` // a control.Frame
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
