package program

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/obs"
)

// again is when a zombie that was left alone is looked at once more.
const again = 5 * time.Second

// reap waits for orphans that became children of this process, as they do for pid 1, until ctx ends. The children that the
// program started itself are left to whoever started them: the os package holds a pidfd for each of them from the clone until
// their end was waited for, so a zombie whose pid stands behind one of our pidfds is not an orphan. Without children ending it
// costs nothing.
func reap(ctx context.Context, log *slog.Logger) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
		case <-timer.C:
		}
		if reapOrphans(log) {
			timer.Reset(again)
		}
	}
}

// reapOrphans waits for the orphans among our zombies. It reports whether a zombie was left.
func reapOrphans(log *slog.Logger) (left bool) {
	if !anyZombie() {
		return false
	}
	ended := zombies() // before our own: a child that is started and ends in between must not look like an orphan
	own, err := ownChildren()
	if err != nil { // better a zombie than a stolen exit status
		log.Warn("zombies cannot be told from our own children", obs.Error(err))
		return false
	}
	for _, pid := range ended {
		if own[pid] {
			left = true
			continue
		}
		var status unix.WaitStatus
		if got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err != nil || got != pid {
			left = left || err == nil
		}
	}
	return left
}

// anyZombie asks the kernel without taking anything from anybody.
func anyZombie() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// ownChildren are the pids behind the pidfds of this process.
func ownChildren() (map[int]bool, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	own := map[int]bool{}
	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.Contains(link, "pidfd") {
			continue
		}
		info, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(info)) {
			if v, ok := strings.CutPrefix(line, "Pid:"); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
					own[pid] = true
				}
			}
		}
	}
	return own, nil
}

// zombies are the children of this process that have ended.
func zombies() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	self := strconv.Itoa(os.Getpid())
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// pid (name) state parent …; the name may hold anything.
		_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		fields := strings.Fields(rest)
		if ok && len(fields) > 1 && fields[0] == "Z" && fields[1] == self {
			out = append(out, pid)
		}
	}
	return out
}
