package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// maxName is the longest file name of a blob, in bytes.
const maxName = 255

// blobName accepts one plain file name as it is, whatever characters it has: no path parts, no NUL or other control character,
// no leading dot, valid UTF-8, at most 255 bytes. Anything else is refused and never repaired, so that two names cannot meet.
func blobName(name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "empty"
	case len(name) > maxName:
		reason = fmt.Sprintf("longer than %d bytes", maxName)
	case name[0] == '.':
		reason = "starts with a dot"
	case strings.ContainsAny(name, `/\`):
		reason = "has path parts"
	case !utf8.ValidString(name):
		reason = "not UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		reason = "has a control character"
	default:
		return nil
	}
	return &mailbox.FieldError{Field: "file name", Reason: fmt.Sprintf("%.60q: %s", name, reason)}
}

func blobRow(rowID string) error {
	if !id.Safe(rowID) {
		return &mailbox.FieldError{Field: "row id", Reason: fmt.Sprintf("%.60q is not usable as a file name", rowID)}
	}
	return nil
}

// PutBlob stores an attachment of an inbound row for the agent and returns its path as content names it, relative to
// the session's root. It reads at most max bytes from r; a longer one is mailbox.ErrInvalid and leaves nothing behind. The
// file is durable on return, so that a row which names it may follow. A blob that is there already is kept, and r is not
// read. Names: see blobName; an odd but plain name is kept as it is.
func (h *Host) PutBlob(ctx context.Context, rowID, name string, r io.Reader, max int64) (string, error) {
	if err := errors.Join(blobRow(rowID), blobName(name)); err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	local := inboxDir + "/" + rowID + "/" + name
	dir := filepath.Join(h.dir, inDir, inboxDir, rowID)
	path := filepath.Join(dir, name)
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
		return local, nil
	}
	if err := makeDir(dir, sharedDirMode, -1, h.opt.SandboxGID); err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	if err := h.writeBlob(ctx, dir, path, r, max); err != nil {
		return "", fmt.Errorf("put blob %q: %w", name, err)
	}
	return local, nil
}

// writeBlob writes beside the final name and links it there, so that a reader sees all of it or nothing.
func (h *Host) writeBlob(ctx context.Context, dir, path string, r io.Reader, max int64) error {
	temporary := filepath.Join(dir, "."+id.New("part"))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, sharedFileMode)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary) }()
	n, err := io.Copy(f, io.LimitReader(cancellable{ctx, r}, max+1))
	if err == nil && n > max {
		err = &mailbox.FieldError{Field: "file", Reason: fmt.Sprintf("larger than %d bytes", max)}
	}
	if err == nil {
		err = own(temporary, sharedFileMode, -1, h.opt.SandboxGID)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(temporary, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Remove(temporary); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// cancellable ends a slow source when ctx does, between two reads.
type cancellable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancellable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// removeBlobs takes away what PutBlob stored for a row. It is idempotent.
func (h *Host) removeBlobs(rowID string) error {
	if err := os.RemoveAll(filepath.Join(h.dir, inDir, inboxDir, rowID)); err != nil {
		return fmt.Errorf("remove attachments: %w", err)
	}
	return nil
}

// OpenOutBlob opens a file that the agent attached to an outbound row and returns its size. The file is regular, has one name,
// belongs to the sandbox, is no larger than HostOptions.MaxBytes, and no link was followed; else the error is
// mailbox.ErrHostile, or mailbox.ErrNotExist. The sandbox may still change it while it is read: read at most size bytes.
func (h *Host) OpenOutBlob(rowID, name string) (*os.File, int64, error) {
	return h.out.folder.openBlob(rowID, name)
}

func (d *folder) openBlob(rowID, name string) (*os.File, int64, error) {
	if err := errors.Join(blobRow(rowID), blobName(name)); err != nil {
		return nil, 0, fmt.Errorf("open outgoing file: %w", err)
	}
	f, st, err := d.open(outboxDir + "/" + rowID + "/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		err = mailbox.ErrNotExist
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open outgoing file %q: %w", name, err)
	}
	return f, st.Size, nil
}

// RemoveOutBlobs removes the files of a delivered outbound row, following no link. It is idempotent.
func (h *Host) RemoveOutBlobs(rowID string) error { return removeOutBlobs(h.dir, rowID) }

func removeOutBlobs(dir, rowID string) error {
	if err := blobRow(rowID); err != nil {
		return fmt.Errorf("remove outgoing files: %w", err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, outDir))
	if err != nil {
		return fmt.Errorf("remove outgoing files: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := root.RemoveAll(outboxDir + "/" + rowID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove outgoing files: %w", err)
	}
	return nil
}

// mostPruned is how many entries of an outbox one call of PruneOutBlobs looks at: whoever fills it fills time of its own only.
const mostPruned = 10_000

// PruneOutBlobs removes what lies in the outbox since before: files of rows that were never delivered. It follows no link, returns how
// many entries went, and finds no outbox to be no error.
func (h *Host) PruneOutBlobs(before time.Time) (gone int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("prune outgoing files: %w", err)
		}
	}()
	root, err := os.OpenRoot(filepath.Join(h.dir, outDir))
	if err != nil {
		return 0, ignoreMissing(err)
	}
	defer func() { _ = root.Close() }()
	if st, err := root.Lstat(outboxDir); err != nil || !st.IsDir() {
		return 0, ignoreMissing(err)
	}
	folder, err := root.Open(outboxDir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(mostPruned)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	for _, name := range names {
		st, err := root.Lstat(outboxDir + "/" + name)
		if err != nil || !st.ModTime().Before(before) {
			continue // it has just gone, or is young
		}
		if err := root.RemoveAll(outboxDir + "/" + name); err != nil {
			return gone, err
		}
		gone++
	}
	return gone, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
