package limit

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MachineMemory is how many bytes of memory the programs of this machine may use together: what it has, or less where this
// program itself runs in a container with a limit. 0 if it cannot be told.
func MachineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	total := min(uint64(info.Totalram), math.MaxInt64/max(uint64(info.Unit), 1)) * max(uint64(info.Unit), 1)
	return within(int64(min(total, math.MaxInt64)), cgroupLimits("/sys/fs/cgroup"))
}

func within(total int64, limits []int64) int64 {
	for _, v := range limits {
		if v > 0 && (total == 0 || v < total) {
			total = v
		}
	}
	return total
}

// cgroupLimits reads the memory limit of the outermost group that is seen here, in both versions.
func cgroupLimits(root string) (all []int64) {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		if v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			all = append(all, v)
		}
	}
	return all
}

// expected is what one sandbox of the largest usual kind takes: a provider's program of its own with what it starts.
const expected = 512 << 20

// Places is how many sandboxes a machine with this much memory takes at a time; at least 2.
func Places(memory int64) int {
	return int(max(min(memory/expected, 1000), 2))
}
