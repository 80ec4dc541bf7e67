package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/sandboxtest/ask"
)

// testInside looks around in one sandbox.
func testInside(t *testing.T, b *bench) {
	s := b.session(t)
	h, l := s.start(t)
	r := l.must(t, ask.Question{Do: ask.Tell}).Report
	checkMounts(t, s, l)
	checkNetwork(t, l, r)
	checkProcesses(t, s, h, r)
	checkIdentity(t, s, h, r)
	checkSystem(t, s, r)
}

func checkMounts(t *testing.T, s *session, l *link) {
	t.Helper()
	for _, path := range []string{"/workspace/in/x", "/workspace/in/inbound.db", "/workspace/inbox/x", "/run/nanoclaw-host/x",
		"/workspace/agent/container.json", "/workspace/extra/folder/x", "/opt/nanoclaw/probe", "/opt/nanoclaw/x", "/x", "/workspace/x",
		"/home/x", "/usr/x", "/usr/bin/x", "/etc/x", "/etc/passwd", "/dev/x"} {
		if a := l.must(t, ask.Question{Do: ask.Write, Path: path}); a.Error == "" {
			t.Errorf("%s can be written", path)
		}
	}
	for _, path := range []string{"/workspace/out/x", "/home/agent/x", "/workspace/agent/x", "/tmp/x", "/run/x"} {
		if a := l.must(t, ask.Question{Do: ask.Write, Path: path}); a.Error != "" {
			t.Errorf("%s cannot be written: %s", path, a.Error)
		}
	}
	for path, want := range map[string]string{"/workspace/in/inbound.db": "in/inbound.db", "/workspace/agent/container.json": "in/container.json"} {
		if a := l.must(t, ask.Question{Do: ask.Read, Path: path}); a.Text != want {
			t.Errorf("%s holds %q (%s), want %q", path, a.Text, a.Error, want)
		}
	}
	if os.Geteuid() == 0 {
		if a := l.must(t, ask.Question{Do: ask.Read, Path: "/workspace/extra/folder/secret"}); a.Error == "" {
			t.Error("a file of root's with mode 0600 can be read")
		}
	}
	if b, err := os.ReadFile(filepath.Join(s.dir, "in", "inbound.db")); err != nil || string(b) != "in/inbound.db" {
		t.Errorf("the host's own file was changed: %q, %v", b, err)
	}
}

func checkNetwork(t *testing.T, l *link, r ask.Report) {
	t.Helper()
	if len(r.Interfaces) != 1 || r.Interfaces[0] != "lo" {
		t.Errorf("interfaces that are up: %q, want lo alone", r.Interfaces)
	}
	if len(r.Addresses) > 0 {
		t.Errorf("addresses beyond loopback: %q", r.Addresses)
	}
	if len(r.Routes) > 0 {
		t.Errorf("routes: %q", r.Routes)
	}
	if a := l.must(t, ask.Question{Do: ask.Dial, Path: "192.0.2.1:80"}); !strings.Contains(a.Error, syscall.ENETUNREACH.Error()) {
		t.Errorf("dialling out: %q, want %q", a.Error, syscall.ENETUNREACH.Error())
	}
}

func checkProcesses(t *testing.T, s *session, h sandbox.Handle, r ask.Report) {
	t.Helper()
	probes := 0
	for _, line := range r.Processes {
		if strings.HasPrefix(line, s.spec.Command[0]+" ") {
			probes++
		}
		if strings.Contains(line, filepath.Base(os.Args[0])) {
			t.Errorf("the host's process is visible: %s", line)
		}
	}
	if probes == 0 || len(r.Processes) > probes+1 {
		t.Errorf("processes inside: %q, want the probe and at most an init", r.Processes)
	}
	// What started it on the outside must not tell more than the command.
	for pid := h.PID(); pid > 1 && pid != os.Getpid(); pid = parent(pid) {
		line := commandLine(pid)
		for _, m := range s.spec.Mounts {
			if strings.Contains(line, m.Source) {
				t.Errorf("the command line of process %d shows a path of the host: %s", pid, line)
			}
		}
		for k, v := range s.spec.Env {
			if strings.Contains(line, k+"="+v) || k == "NOTE" && strings.Contains(line, v) {
				t.Errorf("the command line of process %d shows a variable: %s", pid, line)
			}
		}
	}
}

