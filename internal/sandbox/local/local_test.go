package local

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a driver whose sandboxes are `sleep`.
type fake struct{ refuse error }

func (fake) Name() string { return "fake" }

func (f fake) Launch(_ context.Context, _ sandbox.Spec, begin func(Child) error) (Child, error) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		return Child{}, err
	}
	p, err := Identify(cmd.Process.Pid)
	c := Child{Process: cmd.Process, Runner: p}
	if err == nil {
		err = begin(c)
	}
	if err == nil {
		err = f.refuse
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	}
	return c, err
}

func (fake) Recover(Record) (Proc, bool) { return Proc{}, false }

func (fake) Members(Record) []Proc { return nil }

func (fake) Exit(Record, *os.ProcessState) sandbox.Exit { return sandbox.Exit{Code: -1} }

func newSet(dir string, d Driver) *Set { return NewSet(d, dir, limit.Off(), obs.Discard()) }

func spec(t *testing.T) sandbox.Spec {
	t.Helper()
	return sandbox.Spec{Labels: sandbox.Labels{Install: "i", AgentGroup: "a", Session: "s", Incarnation: 2}, Command: []string{"/bin/sleep"},
		Dir: "/", UID: 1, GID: 1, StateDir: t.TempDir()}
}

func TestRecordsOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	base := Record{Version: recordVersion, Runtime: "fake", Labels: sandbox.Labels{Install: "i", Session: "s"}, Boot: boot, Runner: self, StateDir: "/state"}
	for name, c := range map[string]struct {
		change func(*Record)
		found  int
		kept   bool
	}{
		"alive":           {func(*Record) {}, 1, true},
		"another boot":    {func(r *Record) { r.Boot = "before" }, 0, false},
		"number reused":   {func(r *Record) { r.Runner.Start-- }, 0, false},
		"no process":      {func(r *Record) { r.Runner = Proc{} }, 0, false},
		"foreign install": {func(r *Record) { r.Labels.Install = "other"; r.Boot = "before" }, 0, true},
		"foreign runtime": {func(r *Record) { r.Runtime = "other"; r.Boot = "before" }, 0, true},
		"newer format":    {func(r *Record) { r.Version++ }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := base
			c.change(&r)
			k := key(r.Runtime, r.Labels.Install, r.Labels.Session)
			if err := writeRecord(dir, k, r); err != nil {
				t.Fatal(err)
			}
			s := newSet(dir, fake{})
			if r.alive(boot) && c.found == 1 { // the test itself is the runner: look, and start no watch that would wait for its end
				if got, err := readRecord(filepath.Join(dir, k+".json")); err != nil || !cmp.Equal(got, r) {
					t.Errorf("read %+v, %v; wrote %+v", got, err, r)
				}
				return
			}
			found, err := s.List(t.Context(), "i")
			if err != nil || len(found) != c.found {
				t.Fatalf("found %d, %v", len(found), err)
			}
			if left, _ := records(dir); (len(left) == 1) != c.kept {
				t.Errorf("%d records are left", len(left))
			}
		})
	}
}

func TestFailedLaunchLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newSet(dir, fake{refuse: os.ErrInvalid})
	if _, err := s.Start(t.Context(), spec(t)); err == nil {
		t.Fatal("started")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

func TestUnreadableRecordFailsClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sp := spec(t)
	path := filepath.Join(dir, key("fake", "i", "s")+".json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSet(dir, fake{})
	if _, err := s.Start(t.Context(), sp); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("start over a record that may name a living sandbox: %v", err)
	}
	if found, err := s.List(t.Context(), "i"); err != nil || len(found) != 0 {
		t.Errorf("list: %d, %v", len(found), err)
	}
}

func TestListKeepsOneHandle(t *testing.T) {
	t.Parallel()
	s := newSet(t.TempDir(), fake{})
	h, err := s.Start(t.Context(), spec(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		found, err := s.List(t.Context(), "i")
		if err != nil || len(found) != 1 || found[0] != h {
			t.Fatalf("list: %v, %v; want the handle of the start", found, err)
		}
	}
	if err := h.Stop(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

func TestZombieIsDead(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("a living process is dead")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !WaitGone(t.Context(), p, time.Minute) {
		t.Error("the end was not noticed")
	}
	if p.Alive() || !p.exists() {
		t.Error("an unreaped process must be dead and still there")
	}
	_ = cmd.Wait()
	if WaitGone(t.Context(), Proc{PID: os.Getpid()}, 0) == false {
		t.Error("a process with another start time is not gone")
	}
}

func TestLogIsCutAsItGrows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var tr trimmer
	stop := tr.watch(LogPath(dir))
	line := bytes.Repeat([]byte("x"), 1023)
	deadline := time.Now().Add(time.Minute)
	for written := 0; ; written += 1024 {
		if _, err := f.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if written > logMax && st.Size() < int64(written)/2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("wrote %d bytes, the file has %d", written, st.Size())
		}
	}
	stop()
	if tr.f != nil {
		t.Error("the descriptor outlives the last log")
	}
	if _, err := f.WriteString("last line\n"); err != nil {
		t.Fatal(err)
	}
	tail := Tail(LogPath(dir))
	if len(tail) > stderrMax || !strings.HasSuffix(tail, "\nlast line\n") || strings.HasPrefix(tail, "xx") && strings.Index(tail, "\n") != 1023 {
		t.Errorf("the tail has %d bytes and is not made of whole lines", len(tail))
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	got, err := parseStat([]byte("42 (a) R (b) S 7 42 40 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 987654 0 0"))
	want := stat{pid: 42, parent: 7, session: 40, state: 'S', start: 987654}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, s := range []string{"", "42", "42 (x", "x (y) S 1 2 3", "42 (x) S a b c d", "0()\x00 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"} {
		if _, err := parseStat([]byte(s)); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) R (b) S 7 42 40 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 987654 0 0"))
	f.Add([]byte("1 ()) R"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStat(b); err == nil && s.state == 0 {
			t.Error("accepted without a state")
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"runtime":"x","labels":{"Install":"i","Session":"s"},"state_dir":"/s","runner":{"pid":1,"start":2}}`))
	f.Add([]byte(`{"version":1,"labels":{"Install":"../x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err == nil && (strings.Contains(r.Labels.Session, "/") || !filepath.IsAbs(r.StateDir)) {
			t.Errorf("accepted %+v", r)
		}
	})
}
