package host

import (
	"context"

	"nanoclaw/internal/egress"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// auditLog keeps every call a sandbox makes to the outside.
type auditLog struct{ store *store.Store }

// call is the detail of an audit entry.
type call struct {
	Group      string `json:"agent_group"`
	Method     string `json:"method"`
	Path       string `json:"path,omitempty"`
	Status     int    `json:"status"`
	Reason     string `json:"reason,omitempty"`
	BytesIn    int64  `json:"bytes_in"`
	BytesOut   int64  `json:"bytes_out"`
	DurationMS int64  `json:"duration_ms"`
	Suppressed int64  `json:"suppressed,omitempty"`
}

func (a auditLog) Record(ctx context.Context, c egress.Call) error {
	detail, err := mailbox.EncodeContent(call{Group: string(c.Group), Method: c.Method, Path: c.Path, Status: c.Status, Reason: c.Reason,
		BytesIn: c.BytesIn, BytesOut: c.BytesOut, DurationMS: c.Duration.Milliseconds(), Suppressed: c.Suppressed})
	if err != nil {
		return err
	}
	return a.store.Audit(ctx, store.AuditEntry{At: mailbox.FormatTime(c.At), Actor: "session:" + string(c.Session), Action: "egress.call", Subject: c.Host, Detail: detail})
}
