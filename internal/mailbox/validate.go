package mailbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"nanoclaw/internal/id"
)

// Limits of a row.
const (
	// MaxContent is the largest content of a row, in bytes of JSON; larger payloads go by reference, as blobs.
	MaxContent = 256 << 10
	// MaxField is the largest id, address part or other short text of a row, in bytes.
	MaxField = 1024
)

// FieldError says which field of a row was refused and why. It matches ErrInvalid.
type FieldError struct {
	Field  string // column name
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

func invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Validate reports the first field of an inbound row that no half may store: an unsafe id, a kind or state that does not
// exist inbound (chat-sdk is read, never written), content that is not a JSON object within MaxContent. An empty id is
// allowed: Put gives one. The error is a *FieldError.
func (r InRow) Validate() error {
	switch {
	case r.ID != "" && !id.Safe(r.ID):
		return invalid("id", "%q is not 1 to 128 of A-Z a-z 0-9 . _ - with no leading dot", clip(r.ID))
	case !r.Kind.Inbound() || r.Kind == KindChatSDK:
		return invalid("kind", "%q is not one of chat, task, webhook, system", clip(string(r.Kind)))
	case r.Status != "" && !r.Status.Valid():
		return invalid("status", "%q is not one of pending, completed, failed, paused, cancelled", clip(string(r.Status)))
	case r.Tries < 0:
		return invalid("tries", "negative")
	case r.AfterIncarnation < 0:
		return invalid("after_incarnation", "negative")
	}
	if err := r.Address.validate(); err != nil {
		return err
	}
	for _, f := range []struct{ name, value string }{
		{"recurrence", r.Recurrence}, {"series_id", r.SeriesID},
		{"platform_message_id", r.PlatformMessageID}, {"source_session_id", r.SourceSessionID},
	} {
		if err := short(f.name, f.value); err != nil {
			return err
		}
	}
	return ValidContent(r.Content)
}

// Validate reports the first field of an outbound row that must not be stored or believed. The id is required. The error is
// a *FieldError.
func (r OutRow) Validate() error {
	switch {
	case !id.Safe(r.ID):
		return invalid("id", "%q is not 1 to 128 of A-Z a-z 0-9 . _ - with no leading dot", clip(r.ID))
	case r.InReplyTo != "" && !id.Safe(r.InReplyTo):
		return invalid("in_reply_to", "%q is not a row id", clip(r.InReplyTo))
	case !r.Kind.Outbound():
		return invalid("kind", "%q is not one of chat, system, task_log", clip(string(r.Kind)))
	case r.Exchange != "" && !id.Safe(r.Exchange):
		return invalid("exchange", "%q is not an exchange id", clip(r.Exchange))
	case r.Segment < 0:
		return invalid("segment", "negative")
	}
	if err := r.Address.validate(); err != nil {
		return err
	}
	return ValidContent(r.Content)
}

func (a Address) validate() error {
	for _, f := range []struct{ name, value string }{
		{"channel_type", a.ChannelType}, {"platform_id", a.PlatformID}, {"thread_id", a.ThreadID},
	} {
		if err := short(f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}

func short(name, value string) error {
	if len(value) > MaxField {
		return invalid(name, "longer than %d bytes", MaxField)
	}
	if strings.ContainsRune(value, 0) {
		return invalid(name, "contains a NUL")
	}
	return nil
}

// ValidContent reports why c cannot be the content of a row: it must be one JSON object of at most MaxContent bytes. The
// error is a *FieldError.
func ValidContent(c json.RawMessage) error {
	switch t := bytes.TrimLeft(c, " \t\r\n"); {
	case len(t) == 0:
		return invalid("content", "missing")
	case len(c) > MaxContent:
		return invalid("content", "%d bytes, at most %d are allowed; send files as attachments", len(c), MaxContent)
	case t[0] != '{':
		return invalid("content", "not a JSON object")
	case !json.Valid(c):
		return invalid("content", "not valid JSON")
	}
	return nil
}

// clip keeps a hostile value from filling an error text.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
