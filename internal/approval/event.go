package approval

import (
	"encoding/json"
	"fmt"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
)

// event is a held message as it is stored. Of attachments only the description is kept: their bytes are not a stranger's to leave
// here (spec/host.md W35).
type event struct {
	ID          string           `json:"id"`
	Kind        string           `json:"kind"`
	PlatformID  string           `json:"platform_id"`
	ThreadID    string           `json:"thread_id,omitempty"`
	Text        string           `json:"text"`
	Sender      channel.Sender   `json:"sender"`
	Mention     channel.Tri      `json:"mention"`
	Group       bool             `json:"group,omitempty"`
	ReplyTo     *channel.Quote   `json:"reply_to,omitempty"`
	Attachments []attachmentLine `json:"attachments,omitempty"`
	At          string           `json:"at,omitempty"`
}

type attachmentLine struct {
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mime_type,omitempty"`
	Kind     string `json:"kind,omitempty"`
	Size     int64  `json:"size,omitempty"`
}

func encode(m channel.Inbound) (json.RawMessage, error) {
	e := event{ID: m.ID, Kind: m.Kind, PlatformID: m.Address.PlatformID, ThreadID: m.Address.ThreadID, Text: m.Text, Sender: m.Sender, Mention: m.Mention,
		Group: m.Group, ReplyTo: m.ReplyTo, At: mailbox.FormatTime(m.At)}
	for _, a := range m.Attachments {
		e.Attachments = append(e.Attachments, attachmentLine{a.Name, a.MimeType, a.Kind, a.Size})
	}
	return mailbox.EncodeContent(e)
}

func decode(raw json.RawMessage) (channel.Inbound, error) {
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		return channel.Inbound{}, fmt.Errorf("read held message: %w", err)
	}
	m := channel.Inbound{ID: e.ID, Kind: e.Kind, Address: channel.Address{PlatformID: e.PlatformID, ThreadID: e.ThreadID}, Text: e.Text, Sender: e.Sender,
		Mention: e.Mention, Group: e.Group, ReplyTo: e.ReplyTo}
	for _, a := range e.Attachments {
		m.Attachments = append(m.Attachments, channel.Attachment{Name: a.Name, MimeType: a.MimeType, Kind: a.Kind, Size: a.Size})
	}
	at, err := mailbox.ParseTime(e.At)
	if err != nil {
		at = time.Time{}
	}
	m.At = at
	return m, nil
}
