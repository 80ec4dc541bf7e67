package host

import (
	"context"
	"io"

	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/route"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

// inbox is the sessions as the router needs them.
type inbox struct {
	*session.Manager
	home string
	opt  sqlite.HostOptions
}

var _ route.Inbox = inbox{}

// Attach writes a file only; what else is open of the mailbox is not touched.
func (i inbox) Attach(ctx context.Context, s store.Session, rowID, name string, r io.Reader, max int64) (string, error) {
	b, err := sqlite.Create(ctx, session.Dir(i.home, s), i.opt)
	if err != nil {
		return "", err
	}
	defer func() { _ = b.Close() }()
	return b.PutBlob(ctx, rowID, name, r, max)
}
