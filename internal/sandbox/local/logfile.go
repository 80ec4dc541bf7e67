package local

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Bounds of a sandbox's log file. It is cut when it exceeds the first; then the second is what stays of it.
const (
	logMax  = 1 << 20
	logKeep = 128 << 10
	// stderrMax is how much of its end becomes Exit.Stderr.
	stderrMax = 4 << 10
)

// LogPath is the file in a state folder that takes what a sandbox writes on stdout and stderr.
func LogPath(stateDir string) string { return filepath.Join(stateDir, "sandbox.log") }

// OpenLog makes the log file of a new sandbox, empty; that of the one before stays beside it as sandbox.log.1. Every writer
// appends, so that it can be cut under them.
func OpenLog(stateDir string) (*os.File, error) {
	if err := os.Rename(LogPath(stateDir), LogPath(stateDir)+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(LogPath(stateDir), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
}

// trimLog keeps the end of a log file that has grown too long. What is written at the same moment may be lost.
func trimLog(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil || st.Size() <= logMax || !st.Mode().IsRegular() {
		return err
	}
	end := make([]byte, logKeep)
	n, err := f.ReadAt(end, st.Size()-logKeep)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.Write(append([]byte("[earlier lines cut]\n"), end[:n]...))
	return err
}

// Tail is the end of a log file, at most stderrMax bytes, from the start of a line where that is possible.
func Tail(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	from := max(0, st.Size()-stderrMax)
	b := make([]byte, stderrMax)
	n, _ := f.ReadAt(b, from)
	b = b[:n]
	if from > 0 {
		for i, c := range b {
			if c == '\n' {
				b = b[i+1:]
				break
			}
		}
	}
	return string(b)
}

// trimmer cuts log files as they grow. The kernel tells it of writes (one inotify descriptor for all logs, open while
// there is a log), so a quiet sandbox costs nothing.
type trimmer struct {
	mu    sync.Mutex
	f     *os.File
	paths map[int32]string
}

// watch follows path until the returned function is called; nothing cuts the log after that. Without inotify the log is cut only when it is opened.
func (t *trimmer) watch(path string) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return func() {}
		}
		t.f, t.paths = os.NewFile(uintptr(fd), "inotify"), map[int32]string{}
		go t.run(t.f)
	}
	wd := int32(-1)
	t.control(func(fd int) {
		if n, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err == nil {
			wd = int32(n)
			t.paths[wd] = path
		}
	})
	_ = trimLog(path)
	var once sync.Once
	return func() { once.Do(func() { t.forget(wd) }) }
}

func (t *trimmer) forget(wd int32) {
	if f := t.remove(wd); f != nil {
		_ = f.Close() // the kernel takes some 10 ms for it
	}
}

// remove ends the watch, and returns the descriptor if it was the last.
func (t *trimmer) remove(wd int32) *os.File {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f == nil {
		return nil
	}
	t.control(func(fd int) { _, _ = unix.InotifyRmWatch(fd, uint32(wd)) })
	delete(t.paths, wd)
	if len(t.paths) > 0 {
		return nil
	}
	f := t.f
	t.f = nil
	return f
}

func (t *trimmer) control(do func(fd int)) {
	if raw, err := t.f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}

func (t *trimmer) run(f *os.File) {
	buf := make([]byte, 64*unix.SizeofInotifyEvent)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		touched := map[int32]bool{}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			touched[int32(binary.NativeEndian.Uint32(buf[at:]))] = true
			at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
		}
		for wd := range touched {
			t.mu.Lock() // so that whoever ends a watch waits for the cut that runs
			if path := t.paths[wd]; path != "" {
				_ = trimLog(path)
			}
			t.mu.Unlock()
		}
	}
}
