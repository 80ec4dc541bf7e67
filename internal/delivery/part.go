package delivery

import (
	"context"
	"fmt"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// partKey is the platform's key of the part that goes next: it derives from the ledger's own id.
func partKey(row *store.Ledger) string {
	if row.Part == 0 {
		return string(row.ID)
	}
	return fmt.Sprintf("%s-%d", row.ID, row.Part)
}

// aim points the part of an edit at the part of the message that it replaces, and returns the parts that the message had.
func (s *Service) aim(ctx context.Context, row *store.Ledger, op *channel.Op) (had []string, err error) {
	if op.Kind != channel.OpEdit {
		return nil, nil
	}
	if had, err = s.opt.Store.Parts(ctx, row.Destination, op.Target); err != nil {
		return nil, err
	}
	if len(had) == 0 {
		had = []string{op.Target}
	}
	op.Target = ""
	if row.Part < len(had) {
		op.Target = had[row.Part]
	}
	return had, nil
}

// partSent notes that a part is out and reports whether there are more; the next one begins with tries of its own.
func partSent(row *store.Ledger, op channel.Op, receipt channel.Receipt) (more bool) {
	sent := op.Target
	if op.Kind != channel.OpEdit || sent == "" {
		sent = ""
		if len(receipt.IDs) > 0 {
			sent = receipt.IDs[0]
		}
	}
	row.PartIDs = append(row.PartIDs, sent)
	if row.Part == 0 && len(receipt.IDs) > 0 {
		row.PlatformMessageID = receipt.IDs[0]
	}
	if !receipt.More {
		return false
	}
	row.Part++
	row.State, row.Tries, row.Unknowns, row.Marked, row.Reason = store.Queued, 0, 0, false, ""
	return true
}

// emptied stands where a message had a part that it does not need any more after an edit, on platforms that cannot delete.
const emptied = "…"

// keepParts notes the parts of a message that has several, and has those removed that an edit left over.
func (s *Service) keepParts(ctx context.Context, caps channel.Caps, row *store.Ledger, had []string) error {
	now := row.PartIDs
	for i := len(now); i < len(had); i++ {
		c := mailbox.ChatOut{Operation: mailbox.OperationDelete, MessageID: had[i]}
		if !caps.Delete {
			c = mailbox.ChatOut{Operation: mailbox.OperationEdit, MessageID: had[i], Text: emptied}
		}
		content, err := mailbox.EncodeContent(c)
		if err != nil {
			return err
		}
		if err := s.sayRow(ctx, row.Destination, fmt.Sprintf("part:%s:%d", row.ID, i), content); err != nil {
			return err
		}
	}
	if len(now) == 1 && len(had) <= 1 || now[0] == "" {
		return nil
	}
	return s.opt.Store.KeepParts(ctx, row.Destination, now)
}
