package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Modes that Prepare gives (design.md section 4).
const (
	modeAgent      = 0o700
	modeHostDir    = 0o750
	modeHostFile   = 0o640
	modeHostSocket = 0o660
)

// Prepare hands the mounted folders over before a start: agent mounts to UID:GID with mode 0700, host and config mounts
// readable to GID (folders 0750, files 0640, sockets 0660), and makes the places where a mount nests inside a writable
// one. The caller of Start calls it, for every runtime; it is idempotent, and cheap when nothing changed: a tree is walked
// only where its top shows the wrong owner or mode. It works through directory handles and follows no link. Without
// root nothing is given away: owners must already be right. The error is a *Failure of class denied or spec-invalid.
func Prepare(s Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	for _, m := range s.Mounts {
		var err error
		switch {
		case m.Class == ClassAgent:
			err = handOver(m.Source, s.UID, s.GID)
		case m.Class == ClassHostBox || m.Class == ClassConfig:
			err = showTo(m.Source, s.GID)
		}
		if err != nil {
			return &Failure{Class: Denied, Op: "prepare mount " + m.Source, Err: err,
				Hint: "the host must own its folders, and must run as root to hand them to another uid"}
		}
	}
	for _, m := range s.Mounts {
		if err := s.makeRoom(m); err != nil {
			return &Failure{Class: Denied, Op: "make room for the mount on " + m.Target, Err: err}
		}
	}
	return nil
}

// handOver gives a tree to uid:gid. The top comes last, so that an interrupted walk is begun again.
func handOver(path string, uid, gid int) error {
	top, st, err := openNode(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	if int(st.Uid) != uid || int(st.Gid) != gid {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := eachChild(top, func(fd int, name string) error { return giveTree(fd, name, uid, gid) }); err != nil {
				return err
			}
		}
		if err := unix.Fchownat(int(top.Fd()), "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("give %s to %d:%d: %w", path, uid, gid, err)
		}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return setMode(top, st, modeAgent)
	}
	return nil
}

func giveTree(dir int, name string, uid, gid int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return gone(err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		d, _, err := openNode(dir, name)
		if err != nil {
			return gone(err)
		}
		defer func() { _ = d.Close() }()
		if err := eachChild(d, func(fd int, n string) error { return giveTree(fd, n, uid, gid) }); err != nil {
			return err
		}
		return unix.Fchownat(int(d.Fd()), "", uid, gid, unix.AT_EMPTY_PATH)
	}
	return gone(unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW))
}

// showTo makes a file, or a folder and what lies in it, readable to gid. Below the top, only what is wrong is walked.
func showTo(path string, gid int) error {
	top, st, err := openNode(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	return showNode(top, st, gid, true)
}

func showNode(f *os.File, st unix.Stat_t, gid int, walk bool) error {
	var want uint32
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		want = modeHostDir
	case unix.S_IFREG:
		want = modeHostFile
	case unix.S_IFSOCK:
		want = modeHostSocket
	default:
		return nil
	}
	right := int(st.Gid) == gid && st.Mode&0o7777 == want
	if want == modeHostDir && (walk || !right) {
		err := eachChild(f, func(fd int, name string) error {
			c, cst, err := openNode(fd, name)
			if err != nil {
				return gone(err)
			}
			defer func() { _ = c.Close() }()
			return showNode(c, cst, gid, false)
		})
		if err != nil {
			return err
		}
	}
	if int(st.Gid) != gid {
		if err := unix.Fchownat(int(f.Fd()), "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("give %s to group %d: %w", f.Name(), gid, err)
		}
	}
	return setMode(f, st, want)
}

// makeRoom makes the file or folder on which m lands when its target lies inside a writable mount, so that no runtime
// has to, and replaces a link planted there. Whatever else is in the way makes the start fail.
func (s Spec) makeRoom(m Mount) error {
	outer := Mount{}
	for _, o := range s.Mounts {
		if o.Target != m.Target && Within(o.Target, m.Target) && len(o.Target) > len(outer.Target) {
			outer = o
		}
	}
	if outer.Class != ClassAgent || !outer.Writable {
		return nil
	}
	src, err := os.Lstat(m.Source)
	if err != nil {
		return err
	}
	dir, _, err := openNode(unix.AT_FDCWD, outer.Source)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	parts := strings.Split(strings.TrimPrefix(m.Target, outer.Target+"/"), "/")
	for i, part := range parts {
		isDir := i < len(parts)-1 || src.IsDir()
		next, err := roomAt(dir, part, isDir, s.UID, s.GID)
		if err != nil {
			return err
		}
		_ = dir.Close()
		dir = next
	}
	return nil
}

func roomAt(dir *os.File, name string, isDir bool, uid, gid int) (*os.File, error) {
	made := false
	for range 3 {
		f, st, err := openNode(int(dir.Fd()), name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := makeNode(int(dir.Fd()), name, isDir); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("make %s: %w", filepath.Join(dir.Name(), name), err)
			}
			made = true
			continue
		case err != nil:
			return nil, err
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			_ = f.Close()
			if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil {
				return nil, fmt.Errorf("remove the link %s: %w", filepath.Join(dir.Name(), name), err)
			}
			continue
		case (st.Mode&unix.S_IFMT == unix.S_IFDIR) != isDir, !isDir && st.Mode&unix.S_IFMT != unix.S_IFREG:
			_ = f.Close()
			return nil, fmt.Errorf("%s is in the way of a mount", filepath.Join(dir.Name(), name))
		}
		if made && int(st.Uid) != uid {
			if err := unix.Fchownat(int(f.Fd()), "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
				_ = f.Close()
				return nil, err
			}
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s changes while it is prepared", filepath.Join(dir.Name(), name))
}

func makeNode(dir int, name string, isDir bool) error {
	if isDir {
		return unix.Mkdirat(dir, name, 0o700)
	}
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// openNode opens a handle that names a file without opening it: no link is followed, no FIFO waited for.
func openNode(dir int, name string) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, st, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, st, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), st, nil
}

func setMode(f *os.File, st unix.Stat_t, mode uint32) error {
	if st.Mode&0o7777 == mode {
		return nil
	}
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mode); err != nil {
		return fmt.Errorf("set mode %o on %s: %w", mode, f.Name(), err)
	}
	return nil
}

func eachChild(d *os.File, visit func(fd int, name string) error) error {
	fd, err := unix.Openat(int(d.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: d.Name(), Err: err}
	}
	r := os.NewFile(uintptr(fd), d.Name())
	defer func() { _ = r.Close() }()
	names, err := r.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := visit(int(r.Fd()), name); err != nil {
			return err
		}
	}
	return nil
}

// gone forgives a file that disappeared during a walk.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
