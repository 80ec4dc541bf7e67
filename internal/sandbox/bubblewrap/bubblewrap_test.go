package bubblewrap

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/local"
)

// shell is a spec that runs a script and is given nothing.
func shell(t testing.TB, script string) sandbox.Spec {
	t.Helper()
	dir := t.TempDir()
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 62022, 62022
	}
	return sandbox.Spec{Labels: sandbox.Labels{Install: id.New("inst"), AgentGroup: "a", Session: "s", Incarnation: 1},
		Command: []string{"/bin/sh", "-c", script}, Dir: "/tmp", UID: uid, GID: gid, StateDir: filepath.Join(dir, "state"),
		Env: map[string]string{"PATH": "/usr/bin:/bin"}}
}

func runtimeAt(t testing.TB, records string) *Runtime {
	t.Helper()
	need(t)
	r, err := New(Options{RecordsDir: records})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A host that dies between the two writes of its record leaves one without the runner.
func TestRunnerIsRecovered(t *testing.T) {
	t.Parallel()
	records, ctx := t.TempDir(), limited(t)
	s := shell(t, "exec sleep 600")
	started, err := runtimeAt(t, records).Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = started.Stop(ctx, 0) }()
	paths, err := filepath.Glob(filepath.Join(records, "*.json"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("records %v, %v", paths, err)
	}
	var rec local.Record
	b, err := os.ReadFile(paths[0])
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil {
		t.Fatal(err)
	}
	rec.Runner = local.Proc{}
	if b, err = json.Marshal(rec); err == nil {
		err = os.WriteFile(paths[0], b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := runtimeAt(t, records).List(ctx, s.Labels.Install)
	if err != nil || len(found) != 1 || found[0].PID() != started.PID() {
		t.Fatalf("found %d, %v; want process %d", len(found), err, started.PID())
	}
	if err := found[0].Stop(ctx, 0); err != nil {
		t.Fatal(err)
	}
}

// SIGKILL of bubblewrap itself leaves the sandbox running: it must still be found, watched and stopped.
func TestMonitorKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	s := shell(t, "exec sleep 600")
	r := runtimeAt(t, t.TempDir())
	h, err := r.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	monitor := local.Parent(h.PID())
	p, err := local.Identify(monitor)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(monitor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !local.WaitGone(ctx, p, time.Minute) {
		t.Fatal("bubblewrap survives SIGKILL")
	}
	if found, err := r.List(ctx, s.Labels.Install); err != nil || len(found) != 1 {
		t.Fatalf("found %d, %v", len(found), err)
	}
	if _, err := r.Start(ctx, s); !errors.Is(err, sandbox.ErrRunning) {
		t.Errorf("second start: %v", err)
	}
	if err := h.Stop(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if e, err := h.Wait(ctx); err != nil || e.Code != -1 {
		t.Errorf("exit %+v, %v; nobody can know the code", e, err)
	}
}

// A host that dies before it handed over the arguments leaves nothing behind.
func TestUnfedBubblewrapGivesUp(t *testing.T) {
	t.Parallel()
	need(t)
	s := shell(t, "exec sleep 600")
	if err := os.MkdirAll(s.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := openPlumbing(s)
	if err != nil {
		t.Fatal(err)
	}
	program, err := find("")
	if err != nil {
		t.Fatal(err)
	}
	process, _, err := (&driver{program}).spawn(s, p)
	if err != nil {
		t.Fatal(err)
	}
	p.closeChildEnds()
	p.close() // what the kernel does for a dead host
	state, err := process.Wait()
	if err != nil || state.Success() {
		t.Errorf("bubblewrap ended with %v, %v", state, err)
	}
	if pid, _, _ := readStatus(s.StateDir); pid != 0 {
		t.Errorf("it started process %d", pid)
	}
}

// A young runner has no handler yet, and the kernel drops the signal; it must not cost the whole grace.
func TestStopRightAfterStart(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	r := runtimeAt(t, t.TempDir())
	h, err := r.Start(ctx, shell(t, `for i in 1 2 3 4 5 6 7 8; do /usr/bin/true; done; trap 'exit 4' TERM; while :; do sleep 0.01; done`))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(ctx, 40*time.Second); err != nil {
		t.Fatal(err)
	}
	if e, err := h.Wait(ctx); err != nil || e.Code != 4 {
		t.Errorf("exit %+v, %v; want code 4 by SIGTERM", e, err)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	if _, err := New(Options{Program: "/nonexistent/bwrap", RecordsDir: t.TempDir()}); !isClass(err, sandbox.RuntimeUnavailable) {
		t.Errorf("no program: %v", err)
	}
	r := runtimeAt(t, t.TempDir())
	s := shell(t, "exit 0")
	folder := t.TempDir()
	s.Mounts = []sandbox.Mount{{Class: sandbox.ClassExtra, Source: folder, Target: "/workspace/in"},
		{Class: sandbox.ClassExtra, Source: folder, Target: "/workspace/in/no-room"}}
	if _, err := r.Start(ctx, s); !isClass(err, sandbox.SpecInvalid) || !strings.Contains(err.Error(), "no-room") {
		t.Errorf("a mount inside a read-only one: %v", err)
	}
	s = shell(t, "exit 0")
	s.Dir = "/nonexistent"
	h, err := r.Start(ctx, s) // seen by bubblewrap when its mounts are made
	if err == nil {
		var e sandbox.Exit
		if e, err = h.Wait(ctx); e.Code == 0 || !strings.Contains(e.Stderr, "/nonexistent") {
			t.Errorf("a working folder that is not there: %+v, %v", e, err)
		}
	} else if !isClass(err, sandbox.SpecInvalid) {
		t.Errorf("a working folder that is not there: %v", err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Start(over, shell(t, "exit 0")); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that is given up: %v", err)
	}
	if os.Geteuid() != 0 {
		s := shell(t, "exit 0")
		s.UID++
		if _, err := r.Start(ctx, s); !isClass(err, sandbox.Denied) {
			t.Errorf("another uid without root: %v", err)
		}
	}
}

// A start that is given up at any moment leaves no process behind.
func TestGivenUpStartLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	r := runtimeAt(t, t.TempDir())
	mark := id.New("mark")
	given := 0
	for i := range 40 {
		s := shell(t, "exec sleep 600 # "+mark)
		short, cancel := context.WithTimeout(ctx, time.Duration(i)*400*time.Microsecond)
		h, err := r.Start(short, s)
		cancel()
		if err == nil {
			err = h.Stop(ctx, 0)
		} else if given++; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if given == 0 {
		t.Error("no start was given up")
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), mark) {
			t.Errorf("left: %s %s", path, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
}

func isClass(err error, class sandbox.FailureClass) bool {
	var f *sandbox.Failure
	return errors.As(err, &f) && f.Class == class
}

func TestProbe(t *testing.T) {
	t.Parallel()
	need(t)
	if why, err := (Candidate{}).Probe(limited(t)); err != nil || why == "" {
		t.Errorf("%q, %v", why, err)
	}
	if _, err := (Candidate{Program: "/nonexistent/bwrap"}).Probe(limited(t)); err == nil {
		t.Error("a missing program can be used")
	}
}

// Programs of a distribution find their libraries, their links in /etc/alternatives, and the user's name.
func TestProgramsWork(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	r := runtimeAt(t, t.TempDir())
	h, err := r.Start(ctx, shell(t, `set -e; test "$(id -un)" = agent; awk 'BEGIN{exit 0}'; tail -n 1 /etc/hosts >/dev/null; test ! -e /etc/shadow; test ! -e /root; test ! -e /sys; touch /var/tmp/x; exit 42`))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := h.Wait(ctx); err != nil || e.Code != 42 {
		t.Errorf("exit %+v, %v", e, err)
	}
}

func TestEveryTmpfsHasASize(t *testing.T) {
	t.Parallel()
	args := arguments(shell(t, ""), nil)
	for i, a := range args {
		if a == "--tmpfs" && (i < 4 || args[i-4] != "--size") {
			t.Errorf("tmpfs %s has no size", args[i+1])
		}
		if a == "--setenv" || a == "--die-with-parent" {
			t.Errorf("%s is used", a)
		}
	}
}

func TestParseStatus(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]int{
		"":                    {0, 0, 0},
		`{ "child-pid": 12 }`: {12, 0, 0},
		"{\n \"child-pid\": 12\n}\n{ \"exit-code\": 3 }\n": {12, 3, 1},
		`{ "child-pid": 12 } { "exit-c`:                    {12, 0, 0},
		`{ "child-pid": -1 } junk`:                         {0, 0, 0},
	} {
		pid, code, known := parseStatus([]byte(text))
		if got := [3]int{pid, code, map[bool]int{true: 1}[known]}; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("{ \"child-pid\": 12 }\n{ \"exit-code\": 3 }\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if pid, code, known := parseStatus(b); pid < 0 || !known && code != 0 {
			t.Errorf("%d, %d, %v", pid, code, known)
		}
	})
}

// BenchmarkCold is the start of a trivial program up to its end.
func BenchmarkCold(b *testing.B) {
	r := runtimeAt(b, b.TempDir())
	s := shell(b, "")
	s.Command = []string{"/usr/bin/true"}
	for b.Loop() {
		h, err := r.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		if e, err := h.Wait(b.Context()); err != nil || e.Code != 0 {
			b.Fatalf("%+v, %v", e, err)
		}
	}
}

// BenchmarkFloor is bubblewrap alone with a small sandbox of the same namespaces.
func BenchmarkFloor(b *testing.B) {
	need(b)
	args := strings.Fields("--unshare-all --unshare-user --disable-userns --as-pid-1 --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp -- /usr/bin/true")
	for b.Loop() {
		cmd := exec.Command("bwrap", args...)
		cmd.SysProcAttr = unprivileged()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
	}
}
