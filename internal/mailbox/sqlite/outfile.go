package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/mailbox"
)

// SQLite's lock bytes. They lie outside every database this package reads.
const (
	pendingByte  = 0x40000000
	reservedByte = pendingByte + 1
	sharedFirst  = pendingByte + 2
	sharedSize   = 510
)

// errLocked is a lock held by another process: retry waits for it.
var errLocked = errors.New("database is locked")

// folder is a handle of out/. Everything below is opened through it, never by a path.
type folder struct {
	fd  *os.File
	uid uint32
	max int64
}

func openFolder(dir string, opt HostOptions) (*folder, error) {
	path := filepath.Join(dir, outDir)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open outbound side %s: %w: %w", path, mailbox.ErrHostile, err)
	}
	uid := opt.OutUID
	if uid < 0 {
		uid = os.Geteuid()
	}
	return &folder{fd: os.NewFile(uintptr(fd), path), uid: uint32(uid), max: opt.MaxBytes}, nil
}

// stat looks at name without following a link. A missing file is fs.ErrNotExist, one that a runner would not have made is
// mailbox.ErrHostile.
func (d *folder) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.fd.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return st, fs.ErrNotExist
		}
		return st, fmt.Errorf("look at %s: %w", name, err)
	}
	return st, d.accept(name, st)
}

// accept is the check of every file below out/: regular, one name only, of the sandbox's uid, not too large.
func (d *folder) accept(name string, st unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%w: %s is not a regular file", mailbox.ErrHostile, name)
	case st.Nlink != 1:
		return fmt.Errorf("%w: %s has %d links", mailbox.ErrHostile, name, st.Nlink)
	case st.Uid != d.uid:
		return fmt.Errorf("%w: %s belongs to uid %d, want %d", mailbox.ErrHostile, name, st.Uid, d.uid)
	case st.Size > d.max:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are read", mailbox.ErrHostile, name, st.Size, d.max)
	}
	return nil
}

// open opens the file at path (parts joined by /) for reading. It never blocks, leaves the folder by no way, follows no
// link, and checks what it has opened, so that a swap after stat changes nothing.
func (d *folder) open(path string) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat2(int(d.fd.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, st, fs.ErrNotExist
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENOTDIR):
		return nil, st, fmt.Errorf("%w: %s is a link or no regular file", mailbox.ErrHostile, path)
	case err != nil:
		return nil, st, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Fstat(fd, &st); err != nil {
		_ = f.Close()
		return nil, st, fmt.Errorf("look at %s: %w", path, err)
	}
	if err := d.accept(path, st); err != nil {
		_ = f.Close()
		return nil, st, err
	}
	return f, st, nil
}

// setLock takes or gives back one range of locks of f's descriptor; it never waits.
func setLock(f *os.File, kind int16, start, length int64) error {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: start, Len: length}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return errLocked
	}
	return err
}

// lockShared takes SQLite's shared lock in SQLite's own steps, so that a writer who waits for the exclusive one gets it.
func lockShared(f *os.File) error {
	if err := setLock(f, unix.F_RDLCK, pendingByte, 1); err != nil {
		return err
	}
	err := setLock(f, unix.F_RDLCK, sharedFirst, sharedSize)
	if e := setLock(f, unix.F_UNLCK, pendingByte, 1); err == nil {
		err = e
	}
	return err
}

func unlock(f *os.File) {
	_ = setLock(f, unix.F_UNLCK, pendingByte, sharedFirst+sharedSize-pendingByte)
}

// reserved reports whether a writer is at work: its journal is then not a leftover.
func reserved(f *os.File) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: reservedByte, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false, err
	}
	return l.Type != unix.F_UNLCK, nil
}

// oneFile is a file system for SQLite that holds one database and nothing else: no journal, no way out. It reads through a
// descriptor that was checked, so no path of the sandbox is ever opened by SQLite; and since it has no shared memory, a file
// switched to WAL is refused.
type oneFile struct{ f *os.File }

// Open implements fs.FS.
func (o oneFile) Open(name string) (fs.File, error) {
	if filepath.Base(name) != outboundFile {
		return nil, fs.ErrNotExist
	}
	return &handle{f: o.f}, nil
}

// Stat implements fs.StatFS: SQLite asks for journals only.
func (oneFile) Stat(string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }

// handle reads the shared descriptor at an offset of its own. Closing it leaves the descriptor open.
type handle struct {
	f  *os.File
	at int64
}

func (h *handle) Stat() (fs.FileInfo, error) { return h.f.Stat() }
func (h *handle) Close() error               { return nil }

func (h *handle) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, fmt.Errorf("seek: %w", errors.ErrUnsupported)
	}
	h.at = offset
	return offset, nil
}

func (h *handle) Read(b []byte) (int, error) {
	n, err := h.f.ReadAt(b, h.at)
	if h.at == 0 && n > 0 {
		if err := checkFirstPage(b[:n]); err != nil {
			return 0, err
		}
	}
	h.at += int64(n)
	return n, err
}

// pageSize of the files a runner writes.
const pageSize = 4096

// maxObjects bounds the schema that SQLite has to parse before it can be compared.
const maxObjects = 32

// checkFirstPage refuses, in the very bytes that SQLite is about to use, what a runner never writes: another page size, WAL
// mode, or a schema that does not fit one page.
func checkFirstPage(b []byte) error {
	if len(b) >= 20 && (binary.BigEndian.Uint16(b[16:]) != pageSize || b[18] != 1 || b[19] != 1) {
		return fmt.Errorf("%w: not in rollback-journal mode with pages of %d bytes", mailbox.ErrHostile, pageSize)
	}
	const leaf = 0x0d
	if len(b) >= 108 && (b[100] != leaf || binary.BigEndian.Uint16(b[103:]) > maxObjects) {
		return fmt.Errorf("%w: too many tables", mailbox.ErrHostile)
	}
	return nil
}
