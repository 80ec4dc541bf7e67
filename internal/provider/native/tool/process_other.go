//go:build !linux

package tool

import (
	"syscall"
	"time"
)

const markName = "NANOCLAW_JOB"

// sweep kills the groups of the commands; a child with a session of its own is not found. Sandboxes run Linux.
func sweep(_ string, roots []int, _ time.Duration) {
	for _, pid := range roots {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}
