package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"nanoclaw/internal/config"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/process"
	"nanoclaw/internal/store"
)

// left is a home on which a host that is gone has left a sandbox.
func left(t *testing.T) (s config.Settings, install string, h sandbox.Handle) {
	t.Helper()
	s = config.Settings{Home: t.TempDir(), SandboxUID: 62018}
	install, err := installID(s.Home)
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := sandboxUser(s)
	r := process.New(process.Options{RecordsDir: filepath.Join(s.Home, "run", "sandboxes")})
	h, err = r.Start(t.Context(), sandbox.Spec{
		Labels:  sandbox.Labels{Install: install, AgentGroup: "ag-1", Session: id.New("sess"), Incarnation: 1},
		Command: []string{"/bin/sleep", "600"}, Dir: "/", UID: uid, GID: gid, StateDir: filepath.Join(s.Home, "state"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Stop(context.Background(), 0) })
	return s, install, h
}

func ended(t *testing.T, h sandbox.Handle) {
	t.Helper()
	if _, err := h.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// A host that was killed leaves its sandboxes running: stop ends them without it, and keeps off a home that has a host.
func TestStopLeft(t *testing.T) {
	t.Parallel()
	if n, err := StopLeft(t.Context(), config.Settings{Home: t.TempDir()}, obs.Discard()); n != 0 || err != nil {
		t.Errorf("an empty home: %d, %v", n, err)
	}
	s, _, h := left(t)
	lock, err := store.AcquireLock(s.Home, "v1")
	if err != nil {
		t.Fatal(err)
	}
	var locked *store.LockedError
	if n, err := StopLeft(t.Context(), s, obs.Discard()); n != 0 || !errors.As(err, &locked) {
		t.Errorf("beside a host: %d, %v", n, err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		if n, err := StopLeft(t.Context(), s, obs.Discard()); n != want || err != nil {
			t.Errorf("ended %d, %v; want %d", n, err, want)
		}
	}
	ended(t, h)
}

// A host that starts another kind of sandbox than the one before ends what that one left: its own runtime cannot see it.
func TestSandboxesOfAnotherKindAreEnded(t *testing.T) {
	t.Parallel()
	s, install, box := left(t)
	st, err := store.Open(t.Context(), s.Home)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	as := func(kind string) {
		h := &Host{opt: Options{Settings: s}, log: obs.Discard(), store: st, install: install, runtime: named{name: kind}}
		if err := h.endForeign(t.Context()); err != nil {
			t.Error(kind, err)
		}
	}
	alive := func() bool {
		_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(box.PID()), "exe"))
		return err == nil
	}
	as(sandbox.Process)
	as(sandbox.Process)
	if !alive() {
		t.Fatal("a host of the same kind ended what it should adopt")
	}
	as(sandbox.Bubblewrap)
	ended(t, box)
}
