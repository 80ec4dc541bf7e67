// Package limit bounds memory, processes and cpu of a sandbox that is a plain process of this machine: by a systemd
// scope, else by cgroup v2 or v1 files where they can be written, else by resource limits (design.md section 4).
package limit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
)

// Means of enforcing limits, as `status` and `doctor` show them.
const (
	Systemd  = "systemd scope"
	CgroupV2 = "cgroup v2"
	CgroupV1 = "cgroup v1"
	// Prlimit bounds the memory of each process and the number of processes of the uid; cpu is not bounded.
	Prlimit = "prlimit"
	None    = "none"
)

// parent is the group that holds those of all sandboxes.
const parent = "nanoclaw"

// Limiter makes groups by the best means there is.
type Limiter struct {
	once  sync.Once
	means string            // settled by once
	roots map[string]string // controller → folder in which groups are made; v2 has the one key ""
	user  bool              // systemd: the user's own manager
	log   *slog.Logger
}

// Detect returns a limiter that looks for a means when it is first asked for one, so that it costs a host's start nothing. It
// tries each means for real and leaves nothing behind.
func Detect(log *slog.Logger) *Limiter {
	if log == nil {
		log = obs.Discard()
	}
	return &Limiter{log: log}
}

func (l *Limiter) settle() {
	if l.means != "" {
		return
	}
	if user, err := systemd(); err == nil {
		l.means, l.user = Systemd, user
		return
	} else if !errors.Is(err, errNoSystemd) {
		l.log.Warn("systemd is here and makes no scope", obs.Error(err))
	}
	if roots, ok := cgroup2(); ok {
		l.means, l.roots = CgroupV2, roots
	} else if roots, ok := cgroup1(); ok {
		l.means, l.roots = CgroupV1, roots
	} else {
		l.means = Prlimit
	}
}

// Off is a limiter that bounds nothing.
func Off() *Limiter { return &Limiter{means: None, log: obs.Discard()} }

// Means names what is in use.
func (l *Limiter) Means() string {
	l.once.Do(l.settle)
	return l.means
}

// Group bounds the processes of one sandbox. It is data, kept in the sandbox's record, so that a later host can read and
// remove it.
type Group struct {
	Means string         `json:"means"`
	Unit  string         `json:"unit,omitempty"`
	User  bool           `json:"user,omitempty"`
	Paths []string       `json:"paths,omitempty"`
	Want  sandbox.Limits `json:"want"`
}

// Create makes the group called name (a safe id), empty. Without any limit it returns a group that does nothing.
func (l *Limiter) Create(name string, want sandbox.Limits) (*Group, error) {
	if want.MemoryBytes == 0 && want.PIDs == 0 && want.CPUs == 0 {
		return &Group{Means: None, Want: want}, nil
	}
	g := &Group{Means: l.Means(), Want: want, User: l.user}
	var err error
	switch l.means {
	case Systemd:
		g.Unit = parent + "-" + name + ".scope"
	case CgroupV2:
		err = g.makeV2(l.roots[""], name)
	case CgroupV1:
		err = g.makeV1(l.roots, name)
	}
	if err != nil {
		g.Remove()
		return nil, &sandbox.Failure{Class: sandbox.ResourcesExhausted, Op: "limit the sandbox by " + l.means, Err: err}
	}
	return g, nil
}

// Add puts a process, and with it all it will start, into the group. The process should not have started anything yet.
func (g *Group) Add(ctx context.Context, pid int) error {
	var err error
	switch g.Means {
	case Systemd:
		err = g.addScope(ctx, pid)
	case CgroupV2, CgroupV1:
		for _, p := range g.Paths {
			err = errors.Join(err, os.WriteFile(filepath.Join(p, "cgroup.procs"), strconv.AppendInt(nil, int64(pid), 10), 0))
		}
	case Prlimit:
		err = g.prlimit(pid)
	}
	if err != nil {
		return fmt.Errorf("put process %d under its limits (%s): %w", pid, g.Means, err)
	}
	return nil
}

// OOMKilled reports whether the kernel killed a process of the group for want of memory; false when that cannot be read.
func (g *Group) OOMKilled() bool {
	for _, p := range g.Paths {
		for _, name := range []string{"memory.events", "memory.oom_control"} {
			b, err := os.ReadFile(filepath.Join(p, name))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(b)) {
				if n, ok := strings.CutPrefix(line, "oom_kill "); ok && strings.TrimSpace(n) != "0" {
					return true
				}
			}
		}
	}
	return false
}

// PIDs are the processes in the group; none when the means keeps no list.
func (g *Group) PIDs() []int {
	var pids []int
	for _, p := range g.Paths {
		b, err := os.ReadFile(filepath.Join(p, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	return nil
}

// Remove takes the group away. Dying processes hold it for a moment: it tries for up to two seconds, and a group that
// stays (or was gone before) does no harm.
func (g *Group) Remove() {
	if g.Means == Systemd {
		return // collected by systemd when its last process ends
	}
	deadline := time.Now().Add(2 * time.Second)
	for _, p := range g.Paths {
		for {
			err := os.Remove(p)
			if err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) || !errors.Is(err, syscall.EBUSY) {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		_ = os.Remove(filepath.Dir(p)) // ours, and refused while another group is in it
	}
}

func (g *Group) make(root, name string) (string, error) {
	path := filepath.Join(root, parent, name)
	var err error
	for range 10 { // the parent may be removed by another host's clean-up in between
		if err = os.MkdirAll(path, 0o755); err == nil {
			g.Paths = append(g.Paths, path)
			return path, nil
		}
	}
	return "", err
}

func set(dir, name, value string) error {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}
