package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// InPrivateMounts runs fn on a thread of its own, in a mount namespace of its own in which nothing is shared with the
// machine's. A process that fn starts lives in that namespace; the thread ends with fn. It needs root.
//
// Go cannot run code between fork and exec, and a stage that is a program of its own would cost every start a second
// exec; a thread that is locked and never unlocked may change its namespace without touching the rest of the process.
func InPrivateMounts(fn func() error) error {
	done := make(chan error, 1)
	go privately(fn, done)
	return <-done
}

func privately(fn func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot be given up, and its namespace is what others see as the process's. Hold it meanwhile.
		inner := make(chan error, 1)
		go privately(fn, inner)
		err := <-inner
		runtime.UnlockOSThread()
		done <- err
		return
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		done <- fmt.Errorf("make a private mount namespace: %w", err)
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		done <- fmt.Errorf("make mounts private: %w", err)
		return
	}
	done <- fn()
}

// Bind shows Source at Target, a path below the cover.
type Bind struct{ Source, Target string }

// Cover mounts an empty tmpfs, mode 0711 and owned by root, over dir and binds into it. Sources are opened first, without
// following a link at their end, so they may lie below dir. Call it inside InPrivateMounts.
func Cover(dir string, binds []Bind) error {
	handles := make([]*os.File, len(binds))
	defer func() {
		for _, h := range handles {
			_ = h.Close()
		}
	}()
	for i, b := range binds {
		fd, err := unix.Open(b.Source, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: b.Source, Err: err}
		}
		handles[i] = os.NewFile(uintptr(fd), b.Source)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0711,size=1m"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	for i, b := range binds {
		if err := bind(handles[i], b.Target); err != nil {
			return fmt.Errorf("bind %s: %w", b.Source, err)
		}
	}
	return nil
}

func bind(source *os.File, target string) error {
	st, err := source.Stat()
	if err != nil {
		return err
	}
	if err := MakePath(filepath.Dir(target)); err != nil {
		return err
	}
	switch {
	case st.IsDir():
		err = MakePath(target)
	case st.Mode().IsRegular():
		err = os.WriteFile(target, nil, 0o600)
	default:
		err = errors.New("neither a folder nor a file")
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", source.Fd()), target, "", unix.MS_BIND|unix.MS_REC, "")
}

// MakePath makes a folder and its parents, those it makes with mode 0711 whatever the umask is.
func MakePath(dir string) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	if err := MakePath(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711)
}

// KeepDescriptors marks every descriptor of this process beyond stderr as not for its children, also those it inherited
// itself: bubblewrap would hand them on into the sandbox. Call it before each start.
func KeepDescriptors() {
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
