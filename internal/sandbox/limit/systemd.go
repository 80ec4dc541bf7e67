package limit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
)

// busctl asks systemd over D-Bus for the transient scope that `systemd-run --scope` would make. The scope takes a process
// that runs already, so nothing of systemd-run's own environment reaches the sandbox.
const busctl = "busctl"

// errNoSystemd: this machine is not run by systemd, or its manager has no controllers for this user.
var errNoSystemd = errors.New("no systemd to ask")

// systemd tries to make a scope around a process of its own: by the system's manager for root, else by the user's.
func systemd() (user bool, err error) {
	if _, err := exec.LookPath(busctl); err != nil {
		return false, errNoSystemd
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return false, errNoSystemd
	}
	user = os.Geteuid() != 0
	if user && !delegated() {
		return user, errNoSystemd
	}
	cmd := exec.Command("sleep", "30")
	if err := cmd.Start(); err != nil {
		return user, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	g := &Group{Means: Systemd, Unit: parent + "-" + id.New("probe") + ".scope", User: user,
		Want: sandbox.Limits{MemoryBytes: 64 << 20, PIDs: 16, CPUs: 1}}
	return user, g.addScope(context.Background(), cmd.Process.Pid)
}

// delegated reports whether the user's manager has the controllers.
func delegated() bool {
	unit := fmt.Sprintf("user.slice/user-%d.slice/user@%d.service", os.Geteuid(), os.Geteuid())
	for _, m := range mounts() {
		if m.kind != "cgroup2" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(m.path, unit, "cgroup.controllers"))
		if err == nil && strings.Contains(string(b), "memory") && strings.Contains(string(b), "pids") {
			return true
		}
	}
	return false
}

func busArgs(user bool, args ...string) []string {
	if user {
		return append([]string{"--user"}, args...)
	}
	return append([]string{"--system"}, args...)
}

// scopeArgs are the arguments of the call that makes the scope around pid.
func (g *Group) scopeArgs(pid int) []string {
	props := [][]string{
		{"PIDs", "au", "1", strconv.Itoa(pid)},
		{"CollectMode", "s", "inactive-or-failed"},
		{"Description", "s", "NanoClaw sandbox"},
	}
	if n := g.Want.MemoryBytes; n > 0 {
		props = append(props, []string{"MemoryMax", "t", strconv.FormatInt(n, 10)}, []string{"MemorySwapMax", "t", "0"})
	}
	if n := g.Want.PIDs; n > 0 {
		props = append(props, []string{"TasksMax", "t", strconv.FormatInt(n, 10)})
	}
	if n := g.Want.CPUs; n > 0 {
		props = append(props, []string{"CPUQuotaPerSecUSec", "t", strconv.FormatInt(int64(n*1e6), 10)})
	}
	args := []string{"call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager",
		"StartTransientUnit", "ssa(sv)a(sa(sv))", g.Unit, "fail", strconv.Itoa(len(props))}
	for _, p := range props {
		args = append(args, p...)
	}
	return busArgs(g.User, append(args, "0")...)
}

// addScope makes the scope and waits, up to five seconds, until the process is in it.
func (g *Group) addScope(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, busctl, g.scopeArgs(pid)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ask systemd for a scope: %w: %s", err, strings.TrimSpace(string(out)))
	}
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			return err
		}
		if strings.Contains(string(b), "/"+g.Unit) {
			g.remember(string(b))
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("systemd did not move the process into its scope")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// remember keeps the folder of the scope, where the end by lack of memory can be read while it exists.
func (g *Group) remember(membership string) {
	for line := range strings.Lines(membership) {
		p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for _, m := range mounts() {
			if m.kind == "cgroup2" {
				g.Paths = []string{filepath.Join(m.path, p)}
				return
			}
		}
	}
}
