package limit

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// prlimit bounds the writable memory of each process, and the processes of the uid to those it has now and PIDs more:
// the kernel counts by uid, so a smaller number would stop what else the user runs.
func (g *Group) prlimit(pid int) error {
	var err error
	if n := g.Want.MemoryBytes; n > 0 {
		err = errors.Join(err, bound(pid, unix.RLIMIT_DATA, uint64(n)))
	}
	if n := g.Want.PIDs; n > 0 {
		st, e := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if e != nil {
			return errors.Join(err, e)
		}
		uid := uint32(os.Geteuid())
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			uid = sys.Uid
		}
		err = errors.Join(err, bound(pid, unix.RLIMIT_NPROC, uint64(threads(uid)+n)))
	}
	return err
}

func bound(pid, resource int, n uint64) error {
	var old unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &old); err != nil {
		return fmt.Errorf("read resource limit %d: %w", resource, err)
	}
	n = min(n, old.Max)
	if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
		return fmt.Errorf("set resource limit %d: %w", resource, err)
	}
	return nil
}

// threads counts the threads of all processes of uid.
func threads(uid uint32) int64 {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	var total int64
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err != nil {
			continue
		}
		var owner, count int64 = -1, 0
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			switch {
			case len(f) > 1 && f[0] == "Uid:":
				owner, _ = strconv.ParseInt(f[1], 10, 64)
			case len(f) > 1 && f[0] == "Threads:":
				count, _ = strconv.ParseInt(f[1], 10, 64)
			}
		}
		if owner == int64(uid) {
			total += count
		}
	}
	return total
}
