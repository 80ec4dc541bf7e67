package host

import (
	"context"
	"errors"
	"os"
	"time"

	"nanoclaw/internal/delivery"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

// maxAttachment is the largest file that an agent may send, in bytes.
const maxAttachment = 100 << 20

// outboxes opens the files that agents send.
type outboxes struct {
	home string
	opt  sqlite.HostOptions
}

var _ delivery.Files = outboxes{}

func (o outboxes) Open(s store.Session, rowID, name string) (*os.File, int64, error) {
	b, err := sqlite.OpenOutbox(session.Dir(o.home, s), o.opt)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = b.Close() }()
	return b.Open(rowID, name)
}

func (o outboxes) Remove(s store.Session, rowID string) error {
	b, err := sqlite.OpenOutbox(session.Dir(o.home, s), o.opt)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	return b.Remove(rowID)
}

// rowsPerPage of one look into an outbox.
const rowsPerPage = 200

// box is a session's mailbox as its actor needs it.
type box struct{ *sqlite.Host }

var _ session.Mailbox = box{}

// Outbox reads acks before rows: an ack and the rows of its exchange are one transaction, so every row that an ack speaks of
// is in a read that follows. A page full of rows keeps the acks for the next one.
func (b box) Outbox(ctx context.Context, live, afterSeq, afterChange int64) (mailbox.Page, error) {
	page := mailbox.Page{OutboundSeq: afterSeq, AckChange: afterChange}
	acks, change, err := b.Acks(ctx, afterChange)
	if err != nil {
		return page, err
	}
	rows, err := b.Outbound(ctx, afterSeq, rowsPerPage)
	if err != nil {
		return page, err
	}
	for _, r := range rows {
		page.OutboundSeq = r.Row.Seq
		if r.Err != nil {
			page.Bad = append(page.Bad, mailbox.Bad{ID: r.Row.ID, Seq: r.Row.Seq, Reason: r.Err.Error()})
			continue
		}
		page.Rows = append(page.Rows, r.Row)
	}
	if len(rows) > 0 && len(acks) > 0 && len(rows) >= rowsPerPage {
		page.More = true
		return page, nil
	}
	page.AckChange = change
	page.More = len(rows) >= rowsPerPage || len(acks) >= acksPerPage
	for _, a := range acks {
		if a.Status.Final() {
			page.Acks = append(page.Acks, a)
		}
	}
	return page, nil
}

// acksPerPage is how many acks one read returns at most.
const acksPerPage = 1000

func (b box) Tries(ctx context.Context, live int64, retry func(tries int) (time.Duration, bool)) ([]mailbox.Tried, error) {
	tried, err := b.CountTries(ctx, live, retry)
	if err != nil {
		return nil, err
	}
	out := make([]mailbox.Tried, 0, len(tried))
	for _, t := range tried {
		out = append(out, mailbox.Tried{ID: t.ID, Tries: t.Tries, Failed: t.Failed, Again: t.Again})
	}
	return out, nil
}

func (b box) Prepare(ctx context.Context, routing mailbox.Address, destinations []mailbox.Destination) error {
	if err := b.SetDestinations(ctx, destinations); err != nil {
		return err
	}
	return b.SetRouting(ctx, routing)
}

func (b box) Prune(ctx context.Context, before time.Time) error {
	_, err := b.Host.Prune(ctx, before)
	_, filesErr := b.PruneOutBlobs(before)
	return errors.Join(err, filesErr)
}
