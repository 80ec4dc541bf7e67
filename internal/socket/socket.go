// Package socket binds and dials Unix sockets in folders of any depth. A socket address holds 107 bytes and real homes
// exceed it, so both go through an O_PATH descriptor of the folder (design.md section 12).
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/id"
)

// Listener is a listening Unix socket that takes its file along when it is closed.
type Listener struct {
	*net.UnixListener
	dir    *os.File
	name   string
	inode  uint64
	closed sync.Once
}

// Listen binds name in dir with the given mode. It binds to a temporary name and renames, so that a client never sees a
// socket nobody listens on; a file of that name is replaced. Whoever must not replace a live socket holds a lock of his own.
func Listen(dir, name string, mode os.FileMode) (*Listener, error) {
	if !id.Safe(name) {
		return nil, fmt.Errorf("listen on socket %q: not a plain file name", name)
	}
	d, err := openDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", name, err)
	}
	l, err := listen(d, name, mode)
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("listen on socket %s in %s: %w", name, dir, err)
	}
	return l, nil
}

func listen(d *os.File, name string, mode os.FileMode) (*Listener, error) {
	temporary := id.New("s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: at(d, temporary)})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	fail := func(err error) (*Listener, error) {
		_ = l.Close()
		_ = unix.Unlinkat(int(d.Fd()), temporary, 0)
		return nil, err
	}
	if err := os.Chmod(at(d, temporary), mode); err != nil {
		return fail(err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), temporary, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fail(err)
	}
	if err := unix.Renameat(int(d.Fd()), temporary, int(d.Fd()), name); err != nil {
		return fail(err)
	}
	return &Listener{UnixListener: l, dir: d, name: name, inode: st.Ino}, nil
}

// Close stops listening and removes the socket's file unless another listener has taken its place.
func (l *Listener) Close() error {
	err := l.UnixListener.Close()
	l.closed.Do(func() {
		var st unix.Stat_t
		if unix.Fstatat(int(l.dir.Fd()), l.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ino == l.inode {
			_ = unix.Unlinkat(int(l.dir.Fd()), l.name, 0)
		}
		_ = l.dir.Close()
	})
	return err
}

// Chown gives the socket's file to uid and gid; -1 leaves one as it is.
func (l *Listener) Chown(uid, gid int) error {
	return unix.Fchownat(int(l.dir.Fd()), l.name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
}

// Dial connects to name in dir. It follows no link in the last part of the path.
func Dial(ctx context.Context, dir, name string) (net.Conn, error) {
	d, err := openDir(dir)
	if err != nil {
		return nil, fmt.Errorf("connect to socket %s: %w", name, err)
	}
	defer func() { _ = d.Close() }()
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fmt.Errorf("connect to socket %s in %s: %w", name, dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("connect to socket %s in %s: not a socket", name, dir)
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", at(d, name))
	if err != nil {
		return nil, fmt.Errorf("connect to socket %s in %s: %w", name, dir, err)
	}
	return c, nil
}

// PeerUID is the user id of the process at the other end.
func PeerUID(c net.Conn) (int, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("read peer of connection: not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("read peer of connection: %w", err)
	}
	var cred *unix.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("read peer of connection: %w", err)
	}
	if inner != nil {
		return 0, fmt.Errorf("read peer of connection: %w", inner)
	}
	return int(cred.Uid), nil
}

// Retry dials until it succeeds, ctx ends or hold has passed, with pauses from 5 ms to 250 ms: for a host that is away
// for a moment (design.md section 4).
func Retry(ctx context.Context, dir, name string, hold time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		c, err := Dial(ctx, dir, name)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

func openDir(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func at(d *os.File, name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name) }
