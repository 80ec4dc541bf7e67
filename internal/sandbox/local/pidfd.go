package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pidfd watches one process through the runtime's poller: no thread, no timer.
type pidfd struct{ f *os.File }

// openPidfd returns nil without an error when the process is gone.
func openPidfd(p Proc) (*pidfd, error) {
	if !p.exists() {
		return nil, nil
	}
	fd, err := unix.PidfdOpen(p.PID, unix.O_NONBLOCK)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.10 the flag is unknown
		if fd, err = unix.PidfdOpen(p.PID, 0); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	}
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", p.PID, err)
	}
	w := &pidfd{os.NewFile(uintptr(fd), "pidfd")}
	if !p.exists() { // the number may have passed on before the descriptor was opened
		_ = w.f.Close()
		return nil, nil
	}
	return w, nil
}

// wait blocks until the process has ended (a zombie has) or the deadline, which may be zero, has passed.
func (w *pidfd) wait(deadline time.Time) error {
	if w == nil {
		return nil
	}
	raw, err := w.f.SyscallConn()
	if err != nil {
		return err
	}
	if err := w.f.SetReadDeadline(deadline); err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool { return ended(int(fd)) })
}

func ended(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// signal reports no error when the process has ended.
func (w *pidfd) signal(s unix.Signal) error {
	if w == nil {
		return nil
	}
	raw, err := w.f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(inner, unix.ESRCH) {
		return nil
	}
	return inner
}

func (w *pidfd) close() {
	if w != nil {
		_ = w.f.Close()
	}
}

// WaitGone blocks until p has ended, limit has passed, or ctx ends, and reports whether p has ended.
func WaitGone(ctx context.Context, p Proc, limit time.Duration) bool {
	w, err := openPidfd(p)
	if err != nil || w == nil {
		return !p.Alive()
	}
	defer w.close()
	stop := context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(time.Now()) })
	defer stop()
	return w.wait(time.Now().Add(limit)) == nil || !p.Alive()
}
