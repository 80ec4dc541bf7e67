package providertest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// gone waits for the end of a process that was killed, which the kernel may still be busy with: at most 10 s.
func gone(t *testing.T, pid int) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		if err != unix.EINTR {
			return n > 0
		}
	}
}
