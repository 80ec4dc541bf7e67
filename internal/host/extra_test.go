package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/config"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/bubblewrap"
	"nanoclaw/internal/sandbox/extra"
	"nanoclaw/internal/store"
)

// field is a home whose list allows a folder of projects.
func field(t *testing.T) (home, projects string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	home, projects = filepath.Join(base, "claw"), filepath.Join(base, "projects")
	write(t, filepath.Join(home, extra.FileName), fmt.Sprintf("[[root]]\npath = %q\nwritable = true\n", projects))
	write(t, filepath.Join(projects, "app", "main.txt"), "hello")
	write(t, filepath.Join(projects, "app", ".env"), "KEY=do not show")
	write(t, filepath.Join(projects, "app", ".ssh", "id_rsa"), "do not show")
	write(t, filepath.Join(projects, "app", "sub", "x"), "x")
	return home, projects
}

// Between the look and the start of a sandbox an agent could put a link where it may write: what lies there is refused.
func TestMountInsideWhatAnAgentWrites(t *testing.T) {
	t.Parallel()
	home, projects := field(t)
	app := store.Mount{Path: projects + "/app", Name: "app", Writable: true}
	sub := store.Mount{Path: projects + "/app/sub", Name: "sub"}
	all := []store.AgentGroup{{ID: "ag-1", Setup: store.Setup{Mounts: []store.Mount{app}}}}
	got := decideMounts(home, []store.Mount{sub, app}, all)
	if got[0].problem == nil || !strings.Contains(got[0].problem.Error(), "which an agent may write") {
		t.Errorf("inside of another agent's folder: %v", got[0].problem)
	}
	if got[1].problem != nil || !got[1].grant.Writable {
		t.Errorf("the folder itself: %+v", got[1])
	}
	all[0].Setup.Mounts[0].Writable = false
	if got := decideMounts(home, []store.Mount{sub}, all); got[0].problem != nil {
		t.Errorf("inside of a folder that is only read: %v", got[0].problem)
	}
}

// W53, CON: in a real sandbox a granted folder is at its name, read-only unless granted, and what is never shown is empty.
func TestW53MountsInBubblewrap(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bwrap"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if _, err := (bubblewrap.Candidate{}).Probe(t.Context()); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	home, projects := field(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	uid, gid := sandboxUser(config.Settings{SandboxUID: 62023})
	l := &launcher{settings: config.Settings{Home: home}, gid: gid, log: obs.Discard()}
	for _, c := range []struct {
		writable bool
		says     string
	}{{false, "denied"}, {true, "written"}} {
		if err := os.Chown(projects+"/app", uid, gid); err != nil {
			t.Fatal(err)
		}
		folders := decideMounts(home, []store.Mount{{Path: projects + "/app", Name: "app", Writable: c.writable}, {Path: "/etc", Name: "etc"}}, nil)
		mounts, err := l.extraMounts(folders)
		if err != nil {
			t.Fatal(err)
		}
		r, err := bubblewrap.New(bubblewrap.Options{RecordsDir: t.TempDir(), Log: obs.Discard()})
		if err != nil {
			t.Fatal(err)
		}
		script := `cd /workspace/extra; ls; cat app/main.txt app/.env; ls -A app/.ssh; if echo x 2>/dev/null > app/new; then echo written; else echo denied; fi; echo y 2>/dev/null > app/.env || echo kept`
		spec := sandbox.Spec{Labels: sandbox.Labels{Install: id.New("inst"), AgentGroup: "a", Session: "s", Incarnation: 1}, Command: []string{"/bin/sh", "-c", "exec >&2; " + script},
			Dir: "/tmp", UID: uid, GID: gid, StateDir: filepath.Join(t.TempDir(), "state"), Env: map[string]string{"PATH": "/usr/bin:/bin"}, Mounts: mounts}
		if err := sandbox.Prepare(spec); err != nil {
			t.Fatal(err)
		}
		h, err := r.Start(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		exit, err := h.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if want := "app\nhello" + c.says + "\nkept"; strings.TrimSpace(exit.Stderr) != want {
			t.Errorf("writable %v: saw %q, want %q", c.writable, exit.Stderr, want)
		}
	}
}
