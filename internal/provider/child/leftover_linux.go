package child

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// markName is a variable that the descendants of the program inherit. It finds those whose parents are gone: shells of an agent
// have sessions of their own and survive it.
const markName = "NANOCLAW_QUERY"

// descendants are the processes below a pid, which need not have the mark any more.
func descendants(pid int) []int {
	children := map[int][]int{}
	for _, p := range processes() {
		if parent, _, ok := stat(p); ok {
			children[parent] = append(children[parent], p)
		}
	}
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// marked are the processes that carry the mark, without zombies and ourselves.
func marked(mark string) []int {
	want := []byte(markName + "=" + mark)
	var found []int
	for _, p := range processes() {
		if hasMark(p, want) {
			found = append(found, p)
		}
	}
	return found
}

func hasMark(pid int, want []byte) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(v, want) {
			return true
		}
	}
	return false
}

func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat gives parent and start time (in ticks since boot) of a living process.
func stat(pid int) (parent int, start string, ok bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, "", false
	}
	// the name may hold spaces and parentheses; the fields start after the last one
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 || string(f[0]) == "Z" {
		return 0, "", false
	}
	parent, err = strconv.Atoi(string(f[1]))
	return parent, string(f[19]), err == nil
}

// process names one process for good: a number that is used again has another start time.
type processID struct {
	pid   int
	start string
}

func identify(pids []int) []processID {
	var out []processID
	for _, p := range pids {
		if _, start, ok := stat(p); ok {
			out = append(out, processID{p, start})
		}
	}
	return out
}

func (p processID) alive() bool {
	_, start, ok := stat(p.pid)
	return ok && start == p.start
}

// kill ends the process through a descriptor, so that it cannot hit another one with its number.
func (p processID) kill() {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if p.alive() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// sweep kills known processes and all with the mark until none is left, for at most limit. It returns how many it killed.
func sweep(mark string, known []processID, limit time.Duration) int {
	killed := map[processID]bool{}
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		left := identify(marked(mark))
		for _, k := range known {
			if k.alive() {
				left = append(left, k)
			}
		}
		if len(left) == 0 {
			break
		}
		for _, p := range left {
			p.kill()
			killed[p] = true
		}
	}
	return len(killed)
}
