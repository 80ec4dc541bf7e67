package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Files are what agents attach to outbound rows. They lie in the outbox of the session, where the sandbox can still reach them.
type Files interface {
	// Open opens a file of a row by a checked handle and returns its size. The error is mailbox.ErrHostile, ErrNotExist or
	// ErrInvalid when it never will be sent as it is.
	Open(s store.Session, rowID, name string) (*os.File, int64, error)
	// Remove removes all files of a row. It is idempotent.
	Remove(s store.Session, rowID string) error
}

// attach opens the files of a row for one try. What was checked is what is sent: a swap after this changes nothing. The caller
// calls release.
func (s *Service) attach(ctx context.Context, row *store.Ledger, names []string) (files []channel.File, release func(), err error) {
	var open []io.Closer
	release = func() {
		for _, f := range open {
			_ = f.Close()
		}
	}
	if len(names) == 0 {
		return nil, release, nil
	}
	if s.opt.Files == nil || row.SessionID == "" {
		return nil, nil, fmt.Errorf("%w: this host sends no files", mailbox.ErrInvalid)
	}
	sess, err := s.opt.Store.Session(ctx, row.SessionID)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		f, size, err := s.opt.Files.Open(sess, row.OutboundID, name)
		if err != nil {
			release()
			return nil, nil, err
		}
		open = append(open, f)
		files = append(files, channel.File{Name: name, Size: size, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.NewSectionReader(f, 0, size)), nil
		}})
	}
	return files, release, nil
}

// fileRefusal is why a file never will be sent, in words for its agent; empty for what may pass.
func fileRefusal(err error) string {
	switch {
	case errors.Is(err, mailbox.ErrNotExist):
		return "a file of it is not there any more; nothing of it was sent: " + err.Error()
	case errors.Is(err, mailbox.ErrHostile), errors.Is(err, mailbox.ErrInvalid):
		return "a file of it cannot be sent; nothing of it was sent: " + err.Error()
	}
	return ""
}

// tellUnsent lets the agent know that its text arrived without its files.
func (s *Service) tellUnsent(ctx context.Context, row *store.Ledger, names []string) {
	if len(names) == 0 || row.SessionID == "" {
		return
	}
	text := fmt.Sprintf("A message of yours to %s arrived without its files, which that chat does not take: %s. The message names them.",
		row.PlatformID, strings.Join(names, ", "))
	if err := s.opt.Tell(context.WithoutCancel(ctx), row.SessionID, "no-files:"+string(row.ID), text); err != nil {
		s.log.Error("could not tell the agent that its files were not sent", obs.KeyLedger, string(row.ID), obs.Error(err))
	}
}

// dropFiles removes the files of a row that is final on disk. A failure is left for the next start; it never sends anything
// again (spec/bugs.md DLV-3).
func (s *Service) dropFiles(ctx context.Context, row *store.Ledger) {
	if !row.Files || s.opt.Files == nil || row.SessionID == "" {
		return
	}
	ctx = context.WithoutCancel(ctx)
	sess, err := s.opt.Store.Session(ctx, row.SessionID)
	if err == nil {
		err = s.opt.Files.Remove(sess, row.OutboundID)
	}
	if errors.Is(err, store.ErrNotFound) || err == nil {
		err = s.opt.Store.FilesRemoved(ctx, row.ID)
	}
	if err != nil {
		s.log.Warn("the files of a message that has ended stay in the outbox until the next start", obs.KeyLedger, string(row.ID), obs.Error(err))
	}
}
