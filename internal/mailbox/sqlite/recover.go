package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/mailbox"
)

const journalSuffix = "-journal"

// superMark ends a journal that names another file. SQLite would open that file during recovery, and delete it if it names no
// living journal: no runner writes such a thing.
const superMark = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

// leftover tells one state of a database and its journal from another.
type leftover struct {
	db, journal struct {
		ino       uint64
		size      int64
		mod, meta unix.Timespec
	}
}

// recover reads a database whose writer died in mid-commit: file and journal are copied into a private folder and rolled
// back there; the originals are left as they are. The shared lock is held, so neither changes meanwhile by rightful hands. The
// copy is kept for as long as both stay the same.
func (o *outside) recover(ctx context.Context, file *os.File) (*reader, error) {
	j, jst, err := o.folder.open(outboundFile + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errLocked // gone meanwhile: look again
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = j.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, fmt.Errorf("look at outbound file: %w", err)
	}
	var mark leftover
	mark.db.ino, mark.db.size, mark.db.mod, mark.db.meta = st.Ino, st.Size, st.Mtim, st.Ctim
	mark.journal.ino, mark.journal.size, mark.journal.mod, mark.journal.meta = jst.Ino, jst.Size, jst.Mtim, jst.Ctim
	if o.recovered != nil && o.mark == mark {
		return o.recovered, nil
	}
	o.dropRecovered()
	copied, err := rollBack(ctx, o.dir, file, st.Size, j, jst.Size, o.folder.max)
	if err != nil {
		return nil, err
	}
	o.recovered, o.mark = &reader{file: copied}, mark
	return o.recovered, nil
}

// rollBack returns the database as it was before the unfinished transaction, in a file without a name.
func rollBack(ctx context.Context, dir string, db io.ReaderAt, dbSize int64, journal io.ReaderAt, journalSize, limit int64) (*os.File, error) {
	private, err := os.MkdirTemp(dir, ".recover-")
	if err != nil {
		return nil, fmt.Errorf("recover outbound side: %w", err)
	}
	defer func() { _ = os.RemoveAll(private) }()
	path := filepath.Join(private, outboundFile)
	if err := copyTo(path, db, dbSize); err != nil {
		return nil, fmt.Errorf("recover outbound side: %w", err)
	}
	if err := copyTo(path+journalSuffix, journal, journalSize); err != nil {
		return nil, fmt.Errorf("recover outbound side: %w", err)
	}
	if err := checkJournal(path + journalSuffix); err != nil {
		return nil, err
	}
	k, err := dial(ctx, dsn(path, "rw", "synchronous(0)"))
	if err != nil {
		return nil, fmt.Errorf("recover outbound side: %w", err)
	}
	var version int64
	_, err = k.one("PRAGMA user_version", nil, &version)
	if e := k.close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("recover outbound side: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("recover outbound side: %w", err)
	}
	if st, err := f.Stat(); err != nil || st.Size() > limit {
		_ = f.Close()
		return nil, fmt.Errorf("%w: recovery grows the file past %d bytes", mailbox.ErrHostile, limit)
	}
	return f, nil
}

// checkJournal looks at the very copy that SQLite is about to read.
func checkJournal(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("recover outbound side: %w", err)
	}
	defer func() { _ = f.Close() }()
	tail := make([]byte, len(superMark))
	if _, err := f.Seek(-int64(len(tail)), io.SeekEnd); err != nil {
		return nil // shorter than any mark
	}
	if _, err := io.ReadFull(f, tail); err != nil {
		return fmt.Errorf("recover outbound side: %w", err)
	}
	if string(tail) == superMark {
		return fmt.Errorf("%w: the journal names another file", mailbox.ErrHostile)
	}
	return nil
}

// copyTo writes what can be read of size bytes: a sandbox that shortens its file meanwhile gets a broken copy.
func copyTo(path string, from io.ReaderAt, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.NewSectionReader(from, 0, size))
	return errors.Join(err, f.Close())
}
