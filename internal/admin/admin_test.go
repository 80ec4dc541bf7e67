package admin

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"nanoclaw/internal/control"
	"nanoclaw/internal/control/server"
	"nanoclaw/internal/runner/door"
	"nanoclaw/internal/runner/ncl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// far is a host or a runner that answers by the command's name and notes what it was asked.
type far struct {
	server.Backend
	mu    sync.Mutex
	asked []control.AdminRequest
}

func (h *far) Admin(_ context.Context, r control.AdminRequest) (control.Frame, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, r)
	switch r.Command {
	case "words":
		return control.Frame{ID: "r", OK: true, Data: json.RawMessage(`{"a":1}`), Human: "in words"}, nil
	case "list":
		return control.Frame{ID: "r", OK: true, Data: json.RawMessage(`[{"id":"a","at":"2026-01-02T03:04:05.000Z"},{"id":"long one","at":null}]`)}, nil
	case "empty":
		return control.Frame{ID: "r", OK: true, Data: json.RawMessage(`[]`)}, nil
	case "nope":
		return control.Frame{ID: "r", Error: &control.Error{Code: control.CodeInvalid, Message: `unknown command "nope"`, Hint: "known: help"}}, nil
	case "secret":
		return control.Frame{ID: "r", Error: &control.Error{Code: control.CodeForbidden, Message: "no"}}, nil
	case "slow":
		return control.Frame{}, &control.Error{Code: control.CodeTimeout, Message: "no answer"}
	case "broken":
		return control.Frame{}, errors.New("the disk is full")
	case "bare":
		return control.Frame{}, nil
	}
	return control.Frame{ID: "r", OK: true}, nil
}

func (h *far) last() control.AdminRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asked) == 0 {
		return control.AdminRequest{}
	}
	return h.asked[len(h.asked)-1]
}

