package tool

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// markName is a variable that all descendants of a command inherit. It finds those that have left its process group.
const markName = "NANOCLAW_JOB"

// sweep kills every process whose mark begins with mark, and every descendant of those in roots, until none is left, for at most
// limit.
func sweep(mark string, roots []int, limit time.Duration) {
	known := map[process]bool{}
	for _, p := range descendants(roots) {
		known[p] = true
	}
	want := []byte(markName + "=" + mark)
	for end := time.Now().Add(limit); ; {
		left := 0
		for _, p := range processes() {
			if !known[p] && !hasMark(p.pid, want) {
				continue
			}
			for _, d := range append(descendants([]int{p.pid}), p) {
				known[d] = true
				d.kill()
				left++
			}
		}
		if left == 0 || time.Now().After(end) {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// process names one process for good: a number that is used again has another start time.
type process struct {
	pid   int
	start string
}

// kill ends the process through a descriptor, so that it cannot hit another one with its number.
func (p process) kill() {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if _, start, ok := stat(p.pid); ok && start == p.start {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

func descendants(roots []int) []process {
	children := map[int][]process{}
	for _, p := range processes() {
		if parent, _, ok := stat(p.pid); ok {
			children[parent] = append(children[parent], p)
		}
	}
	var found []process
	for _, r := range roots {
		found = append(found, children[r]...)
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// processes are all living ones but ourselves.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var out []process
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if _, start, ok := stat(pid); ok {
			out = append(out, process{pid, start})
		}
	}
	return out
}

func hasMark(pid int, want []byte) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.HasPrefix(v, want) {
			return true
		}
	}
	return false
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