func checkIdentity(t *testing.T, s *session, h sandbox.Handle, r ask.Report) {
	t.Helper()
	if r.UID == 0 || r.GID == 0 || slices.Contains(r.Groups, 0) {
		t.Errorf("uid %d, gid %d, groups %v: root inside", r.UID, r.GID, r.Groups)
	}
	if r.UID != s.b.UID || r.GID != s.b.GID {
		t.Errorf("uid:gid %d:%d, want %d:%d", r.UID, r.GID, s.b.UID, s.b.GID)
	}
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if strings.Trim(r.Status[name], "0") != "" || r.Status[name] == "" {
			t.Errorf("%s is %q, want none", name, r.Status[name])
		}
	}
	if r.Status["NoNewPrivs"] != "1" {
		t.Errorf("NoNewPrivs is %q", r.Status["NoNewPrivs"])
	}
	if len(r.UIDMap) == 0 {
		t.Error("no uid map inside")
	}
	if h.PID() == 0 {
		return
	}
	// The map as seen from here: inside, the outer column may be counted in a namespace between.
	uidMap, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", h.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(uidMap)) {
		f := strings.Fields(line)
		everything := len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295" // no namespace of its own
		if len(f) != 3 || f[1] == "0" && !everything {
			t.Errorf("uid map %q reaches uid 0 outside", line)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			for _, f := range strings.Fields(ids) {
				if f != strconv.Itoa(s.b.UID) {
					t.Errorf("the kernel's uids of the runner are %s, want %d", ids, s.b.UID)
				}
			}
		}
	}
}

func checkSystem(t *testing.T, s *session, r ask.Report) {
	t.Helper()
	if r.Dir != s.spec.Dir {
		t.Errorf("working folder %q, want %q", r.Dir, s.spec.Dir)
	}
	for _, name := range []string{"shadow", "gshadow", "ssh", "sudoers", "machine-id"} {
		if b, err := os.ReadFile("/etc/" + name); err == nil && len(b) > 0 && slices.Contains(r.Etc, name) && s.b.Image == "" {
			t.Errorf("/etc/%s of the host is inside", name)
		}
	}
	if own, err := os.ReadFile("/etc/passwd"); err == nil && string(own) == r.Passwd {
		t.Error("/etc/passwd is the host's")
	}
	home, err := os.ReadDir("/home")
	if err == nil {
		for _, e := range home {
			if slices.Contains(r.Root, e.Name()) {
				t.Errorf("/%s is inside", e.Name())
			}
		}
	}
}

// testOwnership looks at the files of a sandbox from the outside.
func testOwnership(t *testing.T, b *bench) {
	s := b.session(t)
	_, l := s.start(t)
	if a := l.must(t, ask.Question{Do: ask.Write, Path: s.inside("/workspace/out/made")}); a.Error != "" {
		t.Fatal(a.Error)
	}
	for path, want := range map[string]struct {
		uid, gid int
		mode     os.FileMode
	}{
		"out/made":          {b.UID, b.GID, 0o600},
		"out":               {b.UID, b.GID, 0o700},
		"group":             {b.UID, b.GID, 0o700},
		"in":                {os.Getuid(), b.GID, 0o750},
		"in/inbound.db":     {os.Getuid(), b.GID, 0o640},
		"run":               {os.Getuid(), b.GID, 0o750},
		"run/" + socketName: {os.Getuid(), b.GID, 0o660},
	} {
		st, err := os.Lstat(filepath.Join(s.dir, path))
		if err != nil {
			t.Fatal(err)
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok || int(sys.Uid) != want.uid || int(sys.Gid) != want.gid || st.Mode().Perm() != want.mode {
			t.Errorf("%s is %d:%d %o, want %d:%d %o", path, sys.Uid, sys.Gid, st.Mode().Perm(), want.uid, want.gid, want.mode)
		}
	}
}

// testEnvironment compares the variables inside with the spec's. A runtime may add what says where and who one is.
func testEnvironment(t *testing.T, b *bench) {
	s := b.session(t)
	_, l := s.start(t)
	got := map[string]string{}
	for _, v := range l.must(t, ask.Question{Do: ask.Tell}).Report.Env {
		k, v, _ := strings.Cut(v, "=")
		got[k] = v
	}
	for k, v := range s.spec.Env {
		if got[k] != v {
			t.Errorf("%s=%q inside, want %q", k, got[k], v)
		}
	}
	for k, v := range got {
		if _, given := s.spec.Env[k]; !given && k != "HOSTNAME" && (k != "PWD" || v != s.spec.Dir) {
			t.Errorf("%s=%q is inside and was not given", k, v)
		}
	}
}

func testCredentialRefused(t *testing.T, b *bench) {
	const marker = "sk-ant-REDACTED-0123456789"
	for name, env := range map[string][2]string{"by name": {"SOME_API_KEY", "plain-marker-value"}, "by value": {"HARMLESS", marker}} {
		s := b.session(t)
		s.spec.Env[env[0]] = env[1]
		h, err := b.runtime.Start(b.ctx, s.spec)
		var f *sandbox.Failure
		if !errors.As(err, &f) || f.Class != sandbox.SpecInvalid {
			t.Errorf("%s: error %v, want a failure of class %s", name, err, sandbox.SpecInvalid)
		}
		if h != nil {
			t.Errorf("%s: started", name)
		}
		if err != nil && (strings.Contains(err.Error(), env[1]) || !strings.Contains(err.Error(), env[0])) {
			t.Errorf("%s: the error must name the variable and not its value: %v", name, err)
		}
	}
}

// testDescriptors gives the host a descriptor that children would inherit.
func testDescriptors(t *testing.T, b *bench) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	// Without close-on-exec, as one inherited from a careless parent, and beyond the numbers a runtime hands on itself.
	careless, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(careless) }()
	inherited, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", careless))
	if err != nil {
		t.Fatal(err)
	}
	s := b.session(t)
	_, l := s.start(t)
	for _, d := range l.must(t, ask.Question{Do: ask.Tell}).Report.Descriptors {
		if strings.HasSuffix(d, " "+inherited) {
			t.Errorf("a descriptor of the host is open inside: %s", d)
		}
	}
}

