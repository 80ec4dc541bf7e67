package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/mailbox"
)

// Owner of a home's lock.
type Owner struct {
	PID     int    `json:"pid"`
	Since   string `json:"since"`
	Version string `json:"version"`
}

// LockedError: another host runs on this home.
type LockedError struct{ Owner Owner }

func (e *LockedError) Error() string {
	return fmt.Sprintf("another host runs on this home: process %d, version %s, since %s (use it, or stop it with `nanoclaw stop`)",
		e.Owner.PID, e.Owner.Version, e.Owner.Since)
}

// Lock keeps a second host off a home. The kernel drops it when the process ends, however it ends.
type Lock struct{ f *os.File }

const lockName = "run/host.lock"

// AcquireLock takes the lock of a home or returns a *LockedError at once.
func AcquireLock(home, version string) (*Lock, error) {
	path := filepath.Join(home, lockName)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("lock home: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock home: %w", err)
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, &LockedError{Owner: awaitOwner(f)}
		}
		return nil, fmt.Errorf("lock home: %w", err)
	}
	b, err := json.Marshal(Owner{PID: os.Getpid(), Since: mailbox.FormatTime(time.Now()), Version: version})
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(b, 0)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock home: %w", err)
	}
	return &Lock{f}, nil
}

// LockOwner reads who holds the lock of a home; ok is false when nobody does. It takes no lock itself, so it never keeps a
// starting host away.
func LockOwner(home string) (o Owner, ok bool) {
	f, err := os.Open(filepath.Join(home, lockName))
	if err != nil {
		return Owner{}, false
	}
	defer func() { _ = f.Close() }()
	probe := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &probe) != nil || probe.Type == unix.F_UNLCK {
		return Owner{}, false
	}
	return readOwner(f), true
}

func readOwner(f *os.File) (o Owner) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return Owner{Version: "unknown", Since: "unknown"}
	}
	return o
}

// awaitOwner reads the owner and gives one that has the lock but has not signed it yet a moment to do so.
func awaitOwner(f *os.File) (o Owner) {
	for range 50 {
		if o = readOwner(f); o.PID != 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return o
}

// Release gives the lock back.
func (l *Lock) Release() error { return l.f.Close() }
