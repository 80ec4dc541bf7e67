package admin

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"nanoclaw/internal/control"
	"nanoclaw/internal/control/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host answers status.
type host struct{ server.Backend }

func (host) Status(context.Context) (control.Status, error) {
	return control.Status{State: control.HostRunning, PID: 42, Version: "v1", Sandbox: control.SandboxStatus{Kind: "bubblewrap"}}, nil
}

func run(t *testing.T, home string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e strings.Builder
	code = Execute(t.Context(), func(k string) string {
		if k == "NANOCLAW_HOME" {
			return home
		}
		return ""
	}, args, &o, &e)
	return code, o.String(), e.String()
}

func TestCommands(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	l, err := server.Listen(home)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.New(server.Options{Backend: host{}, Version: "v1"}).Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		home, args  string
		code        int
		out, stderr string // parts
	}{
		{home, "status", 0, "host running, process 42", ""},
		{home, "status --json", 0, `"pid":42`, ""},
		{t.TempDir(), "status --home " + home, 0, "process 42", ""},
		{t.TempDir(), "status", 6, "", "nanoclaw serve"},
		{"", "status", 2, "", "NANOCLAW_HOME"},
		{home, "version", 0, "ncl " + control.Version(), ""},
		{home, "version --json", 0, `"protocol":1`, ""},
		{home, "groups list", 2, "", `unknown command "groups" (known: help status version)`},
		{home, "status now", 2, "", "takes no arguments"},
		{home, "status --bogus", 2, "", "--bogus"},
		{t.TempDir(), "--help", 0, "Available Commands", ""},
		{t.TempDir(), "status --help", 0, "Show what the host does", ""},
	} {
		code, out, errs := run(t, c.home, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.stderr) || (code != 0) != (errs != "") {
			t.Errorf("ncl %s: exit %d, want %d; stdout %q, stderr %q", c.args, code, c.code, out, errs)
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	code, out, errs := run(t, t.TempDir(), "status", "--json")
	var e struct{ Error control.Error }
	if err := json.Unmarshal([]byte(errs), &e); err != nil || code != 6 || out != "" || e.Error.Code != control.CodeUnreachable {
		t.Errorf("exit %d, %q, %q: %v", code, out, errs, err)
	}
}
