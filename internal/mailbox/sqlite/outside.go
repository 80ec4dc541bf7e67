package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
	"modernc.org/sqlite/vfs"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
)

// outside is the host's view of out/: the one place that touches what a sandbox wrote. The owner serialises its use.
type outside struct {
	dir       string // of the session, for private copies
	log       *slog.Logger
	folder    *folder
	live      *reader // reads the file itself
	recovered *reader // reads a private copy after recovery
	mark      leftover
}

// reader is an open outbound file with a connection that reads through it.
type reader struct {
	file   *os.File
	dev    uint64
	ino    uint64
	vfs    *vfs.FS
	k      *conn
	cookie int64
}

func openOutside(dir string, opt HostOptions) (*outside, error) {
	f, err := openFolder(dir, opt)
	if err != nil {
		return nil, err
	}
	return &outside{dir: dir, log: opt.Log, folder: f}, nil
}

func (o *outside) close() error {
	o.drop()
	o.dropRecovered()
	return o.folder.fd.Close()
}

func (o *outside) drop() {
	if o.live != nil {
		o.live.close()
		o.live = nil
	}
}

func (o *outside) dropRecovered() {
	if o.recovered != nil {
		o.recovered.close()
		o.recovered = nil
	}
}

// read gives f a connection on a consistent state of outbound.db; f may run more than once. A missing or empty file is an
// empty one: f is not called. The lock is held while f runs, so f must be short.
func (o *outside) read(ctx context.Context, what string, f func(ctx context.Context, k *conn) error) error {
	err := retry(ctx, func() error { return o.attempt(ctx, f) })
	if err == nil || errors.Is(err, mailbox.ErrBusy) || errors.Is(err, mailbox.ErrHostile) && code(err) == 0 {
		return wrap(what, err)
	}
	if code(err) != 0 || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", mailbox.ErrHostile, err)
	}
	return wrap(what, err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (o *outside) attempt(ctx context.Context, f func(ctx context.Context, k *conn) error) error {
	st, err := o.folder.stat(outboundFile)
	if errors.Is(err, fs.ErrNotExist) {
		o.drop()
		return nil
	}
	if err != nil {
		o.drop()
		return err
	}
	if o.live != nil && (o.live.dev != st.Dev || o.live.ino != st.Ino) {
		o.drop()
	}
	if o.live == nil {
		file, st, err := o.folder.open(outboundFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		o.live = &reader{file: file, dev: st.Dev, ino: st.Ino}
	}
	if err := lockShared(o.live.file); err != nil {
		return err
	}
	defer func() {
		if o.live != nil {
			unlock(o.live.file)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := o.live
	switch hot, err := o.hot(r.file); {
	case err != nil:
		return err
	case hot:
		if r, err = o.recover(ctx, r.file); err != nil {
			return err
		}
	default:
		o.dropRecovered()
		size, err := r.file.Stat()
		if err != nil {
			return err
		}
		if size.Size() == 0 {
			return nil
		}
	}
	err = r.use(ctx, f)
	if err != nil && r == o.live {
		unlock(r.file)
		o.drop()
	} else if err != nil {
		o.dropRecovered()
	}
	return err
}

// hot reports whether a journal lies there that no writer is using. The shared lock must be held.
func (o *outside) hot(file *os.File) (bool, error) {
	st, err := o.folder.stat(outboundFile + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if busy, err := reserved(file); busy || err != nil {
		return false, err
	}
	j, _, err := o.folder.open(outboundFile + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // its writer finished meanwhile
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = j.Close() }()
	var first [1]byte
	n, err := unix.Pread(int(j.Fd()), first[:], 0)
	if err != nil {
		return false, fmt.Errorf("read journal: %w", err)
	}
	return n == 1 && first[0] != 0, nil
}

// use opens the connection if need be, makes sure that the schema is one a runner writes, and runs f.
func (r *reader) use(ctx context.Context, f func(ctx context.Context, k *conn) error) error {
	if r.k == nil {
		if err := r.connect(ctx); err != nil {
			return err
		}
	} else {
		var cookie int64
		if _, err := r.k.one("PRAGMA schema_version", nil, &cookie); err != nil {
			return err
		}
		if cookie != r.cookie {
			if cookie, err := r.k.verify(ctx); err != nil {
				return err
			} else {
				r.cookie = cookie
			}
		}
	}
	return f(ctx, r.k)
}

// maxCell bounds a single value, also one whose length is only claimed.
const maxCell = 1 << 20

func (r *reader) connect(ctx context.Context) error {
	name, v, err := vfs.New(oneFile{r.file})
	if err != nil {
		return fmt.Errorf("prepare reader: %w", err)
	}
	r.vfs = v
	// Only pragmas that do not make SQLite parse the schema: the limits come first.
	k, err := dial(ctx, "file:"+outboundFile+"?mode=ro&vfs="+name+
		"&_defensive=1&_dqs=0&_pragma=trusted_schema(0)&_pragma=busy_timeout(0)&_pragma=mmap_size(0)&_pragma=cell_size_check(1)")
	if err != nil {
		return err
	}
	for limit, value := range map[int]int{
		lib.SQLITE_LIMIT_LENGTH: maxCell, lib.SQLITE_LIMIT_SQL_LENGTH: maxCell, lib.SQLITE_LIMIT_ATTACHED: 0, lib.SQLITE_LIMIT_WORKER_THREADS: 0,
	} {
		if _, err := driver.Limit(k.c, limit, value); err != nil {
			_ = k.close()
			return fmt.Errorf("limit reader: %w", err)
		}
	}
	if r.cookie, err = k.verify(ctx); err != nil {
		_ = k.close()
		return err
	}
	r.k = k
	return nil
}

func (r *reader) close() {
	if r.k != nil {
		_ = r.k.close()
	}
	if r.vfs != nil {
		_ = r.vfs.Close()
	}
	_ = r.file.Close()
}

// Heartbeat is the modification time of the runner's sign of life; zero without one. A time in the future counts as now.
func (o *outside) heartbeat(now time.Time) time.Time {
	st, err := o.folder.stat(heartbeatFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			o.log.Warn("heartbeat ignored", obs.Error(err))
		}
		return time.Time{}
	}
	at := time.Unix(st.Mtim.Unix()).UTC()
	if at.After(now) {
		return now.UTC()
	}
	return at
}
