package command

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

func TestServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["ANTHROPIC_API_KEY"] = "sk-marker"
	r := w.run("serve", "--sandbox", "process", "--log-format", "json")
	w.want(r, 0, "", `"msg":"host ready"`)
	if w.served.Sandbox != "process" || w.served.Home != w.home || w.env["ANTHROPIC_API_KEY"] != "" {
		t.Errorf("served %+v with the environment %v", w.served, w.env)
	}
	for name, args := range map[string][]string{
		"sandbox": {"serve", "--sandbox", "vm"}, "format": {"serve", "--log-format", "xml"}, "argument": {"serve", "now"}, "flag": {"serve", "--no"},
	} {
		if r := w.run(args...); r.code != 2 {
			t.Errorf("%s: exit %d: %s", name, r.code, r.err)
		}
	}
	writeFile(t, filepath.Join(w.home, "nanoclaw.toml"), "[sandbox]\nkind = \"vm\"\nbogus = 1\n")
	w.want(w.run("serve"), 2, "", "sandbox.kind", "sandbox.bogus")
	w.want(w.run("chat", "x"), 2, "", "sandbox.kind")
	writeFile(t, filepath.Join(w.home, "nanoclaw.toml"), "[egress]\nallow = \"example.com,***\"\n")
	w.want(w.run("serve"), 2, "", "egress.allow (nanoclaw.toml)", "***")
	writeFile(t, filepath.Join(w.home, "nanoclaw.toml"), "[[[")
	w.want(w.run("serve"), 2, "", "nanoclaw.toml", "line 1")
}

func TestSecondHostIsRefusedAndNamesTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveErr = &store.LockedError{Owner: store.Owner{PID: 4711, Version: "v9", Since: "today"}}
	w.want(w.run("serve"), 8, "", "process 4711", "v9", "nanoclaw stop")
}

func TestStatusAndStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(w.run("status"), 6, "", "no host answers", w.home)
	w.want(w.run("stop"), 6, "", "no host answers")
	w.left = 2
	w.want(w.run("stop", "--keep-sandboxes"), 6, "", "no host answers")
	w.want(w.run("stop"), 0, "", "no host runs on "+w.home, "sandboxes: 2")
	w.left = 0
	w.start()
	r := w.run("status")
	for _, part := range []string{"running, process 42", w.home, "bubblewrap (no daemon)", "mock, no key", "cli connected"} {
		if !strings.Contains(r.out, part) {
			t.Errorf("status lacks %q:\n%s", part, r.out)
		}
	}
	var st control.Status
	if r := w.run("status", "--json"); r.code != 0 || json.Unmarshal([]byte(r.out), &st) != nil || st.PID != 42 {
		t.Errorf("exit %d: %s", r.code, r.out)
	}
	w.mu.Lock()
	w.state = control.HostDegraded
	w.mu.Unlock()
	if r := w.run("status"); r.code != 9 || r.out == "" {
		t.Errorf("a degraded host: exit %d", r.code)
	}
	w.want(w.run("stop", "--keep-sandboxes"), 0, "", "process 42")
	if !w.keepBoxes {
		t.Error("the sandboxes were stopped too")
	}
	w.stop()
	w.start()
	w.want(w.run("stop"), 0, "", "stopped the host")
	if w.keepBoxes {
		t.Error("the sandboxes were left running")
	}
}

func TestStopWaitsForTheLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	lock, err := store.AcquireLock(w.home, "v1")
	if err != nil {
		t.Fatal(err)
	}
	w.want(w.run("stop", "--timeout", "100ms"), 7, "", "still runs")
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	get := func(w *world, id string, args ...string) (check, int) {
		w.Helper()
		r := w.run(append([]string{"doctor", "--json"}, args...)...)
		var got struct{ Checks []check }
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			w.Fatalf("%v: %s %s", err, r.out, r.err)
		}
		for _, c := range got.Checks {
			if c.ID == id {
				return c, r.code
			}
		}
		w.Fatalf("no check %s in %s", id, r.out)
		return check{}, 0
	}
	for name, c := range map[string]struct {
		plant  func(w *world)
		id     string
		result string
		text   string
		args   []string
	}{
		"settings":             {func(w *world) { writeFile(w.T, filepath.Join(w.home, "nanoclaw.toml"), "zone = \"Mars\"\n") }, "settings", "fail", "zone", nil},
		"broken settings file": {func(w *world) { writeFile(w.T, filepath.Join(w.home, "nanoclaw.toml"), "= =") }, "settings", "fail", "nanoclaw.toml", nil},
		"open home": {func(w *world) {
			if err := os.Chmod(w.home, 0o777); err != nil {
				w.Fatal(err)
			}
		}, "home", "warn", "chmod", nil},
		"no sandbox": {func(w *world) { w.machine = fakeMachine{} }, "sandbox", "fail", "bubblewrap", nil},
		"process":    {func(*world) {}, "sandbox", "warn", "isolation", []string{"--sandbox", "process"}},
		"hung host": {func(w *world) {
			lock, err := store.AcquireLock(w.home, "v7")
			if err != nil {
				w.Fatal(err)
			}
			w.Cleanup(func() { _ = lock.Release() })
		}, "host", "fail", "holds the lock", nil},
		"no host":   {func(*world) {}, "host", "skipped", "not running", nil},
		"host":      {func(w *world) { w.start() }, "host", "ok", "process 42", nil},
		"no claude": {func(*world) {}, "claude", "warn", "scripts/fetch-claude", nil},
		"claude":    {func(w *world) { w.machine.programs["claude"] = "/c" }, "claude", "ok", "/c, 1.2.3", nil},
		"broken claude": {func(w *world) {
			w.machine.programs["claude"] = "/c"
			w.machine.broken = map[string]string{"/c": "no node"}
		}, "claude", "fail", "no node", nil},
		"no key":         {func(*world) {}, "key", "warn", "ANTHROPIC_API_KEY", nil},
		"key set":        {func(w *world) { w.env["ANTHROPIC_API_KEY"] = "sk-marker" }, "key", "ok", "ANTHROPIC_API_KEY", nil},
		"image":          {func(w *world) { w.machine.docker = DockerState{Daemon: true, Detail: "version 1"} }, "docker", "skipped", "image build", nil},
		"docker":         {func(w *world) { w.machine.docker = DockerState{Daemon: true, Image: true} }, "sandbox", "ok", "docker", nil},
		"clock":          {func(*world) {}, "clock", "ok", "zone", nil},
		"disk":           {func(*world) {}, "disk", "ok", "MiB free", nil},
		"programs":       {func(*world) {}, "programs", "fail", "make build", nil}, // beside a test program there are none
		"bubblewrap":     {func(*world) {}, "bubblewrap", "ok", "1.2.3", nil},
		"bad allow list": {func(w *world) { w.env["NANOCLAW_EGRESS_ALLOW"] = "***" }, "settings", "fail", "egress.allow (NANOCLAW_EGRESS_ALLOW)", nil},
		"limits":         {func(w *world) { w.machine.limits = "cgroup v1" }, "limits", "ok", "cgroup v1", nil},
		"weak limits":    {func(w *world) { w.machine.limits = "prlimit" }, "limits", "warn", "loginctl enable-linger", nil},
		"no limits":      {func(w *world) { w.machine.limits = "none" }, "limits", "warn", "nothing bounds", nil},
		"docker limits":  {func(w *world) { w.machine.docker = DockerState{Daemon: true, Image: true} }, "limits", "skipped", "daemon", nil},
		"docker denied":  {func(w *world) { w.machine.docker = DockerState{Detail: "permission denied"} }, "docker", "skipped", "group docker", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.plant(w)
			got, code := get(w, c.id, c.args...)
			if got.Result != c.result && !(c.id == "disk" && got.Result == "warn") {
				t.Errorf("result %s, want %s: %+v", got.Result, c.result, got)
			}
			if all := got.Detail + " " + got.Fix; !strings.Contains(all, c.text) || strings.Contains(all, "sk-marker") {
				t.Errorf("says %q, want %q in it", all, c.text)
			}
			if code != 9 { // at least the programs are missing
				t.Errorf("exit %d with a failed check", code)
			}
		})
	}
	w := newWorld(t)
	if r := w.run("doctor"); !strings.Contains(r.out, "fail") || !strings.Contains(r.out, "→") {
		t.Errorf("for people:\n%s", r.out)
	}
}

func TestVersionAndUnknownCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := w.run("version"); r.code != 0 || !strings.HasPrefix(r.out, "nanoclaw "+control.Version()) {
		t.Errorf("%+v", r)
	}
	var v versionInfo
	if r := w.run("version", "--json"); json.Unmarshal([]byte(r.out), &v) != nil || v.Protocol != control.Protocol {
		t.Errorf("%+v", r)
	}
	w.want(w.run("stauts"), 2, "", `unknown command "stauts"`, "did you mean status?")
	w.want(w.run("quux"), 2, "", "--help")
	w.want(w.run("version", "x"), 2, "", "takes no arguments")
	w.want(w.run("--bogus"), 2, "", "--bogus")
	var out, errs strings.Builder
	none := w.deps()
	none.Getenv = func(string) string { return "" }
	if code := Run(context.Background(), none, []string{"status"}, strings.NewReader(""), &out, &errs); code != 2 || !strings.Contains(errs.String(), "NANOCLAW_HOME") {
		t.Errorf("without any home: exit %d, %s", code, errs.String())
	}
}

func TestHelpIsStable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var b strings.Builder
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"chat", "--help"}, {"status", "--help"}, {"stop", "--help"}, {"doctor", "--help"}, {"version", "--help"}} {
		r := w.run(args...)
		if r.code != 0 || r.err != "" {
			t.Errorf("%v: exit %d, %s", args, r.code, r.err)
		}
		b.WriteString("$ nanoclaw " + strings.Join(args, " ") + "\n" + r.out + "\n")
	}
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, golden, b.String())
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the help changed; look at it and run the test with -update. It is now:\n%s", b.String())
	}
}
