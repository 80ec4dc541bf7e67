package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
)

func shell(t *testing.T, script string) (spec sandbox.Spec, dir string) {
	t.Helper()
	dir = t.TempDir() // 0700 of its owner: as root, another uid cannot enter it
	for _, sub := range []string{"out", "group"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "group"), filepath.Join(dir, "agent")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("host"), 0o600); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 62023, 62023
	}
	spec = sandbox.Spec{Labels: sandbox.Labels{Install: id.New("inst"), AgentGroup: "a", Session: "s", Incarnation: 1},
		Command: []string{"/bin/sh", "-c", script, "sh", dir}, Dir: filepath.Join(dir, "out"), UID: uid, GID: gid,
		StateDir: filepath.Join(dir, "state"), Env: map[string]string{"PATH": "/usr/bin:/bin"},
		Mounts: []sandbox.Mount{
			{Class: sandbox.ClassAgent, Source: filepath.Join(dir, "out"), Target: "/workspace/out", Writable: true},
			{Class: sandbox.ClassAgent, Source: filepath.Join(dir, "group"), Target: "/workspace/agent", Writable: true},
		}}
	if err := sandbox.Prepare(spec); err != nil {
		t.Fatal(err)
	}
	return spec, dir
}

func run(t *testing.T, spec sandbox.Spec) sandbox.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := New(Options{RecordsDir: t.TempDir()}).Start(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	e, err := h.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The command reaches its folders by their own paths and through the links beside them, below folders it cannot enter.
func TestFoldersAreReached(t *testing.T) {
	t.Parallel()
	spec, dir := shell(t, `set -e; echo x > made; echo y > "$1/agent/linked"; test "$(pwd)" = "$1/out"; test "$(id -u)" != 0; exit 12`)
	if e := run(t, spec); e.Code != 12 {
		t.Fatalf("exit %+v", e)
	}
	for _, path := range []string{"out/made", "group/linked"} {
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
			t.Error(err)
		}
	}
}

func TestRootsFilesStayHidden(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("without root the command is the host's own user")
	}
	spec, _ := shell(t, `if cat "$1/key"; then exit 1; fi; exit 13`)
	if e := run(t, spec); e.Code != 13 {
		t.Errorf("exit %+v", e)
	}
}

func TestSignalIsNamed(t *testing.T) {
	t.Parallel()
	spec, _ := shell(t, `kill -SEGV $$`)
	if e := run(t, spec); e.Code != -1 || e.Signal != "SIGSEGV" {
		t.Errorf("exit %+v", e)
	}
}

func TestBadCommandFailsTheStart(t *testing.T) {
	t.Parallel()
	spec, _ := shell(t, "")
	spec.Command = []string{"/nonexistent/runner"}
	_, err := New(Options{RecordsDir: t.TempDir()}).Start(t.Context(), spec)
	var f *sandbox.Failure
	if !errors.As(err, &f) || f.Class != sandbox.SpecInvalid || !strings.Contains(err.Error(), "/nonexistent/runner") {
		t.Errorf("error %v", err)
	}
}

func TestBarred(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to own folders as another user")
	}
	dir := t.TempDir()
	for _, c := range []struct {
		path     string
		mode     os.FileMode
		uid, gid int
	}{{"open", 0o711, 0, 0}, {"open/own", 0o700, 5, 0}, {"open/own/group", 0o750, 0, 6}, {"open/own/group/shut", 0o750, 0, 0}, {"open/own/group/shut/in", 0o700, 0, 0}} {
		path := filepath.Join(dir, c.path)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, c.uid, c.gid), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"open/x": "", "open/own/x": "", "open/own/group/x": "", "open/own/group/shut/x": "open/own/group/shut", "open/own/group/shut/in/x": "open/own/group/shut",
	} {
		got := barred(filepath.Join(dir, path), 5, 6)
		if want != "" {
			want = filepath.Join(dir, want)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
