package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// PutOutBlob stores a file that the agent attaches to an outbound row. It reads at most max bytes from src; a longer one is
// mailbox.ErrInvalid and leaves nothing behind. It is durable on return: write the row after it. Names: see blobName.
func (r *Runner) PutOutBlob(ctx context.Context, rowID, name string, src io.Reader, max int64) error {
	if err := errors.Join(blobRow(rowID), blobName(name)); err != nil {
		return fmt.Errorf("attach file: %w", err)
	}
	dir := filepath.Join(r.root, outDir, outboxDir, rowID)
	if err := os.MkdirAll(dir, privateMode); err != nil {
		return fmt.Errorf("attach file: %w", err)
	}
	temporary := filepath.Join(dir, "."+id.New("part"))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("attach file: %w", err)
	}
	n, err := io.Copy(f, io.LimitReader(cancellable{ctx, src}, max+1))
	if err == nil && n > max {
		err = &mailbox.FieldError{Field: "file", Reason: fmt.Sprintf("larger than %d bytes", max)}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temporary, filepath.Join(dir, name)) // one link only: the host refuses files with more
	}
	if err != nil {
		_ = os.Remove(temporary)
		return fmt.Errorf("attach file %q: %w", name, err)
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

// DropOutBlobs takes away what PutOutBlob stored for a row that was not written after all. It is idempotent.
func (r *Runner) DropOutBlobs(rowID string) error {
	if err := blobRow(rowID); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(r.root, outDir, outboxDir, rowID))
}
