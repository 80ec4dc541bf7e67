package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
)

// testImage is made by scripts/test-image.
const testImage = "nanoclaw-agent:test"

// testUID owns the folders of test sandboxes when the tests run as root.
const testUID = 62019

// daemon gives a runtime on a real daemon (DOCKER_HOST names another one) and the id of an install of the test's own, whose
// containers are gone when the test ends.
func daemon(t testing.TB) (*Runtime, string) {
	t.Helper()
	r, err := New(Options{Image: testImage, Log: obs.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if ok, image, detail := r.Available(ctx); !ok || !image {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s (scripts/start-docker, scripts/test-image)", detail)
		}
		t.Skipf("%s (scripts/start-docker, scripts/test-image)", detail)
	}
	install := id.New("test")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		all, err := r.containers(ctx, install)
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
		for _, c := range all {
			if err := r.remove(ctx, c.ID); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
		_ = r.Close()
	})
	return r, install
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// shell is a spec whose sandbox runs a script with the folders of a session around it.
func shell(t testing.TB, install, script string) (spec sandbox.Spec, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, sub := range []string{"in", "out", "home", "run", "group", "state"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "in", "container.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = testUID, testUID
	}
	spec = sandbox.Spec{
		Labels:  sandbox.Labels{Install: install, AgentGroup: "ag-test", Session: id.New(id.PrefixSession), Incarnation: 7},
		Command: []string{"/bin/sh", "-c", script},
		Dir:     "/workspace/agent",
		Mounts: []sandbox.Mount{
			{Class: sandbox.ClassHostBox, Source: filepath.Join(dir, "in"), Target: "/workspace/in"},
			{Class: sandbox.ClassAgent, Source: filepath.Join(dir, "out"), Target: "/workspace/out", Writable: true},
			{Class: sandbox.ClassAgent, Source: filepath.Join(dir, "home"), Target: "/home/agent", Writable: true},
			{Class: sandbox.ClassHostBox, Source: filepath.Join(dir, "run"), Target: "/run/nanoclaw-host"},
			{Class: sandbox.ClassAgent, Source: filepath.Join(dir, "group"), Target: "/workspace/agent", Writable: true},
			{Class: sandbox.ClassConfig, Source: filepath.Join(dir, "in", "container.json"), Target: "/workspace/agent/container.json"},
		},
		Env:      map[string]string{"HOME": "/home/agent", "TZ": "UTC"},
		Limits:   sandbox.Limits{MemoryBytes: 128 << 20, PIDs: 64, CPUs: 1, TmpBytes: 4 << 20},
		Network:  sandbox.NetworkNone,
		UID:      uid,
		GID:      gid,
		StateDir: filepath.Join(dir, "state"),
	}
	if err := sandbox.Prepare(spec); err != nil {
		t.Fatal(err)
	}
	return spec, dir
}

func start(t testing.TB, r *Runtime, spec sandbox.Spec) sandbox.Handle {
	t.Helper()
	h, err := r.Start(deadline(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func absent(t *testing.T, r *Runtime, l sandbox.Labels) {
	t.Helper()
	_, err := r.api.ContainerInspect(deadline(t), containerName(l), client.ContainerInspectOptions{})
	if err == nil {
		t.Errorf("the container of session %s is still there", l.Session)
	}
}

func failureClass(err error) sandbox.FailureClass {
	var f *sandbox.Failure
	if errors.As(err, &f) {
		return f.Class
	}
	return ""
}

func TestInside(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	spec, dir := shell(t, install, `
exec 2>&1 >/workspace/out/report
say() { printf '%s=' "$1"; shift; "$@" 2>&1 | tr '\n' ' '; echo; }
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name=yes"; else echo "$name=no"; fi; }
say id id -u; say gid id -G; say name id -un; say pwd pwd; say home sh -c 'echo ~'
say caps grep -h CapBnd /proc/self/status; say eff grep -h CapEff /proc/self/status; say nnp grep -h NoNewPrivs /proc/self/status
say pid1 sh -c 'tr "\0" " " </proc/1/cmdline | head -c 10'
say links sh -c 'cd /sys/class/net && ls'
say routes sh -c 'tail -n +2 /proc/net/route | wc -l'
try root touch /x; try etc touch /etc/x; try workspace touch /workspace/x
try in touch /workspace/in/x; try run touch /run/nanoclaw-host/x; try config sh -c 'echo x >/workspace/agent/container.json'
try out touch /workspace/out/x; try homedir touch /home/agent/x; try agent touch /workspace/agent/x
try ownrun mkdir /run/nanoclaw; try tmp touch /tmp/x; try tmpfull dd if=/dev/zero of=/tmp/y bs=1M count=6
try runfull dd if=/dev/zero of=/run/y bs=1M count=6; try shmfull dd if=/dev/zero of=/dev/shm/y bs=1M count=6
say env sh -c 'env | cut -d= -f1 | sort'
say files sh -c 'ulimit -n'
`)
	h := start(t, r, spec)
	exit, err := h.Wait(deadline(t))
	if err != nil || exit.Code != 0 {
		t.Fatalf("exit %+v, %v", exit, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "out", "report"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[k] = strings.Join(strings.Fields(v), " ")
	}
	for k, want := range map[string]string{
		"id": itoa(spec.UID), "gid": itoa(spec.GID), "name": "agent", "pwd": "/workspace/agent", "home": "/home/agent",
		"caps": "CapBnd: 0000000000000000", "eff": "CapEff: 0000000000000000", "nnp": "NoNewPrivs: 1", "pid1": "/bin/sh -c",
		"links": "lo", "routes": "0",
		"root": "no", "etc": "no", "workspace": "no", "in": "no", "run": "no", "config": "no",
		"out": "yes", "homedir": "yes", "agent": "yes", "ownrun": "yes", "tmp": "yes", "tmpfull": "no", "runfull": "no", "shmfull": "no",
		"files": itoa(openFiles),
	} {
		if got[k] != want {
			t.Errorf("%s: got %q, want %q", k, got[k], want)
		}
	}
	for _, name := range strings.Fields(got["env"]) {
		switch name {
		case "HOME", "TZ", "PATH", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "container", "TERM":
		default:
			t.Errorf("variable %s inside comes from nowhere", name)
		}
	}
	absent(t, r, spec.Labels)
}

func TestEnds(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	for name, c := range map[string]struct {
		script string
		want   sandbox.Exit
	}{
		"code":   {"echo noise; echo first >&2; echo last words >&2; exit 3", sandbox.Exit{Code: 3, Stderr: "first\nlast words\n"}},
		"signal": {"sh -c 'kill -KILL $$'; exit 137", sandbox.Exit{Code: -1, Signal: "SIGKILL"}},
		"memory": {"tail /dev/zero; exit 137", sandbox.Exit{Code: -1, Signal: "SIGKILL", OOM: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, _ := shell(t, install, c.script)
			h := start(t, r, spec)
			got, err := h.Wait(deadline(t))
			if err != nil {
				t.Fatal(err)
			}
			if name == "memory" && r.known.podman && r.known.cgroup == "1" {
				got.OOM = true // not reported there
			}
			if name != "code" { // the shell comments on what happened to its child
				got.Stderr = ""
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if again, err := h.Wait(deadline(t)); err != nil || again.Code != got.Code {
				t.Errorf("the second Wait says %+v, %v", again, err)
			}
			absent(t, r, spec.Labels)
		})
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
		want   sandbox.Exit
	}{
		"polite":   {"trap 'exit 0' TERM; touch /workspace/out/up; sleep 60 & wait", 20 * time.Second, sandbox.Exit{}},
		"stubborn": {"trap '' TERM; touch /workspace/out/up; sleep 60 & wait; wait", 300 * time.Millisecond, sandbox.Exit{Code: -1, Signal: "SIGKILL"}},
		"at once":  {"trap 'exit 0' TERM; touch /workspace/out/up; sleep 60 & wait", 0, sandbox.Exit{Code: -1, Signal: "SIGKILL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, dir := shell(t, install, c.script)
			h := start(t, r, spec)
			await(t, filepath.Join(dir, "out", "up"))
			pid := h.PID()
			begin := time.Now()
			if err := h.Stop(deadline(t), c.grace); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("stopping took %v", took)
			}
			if _, err := os.Stat("/proc/" + itoa(pid)); pid == 0 || err == nil {
				t.Errorf("process %d of the stopped sandbox still exists", pid)
			}
			exit, err := h.Wait(deadline(t))
			exit.Stderr = ""
			if err != nil || exit != c.want {
				t.Errorf("got %+v, %v, want %+v", exit, err, c.want)
			}
			absent(t, r, spec.Labels)
			if err := h.Stop(deadline(t), time.Second); err != nil {
				t.Errorf("stopping twice: %v", err)
			}
		})
	}
}

func TestOneSandboxPerSession(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	other, _ := daemon(t) // as another process would have it
	spec, _ := shell(t, install, "sleep 60")
	const starters = 6
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won []sandbox.Handle
	for i := range starters {
		rt := r
		if i%2 == 1 {
			rt = other
		}
		wg.Go(func() {
			h, err := rt.Start(deadline(t), spec)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, h)
			} else if !errors.Is(err, sandbox.ErrRunning) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d of %d starts won", len(won), starters)
	}
	if err := won[0].Stop(deadline(t), 0); err != nil {
		t.Fatal(err)
	}
	h := start(t, other, spec)
	if err := h.Stop(deadline(t), 0); err != nil {
		t.Error(err)
	}
}

func TestAdoption(t *testing.T) {
	t.Parallel()
	first, install := daemon(t)
	spec, dir := shell(t, install, "trap 'exit 5' TERM; touch /workspace/out/up; sleep 60 & wait")
	h := start(t, first, spec)
	await(t, filepath.Join(dir, "out", "up"))
	dead, _ := shell(t, install, "exit 1")
	start(t, first, dead)
	foreign, _ := shell(t, id.New("test"), "sleep 60")
	stranger := start(t, first, foreign)
	defer func() {
		if err := stranger.Stop(deadline(t), 0); err != nil {
			t.Error(err)
		}
	}()

	second, err := New(Options{Image: testImage})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	var found []sandbox.Handle
	for until := time.Now().Add(20 * time.Second); ; { // the short one needs a moment to die
		if found, err = second.List(deadline(t), install); err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 || time.Now().After(until) {
			break
		}
	}
	if len(found) != 1 || found[0].Labels() != spec.Labels {
		t.Fatalf("found %d sandboxes, the first %+v", len(found), found[0].Labels())
	}
	absent(t, second, dead.Labels)
	if found[0].PID() != h.PID() || h.PID() == 0 {
		t.Errorf("the adopted process is %d, the started one %d", found[0].PID(), h.PID())
	}
	if err := found[0].Stop(deadline(t), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if exit, err := found[0].Wait(deadline(t)); err != nil || exit.Code != 5 {
		t.Errorf("the adopter sees %+v, %v", exit, err)
	}
	if _, err := h.Wait(deadline(t)); err != nil {
		t.Errorf("the starter does not see the end: %v", err)
	}
	if again, err := second.List(deadline(t), foreign.Labels.Install); err != nil || len(again) != 1 {
		t.Errorf("the sandbox of another install: %d found, %v", len(again), err)
	}
}

func TestDeadSandboxMakesRoom(t *testing.T) {
	t.Parallel()
	first, install := daemon(t)
	spec, _ := shell(t, install, "exit 1")
	h := start(t, first, spec)
	second, _ := daemon(t)
	var err error
	var next sandbox.Handle
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		if next, err = second.Start(deadline(t), spec); !errors.Is(err, sandbox.ErrRunning) {
			break
		}
	}
	if err != nil {
		t.Fatalf("the session of a dead sandbox cannot start: %v", err)
	}
	if _, err := next.Wait(deadline(t)); err != nil {
		t.Error(err)
	}
	if _, err := h.Wait(deadline(t)); err != nil {
		t.Errorf("the first handle: %v", err)
	}
}

func TestNameTakenByAStranger(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	spec, _ := shell(t, install, "exit 0")
	opt := client.ContainerCreateOptions{Name: containerName(spec.Labels), Config: &container.Config{Image: testImage, Cmd: []string{"true"}}}
	c, err := r.api.ContainerCreate(deadline(t), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.remove(deadline(t), c.ID) }()
	if _, err := r.Start(deadline(t), spec); failureClass(err) != sandbox.Denied {
		t.Errorf("got %v", err)
	}
	if _, err := r.api.ContainerInspect(deadline(t), c.ID, client.ContainerInspectOptions{}); err != nil {
		t.Errorf("the stranger's container was touched: %v", err)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		opt    Options
		class  sandbox.FailureClass
		hint   string
	}{
		"no image":    {func(s *sandbox.Spec) { s.Image = "nanoclaw-nowhere.invalid/none:none" }, Options{}, sandbox.ImageUnavailable, "image build"},
		"no command":  {func(s *sandbox.Spec) { s.Command = []string{"/no/such/program"} }, Options{}, sandbox.SpecInvalid, "command"},
		"root":        {func(s *sandbox.Spec) { s.UID = 0 }, Options{}, sandbox.SpecInvalid, ""},
		"OCI runtime": {func(*sandbox.Spec) {}, Options{Image: testImage, Runtime: "no-such-runtime"}, sandbox.SpecInvalid, "docker.runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := r
			if c.opt.Runtime != "" {
				var err error
				if rt, err = New(c.opt); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = rt.Close() }()
			}
			spec, _ := shell(t, install, "exit 0")
			c.change(&spec)
			_, err := rt.Start(deadline(t), spec)
			if failureClass(err) != c.class || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("got %v, want class %s and a hint with %q", err, c.class, c.hint)
			}
			absent(t, r, spec.Labels)
		})
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	for _, after := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond, 90 * time.Millisecond, 160 * time.Millisecond} {
		spec, _ := shell(t, install, "sleep 60")
		ctx, cancel := context.WithTimeout(context.Background(), after)
		h, err := r.Start(ctx, spec)
		cancel()
		if err == nil {
			if err := h.Stop(deadline(t), 0); err != nil {
				t.Error(err)
			}
			continue
		}
		if failureClass(err) != sandbox.RuntimeUnavailable {
			t.Errorf("cancelled after %v: %v", after, err)
		}
		absent(t, r, spec.Labels)
	}
}

func TestSurvivesItsRuntime(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	spec, dir := shell(t, install, "touch /workspace/out/up; while :; do sleep 0.05; [ -e /workspace/in/go ] && exit 9; done")
	own, err := New(Options{Image: testImage})
	if err != nil {
		t.Fatal(err)
	}
	start(t, own, spec)
	await(t, filepath.Join(dir, "out", "up"))
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := r.List(deadline(t), install)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %d, %v", len(found), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "in", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if exit, err := found[0].Wait(deadline(t)); err != nil || exit.Code != 9 {
		t.Errorf("got %+v, %v", exit, err)
	}
}
