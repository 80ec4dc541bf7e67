package limit

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
)

func TestDetectedMeansHoldsAndIsRemoved(t *testing.T) {
	t.Parallel()
	l := Detect(nil)
	if os.Geteuid() == 0 && l.Means() == Prlimit && os.Getenv("CI") == "true" {
		t.Errorf("root has no better means than %s", l.Means())
	}
	g, err := l.Create(id.New("test"), sandbox.Limits{MemoryBytes: 64 << 20, PIDs: 32, CPUs: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(t.Context(), cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if len(g.Paths) > 0 && !slices.Contains(g.PIDs(), cmd.Process.Pid) {
		t.Errorf("the group holds %v, want %d in it", g.PIDs(), cmd.Process.Pid)
	}
	if g.OOMKilled() {
		t.Error("killed for want of memory")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	g.Remove()
	for _, p := range g.Paths {
		if _, err := os.Stat(p); err == nil && g.Means != Systemd {
			t.Errorf("%s is left", p)
		}
	}
}

func TestNoLimitsNoGroup(t *testing.T) {
	t.Parallel()
	g, err := Detect(nil).Create(id.New("test"), sandbox.Limits{TmpBytes: 1})
	if err != nil || g.Means != None || len(g.Paths) != 0 {
		t.Errorf("%+v, %v", g, err)
	}
	if err := g.Add(t.Context(), os.Getpid()); err != nil {
		t.Error(err)
	}
	g.Remove()
}

func TestPrlimit(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	l := &Limiter{means: Prlimit}
	g, err := l.Create("x", sandbox.Limits{MemoryBytes: 64 << 20, PIDs: 32})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Add(t.Context(), cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	var memory, processes unix.Rlimit
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, nil, &memory); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NPROC, nil, &processes); err != nil {
		t.Fatal(err)
	}
	if memory.Max != 64<<20 || processes.Max < 33 {
		t.Errorf("memory %+v, processes %+v", memory, processes)
	}
}

// The scope is asked for with the limits and the process, and no more.
func TestScopeArguments(t *testing.T) {
	t.Parallel()
	g := &Group{Means: Systemd, Unit: "nanoclaw-x.scope", User: true, Want: sandbox.Limits{MemoryBytes: 1 << 20, PIDs: 7, CPUs: 1.5}}
	want := "--user call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager StartTransientUnit " +
		"ssa(sv)a(sa(sv)) nanoclaw-x.scope fail 7 PIDs au 1 42 CollectMode s inactive-or-failed Description s NanoClaw sandbox " +
		"MemoryMax t 1048576 MemorySwapMax t 0 TasksMax t 7 CPUQuotaPerSecUSec t 1500000 0"
	if diff := cmp.Diff(want, strings.Join(g.scopeArgs(42), " ")); diff != "" {
		t.Error(diff)
	}
}

func TestOOMIsReadInBothFormats(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]bool{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 0\n": false,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n": true,
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n":     true,
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 0\n":     false,
		"": false,
	} {
		for _, name := range []string{"memory.events", "memory.oom_control"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := (&Group{Paths: []string{dir}}).OOMKilled(); got != want {
				t.Errorf("%s %q: %v", name, content, got)
			}
		}
	}
}

func TestParseMount(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]mount{
		`35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory`:                    {"cgroup", "/sys/fs/cgroup/memory", []string{"rw", "memory"}},
		`30 23 0:26 / /sys/fs/cg\040roup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate`:          {"cgroup2", "/sys/fs/cg roup", []string{"rw", "nsdelegate"}},
		`33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct`: {"cgroup", "/sys/fs/cgroup/cpu,cpuacct", []string{"rw", "cpu", "cpuacct"}},
	} {
		if got, ok := parseMount(line); !ok || !cmp.Equal(got, want, cmp.AllowUnexported(mount{})) {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
	for _, line := range []string{"", " - ", "27 1 254:0 / / rw - ext4 /dev/vda rw", "1 2 - cgroup cgroup rw"} {
		if got, ok := parseMount(line); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	f.Add(`35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory`)
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := parseMount(line); ok && m.kind != "cgroup" && m.kind != "cgroup2" {
			t.Errorf("accepted %+v", m)
		}
	})
}

func TestQuotaIsNeverBelowTheKernels(t *testing.T) {
	t.Parallel()
	for cpus, want := range map[float64]int64{0.001: 1000, 0.5: 50_000, 2: 200_000} {
		if got := quota(cpus); got != strconv.FormatInt(want, 10) {
			t.Errorf("%v processors: %s, want %d", cpus, got, want)
		}
	}
}
