package runner

import (
	"context"

	"nanoclaw/internal/mailbox"
)

// steady is a mailbox whose writes are not cut off by a shutdown, so that it is always known what is on disk. The mailbox
// bounds them itself.
type steady struct{ Mailbox }

func (m steady) Claim(ctx context.Context, exchange string, ids []string) error {
	return m.Mailbox.Claim(context.WithoutCancel(ctx), exchange, ids)
}

func (m steady) Release(ctx context.Context, ids []string) error {
	return m.Mailbox.Release(context.WithoutCancel(ctx), ids)
}

func (m steady) Write(ctx context.Context, row mailbox.OutRow) (mailbox.OutRow, error) {
	return m.Mailbox.Write(context.WithoutCancel(ctx), row)
}

func (m steady) Finish(ctx context.Context, f mailbox.Finish) ([]mailbox.OutRow, error) {
	return m.Mailbox.Finish(context.WithoutCancel(ctx), f)
}

func (m steady) DeleteState(ctx context.Context, key string) error {
	return m.Mailbox.DeleteState(context.WithoutCancel(ctx), key)
}

func (m steady) SetContainer(ctx context.Context, c mailbox.ContainerState) error {
	return m.Mailbox.SetContainer(context.WithoutCancel(ctx), c)
}