// onHost serves h on a control socket.
func onHost(t *testing.T, h *far) (home string) {
	t.Helper()
	home = t.TempDir()
	l, err := server.Listen(home)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.New(server.Options{Backend: h, Version: "v1"}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return home
}

// inside serves h on a runner's socket.
func inside(t *testing.T, h *far) (socket string) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	d, err := door.Listen(ctx, dir, nil, ncl.Handler(func(ctx context.Context, command string, args map[string]json.RawMessage) (control.Frame, error) {
		return h.Admin(ctx, control.AdminRequest{Command: command, Args: args})
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		d.Wait()
	})
	return filepath.Join(dir, control.RunnerSocket)
}

type outcome struct {
	code           int
	stdout, stderr string
}

func run(t *testing.T, env map[string]string, socket, stdin string, args ...string) outcome {
	t.Helper()
	var out, errs strings.Builder
	code := Execute(t.Context(), Program{
		Args: args, Getenv: func(k string) string { return env[k] }, Stdin: strings.NewReader(stdin), Terminal: stdin == "terminal",
		Stdout: &out, Stderr: &errs, RunnerSocket: socket,
	})
	return outcome{code, out.String(), errs.String()}
}

// One program: the same commands print the same and end with the same codes beside a host and inside a sandbox.
func TestSameOnTheHostAndInside(t *testing.T) {
	t.Parallel()
	h := &far{}
	home, socket := onHost(t, h), inside(t, h)
	for where, env := range map[string]map[string]string{
		"host":   {"NANOCLAW_HOME": home, "TZ": "Europe/Paris"},
		"inside": {control.RunnerVariable: socket, "NANOCLAW_HOME": t.TempDir(), "TZ": "Europe/Paris"},
	} {
		for _, c := range []struct {
			args string
			want outcome
		}{
			{"words", outcome{0, "in words\n", ""}},
			{"words --json", outcome{0, `{"id":"r","ok":true,"data":{"a":1},"human":"in words"}` + "\n", ""}},
			{"list", outcome{0, "id        at\n--------  ----------------\na         2026-01-02 04:04\nlong one\n", ""}},
			{"empty", outcome{0, "", "the list is empty\n"}},
			{"nope", outcome{2, "", "ncl: unknown command \"nope\" (known: help)\n"}},
			{"secret", outcome{5, "", "ncl: no\n"}},
			{"slow", outcome{7, "", "ncl: no answer\n"}},
			{"broken", outcome{1, "", "ncl: the disk is full\n"}},
			{"bare", outcome{1, "", "ncl: the command failed, and the host did not say why\n"}},
			{"nothing", outcome{0, "", ""}},
		} {
			if got := run(t, env, "", "", strings.Fields(c.args)...); got != c.want {
				t.Errorf("%s: ncl %s: %+v, want %+v", where, c.args, got, c.want)
			}
		}
	}
}

// W27: with --json an error has its own exit code, too.
func TestW27ErrorsExitWithTheirCodeUnderJSON(t *testing.T) {
	t.Parallel()
	h := &far{}
	env := map[string]string{control.RunnerVariable: inside(t, h)}
	got := run(t, env, "", "", "--json", "nope")
	want := `{"id":"r","ok":false,"error":{"code":"invalid","message":"unknown command \"nope\"","hint":"known: help"}}` + "\n"
	if got != (outcome{2, want, ""}) {
		t.Errorf("%+v, want the frame as it is and exit 2", got)
	}
	if got := run(t, env, "", "", "secret", "--json"); got.code != 5 || !strings.Contains(got.stdout, `"forbidden"`) {
		t.Errorf("%+v", got)
	}
}

// Where the program runs is decided by what is named, most explicit first.
func TestWhichWay(t *testing.T) {
	t.Parallel()
	host, runner := &far{}, &far{}
	home, socket := onHost(t, host), inside(t, runner)
	for _, c := range []struct {
		name   string
		env    map[string]string
		socket string
		args   string
		inside bool
		code   int
	}{
		{"a home is named", map[string]string{"NANOCLAW_HOME": home}, socket, "x", false, 0},
		{"the socket is in its place", map[string]string{"HOME": t.TempDir()}, socket, "x", true, 0},
		{"the variable counts more than a home", map[string]string{"NANOCLAW_HOME": home, control.RunnerVariable: socket}, "", "x", true, 0},
		{"the flag counts more than the variable", map[string]string{control.RunnerVariable: socket}, "", "x --home " + home, false, 0},
		{"the flag with =", map[string]string{}, socket, "x --home=" + home, false, 0},
		{"no socket, no host", map[string]string{"HOME": t.TempDir()}, filepath.Join(t.TempDir(), "none"), "x", false, 6},
		{"a runner that is gone", map[string]string{control.RunnerVariable: filepath.Join(t.TempDir(), "none")}, "", "x", true, 6},
		{"no home at all", map[string]string{}, filepath.Join(t.TempDir(), "none"), "x", false, 2},
	} {
		before, within := len(host.asked), len(runner.asked)
		got := run(t, c.env, c.socket, "", strings.Fields(c.args)...)
		asked, other := len(host.asked)-before, len(runner.asked)-within
		if c.inside {
			asked, other = other, asked
		}
		if got.code != c.code || other != 0 || c.code == 0 && asked != 1 {
			t.Errorf("%s: %+v; asked %d, the other %d", c.name, got, asked, other)
		}
	}
}

// Help and version need nobody; only flags are a mistake.
func TestUsage(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOME": t.TempDir()}
	none := filepath.Join(t.TempDir(), "none")
	for args, want := range map[string]struct {
		code           int
		stdout, stderr string
	}{
		"":                   {0, "Exit codes", ""},
		"-h":                 {0, "Exit codes", ""},
		"--help":             {0, "Exit codes", ""},
		"groups list --help": {0, "Exit codes", ""},
		"--json":             {2, "", "Exit codes"},
		"--limit 3":          {2, "", "Exit codes"},
		"-x status":          {2, "", "flags begin with --"},
		"status --home":      {2, "", "needs a folder"},
		"version":            {0, "ncl " + control.Version(), ""},
		"version --json":     {0, `"protocol":1`, ""},
		"status":             {6, "", "nanoclaw serve"},
		"status --json":      {6, "", `{"error":{"code":"unreachable"`},
		"status --json=yes":  {2, "", "takes no value"},
		"status --__proto__": {2, "", "not a usable name"},
		"status --":          {6, "", "nanoclaw serve"},
		"x --a-b 1 --a_b 2":  {2, "", "given twice"},
		strings.Repeat("x", control.MaxCommand+1): {2, "", "command: has"},
	} {
		got := run(t, env, none, "", strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stdout, want.stdout) || !strings.Contains(got.stderr, want.stderr) || want.stderr == "" && got.stderr != "" || want.stdout == "" && got.stdout != "" {
			t.Errorf("ncl %s: %+v, want %+v", args, got, want)
		}
	}
}
