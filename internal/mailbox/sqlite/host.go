package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
)

// defaultMaxBytes is the largest outbound file or blob a host reads unless told otherwise.
const defaultMaxBytes = 1 << 30

// Modes of what a session's folder holds; in/ and run/ are readable to the sandbox's group, out/ and home/ are the sandbox's.
const (
	sharedDirMode  = 0o750
	sharedFileMode = 0o640
	privateMode    = 0o700
)

// HostOptions of a session's host half.
type HostOptions struct {
	// OutUID must own everything below out/; -1 requires the process's own uid. Create hands out/ and home/ to it.
	OutUID int
	// SandboxGID gets read access to in/ and run/; -1 leaves the process's group.
	SandboxGID int
	// MaxBytes is the largest outbound file, and blob, that is read; 0 is 1 GiB.
	MaxBytes int64
	Now      func() time.Time // nil: time.Now
	Log      *slog.Logger     // nil: discard
}

func (o HostOptions) filled() HostOptions {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = obs.Discard()
	}
	return o
}

// Host is the host's half of one session's mailbox: it alone writes inbound.db and it reads outbound.db without believing
// it. It holds files open until Close, so keep one only for a live session.
type Host struct {
	dir string
	opt HostOptions

	in struct {
		sync.Mutex
		*conn
	}
	out struct {
		sync.Mutex
		*outside
	}
}

// Create makes the folders and inbound.db of a session below dir, or opens them if they exist. It is idempotent.
func Create(ctx context.Context, dir string, opt HostOptions) (*Host, error) {
	opt = opt.filled()
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("create mailbox: %w", err)
	}
	for _, d := range []struct {
		name     string
		mode     os.FileMode
		uid, gid int
	}{
		{inDir, sharedDirMode, -1, opt.SandboxGID},
		{filepath.Join(inDir, inboxDir), sharedDirMode, -1, opt.SandboxGID},
		{runDir, sharedDirMode, -1, opt.SandboxGID},
		{outDir, privateMode, opt.OutUID, opt.SandboxGID},
		{homeDir, privateMode, opt.OutUID, opt.SandboxGID},
	} {
		if err := makeDir(filepath.Join(dir, d.name), d.mode, d.uid, d.gid); err != nil {
			return nil, fmt.Errorf("create mailbox: %w", err)
		}
	}
	return open(ctx, dir, opt, "rwc")
}

// makeDir creates path or leaves an existing folder as it is.
func makeDir(path string, mode os.FileMode, uid, gid int) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return own(path, mode, uid, gid)
}

// own sets mode and owner of something this process has just made in a folder of its own.
func own(path string, mode os.FileMode, uid, gid int) error {
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	if uid == os.Geteuid() {
		uid = -1
	}
	if gid == os.Getegid() {
		gid = -1
	}
	if uid == -1 && gid == -1 {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

// Open opens the mailbox below dir and rolls back what a host that died left half written in inbound.db. It returns
// mailbox.ErrNotExist if there is none, and creates nothing.
func Open(ctx context.Context, dir string, opt HostOptions) (*Host, error) {
	if ok, err := Exists(dir); err != nil {
		return nil, err
	} else if !ok {
		return nil, fmt.Errorf("open mailbox %s: %w", dir, mailbox.ErrNotExist)
	}
	return open(ctx, dir, opt.filled(), "rw")
}

func open(ctx context.Context, dir string, opt HostOptions, mode string) (*Host, error) {
	h := &Host{dir: dir, opt: opt}
	path := filepath.Join(dir, inDir, inboundFile)
	k, err := dial(ctx, dsn(path, mode, writerPragmas()...))
	if err != nil {
		return nil, failure("open inbound side", err)
	}
	k.before, k.after = "inbound.commit", "inbound.committed"
	h.in.conn = k
	if err := k.migrate(ctx, inboundVersion, inboundSchema()); err != nil {
		_ = k.close()
		return nil, failure("prepare inbound side", err)
	}
	if mode == "rwc" {
		if err := own(path, sharedFileMode, -1, opt.SandboxGID); err != nil {
			_ = k.close()
			return nil, fmt.Errorf("create mailbox: %w", err)
		}
	}
	out, err := openOutside(dir, opt)
	if err != nil {
		_ = k.close()
		return nil, err
	}
	h.out.outside = out
	return h, nil
}

// Exists reports whether dir holds a mailbox. It has no side effect.
func Exists(dir string) (bool, error) {
	st, err := os.Lstat(filepath.Join(dir, inDir, inboundFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for mailbox: %w", err)
	}
	return st.Mode().IsRegular(), nil
}

// Destroy removes the session's folder with everything in it, following no link. It is idempotent. No Host or Runner may be
// open on it.
func Destroy(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("destroy mailbox: %w", err)
	}
	return nil
}

// Close releases all files. A closed Host must not be used.
func (h *Host) Close() error {
	h.in.Lock()
	defer h.in.Unlock()
	h.out.Lock()
	defer h.out.Unlock()
	return errors.Join(h.in.close(), h.out.close())
}

// change runs f in one transaction on the inbound side; it is durable on return.
func (h *Host) change(ctx context.Context, what string, f func(k *conn) error) error {
	h.in.Lock()
	defer h.in.Unlock()
	return failure(what, h.in.write(ctx, func() error { return f(h.in.conn) }))
}

// look runs f, which may run more than once, on the inbound side.
func (h *Host) look(ctx context.Context, what string, f func(k *conn) error) error {
	h.in.Lock()
	defer h.in.Unlock()
	return failure(what, retry(ctx, func() error { return f(h.in.conn) }))
}

// now is the mailbox's clock in the form the files hold.
func (h *Host) now() string { return mailbox.FormatTime(h.opt.Now()) }

// null is s for a column where the empty string is NULL.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}