func testTmpSize(t *testing.T, b *bench) {
	const size = 4 << 20
	s := b.session(t)
	s.spec.Limits.TmpBytes = size
	_, l := s.start(t)
	for _, path := range []string{"/tmp/fill", "/run/fill"} {
		a := l.must(t, ask.Question{Do: ask.Fill, Path: path, N: 4 * size})
		if a.Error == "" || a.N > size {
			t.Errorf("%s took %d bytes (%s), want at most %d", path, a.N, a.Error, size)
		}
	}
	if a := l.must(t, ask.Question{Do: ask.Fill, Path: "/dev/shm/fill", N: 256 << 20}); a.Error == "" {
		t.Errorf("/dev/shm took %d bytes", a.N)
	}
}

func testForkBomb(t *testing.T, b *bench) {
	const most = 40
	s := b.session(t)
	s.spec.Limits.PIDs = most
	h, l := s.start(t)
	a := l.must(t, ask.Question{Do: ask.Fork, N: 10 * most, Mark: id.New("bomb")})
	if a.Error == "" || a.N >= most || a.N == 0 {
		t.Errorf("%d processes (%s), want fewer than %d", a.N, a.Error, most)
	}
	l.must(t, ask.Question{Do: ask.Ping})
	if err := h.Stop(b.ctx, patience); err != nil {
		t.Error(err)
	}
}

func testMemoryHog(t *testing.T, b *bench) {
	const most = 64 << 20
	s := b.session(t)
	s.spec.Limits.MemoryBytes = most
	h, l := s.start(t)
	if a := l.must(t, ask.Question{Do: ask.Hog, N: most / 4}); a.N != most/4 {
		t.Fatalf("%d bytes within the limit: %+v", most/4, a)
	}
	if a, ok := l.ask(t, ask.Question{Do: ask.Hog, N: 4 * most}); ok {
		t.Fatalf("used %d bytes, limit %d", a.N, most)
	}
	if e := b.wait(t, h); !e.OOM || e.Code == 0 {
		t.Errorf("exit %+v, want one for lack of memory", e)
	}
}

func testCPU(t *testing.T, b *bench) {
	s := b.session(t)
	s.spec.Limits.CPUs = 0.25
	_, l := s.start(t)
	const window = 1000
	if a := l.must(t, ask.Question{Do: ask.Spin, N: window}); a.N > window/2 {
		t.Errorf("%d ms of cpu time in %d ms, limit is a quarter of one processor", a.N, window)
	}
}

func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	p, _ := strconv.Atoi(f[1])
	return p
}
