package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/testkit/modelserver"
)

// ncl runs the admin client with exactly these variables.
func (m *machine) ncl(env []string, stdin string, args ...string) (stdout, stderr string, code int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs(m.t), "ncl"), args...)
	cmd.Env = append([]string{"TZ=UTC"}, env...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("run ncl %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// runnerSocket is the variable that leads to the runner of the only session.
func (m *machine) runnerSocket() []string {
	m.t.Helper()
	found, err := filepath.Glob(filepath.Join(m.home, "sessions", "*", "*", "run", control.RunnerSocket))
	if err != nil || len(found) != 1 {
		m.t.Fatalf("runner's sockets: %v, %v", found, err)
	}
	return []string{control.RunnerVariable + "=" + found[0]}
}

// The same program on the host and with the runner of a live session: same output, same exit codes, but what an agent may.
func TestNcl(t *testing.T) {
	t.Parallel()
	m := setup(t, sandboxes(t)["process"])
	m.start()
	if a := m.ask("m1", "hello"); a.state != control.StateAnswered {
		t.Fatalf("%+v", a)
	}
	host, inside := []string{"NANOCLAW_HOME=" + m.home}, m.runnerSocket()
	for _, c := range []struct {
		where       string
		env         []string
		args        string
		code        int
		out, stderr string // parts; empty: nothing
	}{
		{"host", host, "status", 0, "host degraded, process", ""},
		{"inside", inside, "status", 0, "agent Nano, session sess-", ""},
		{"host", host, "groups list", 0, "id                             name  folder  provider  model\n-----", ""},
		{"inside", inside, "groups list", 5, "", `an agent may not use "groups list" (open to agents: destinations list, help, sessions list, status, version)`},
		{"host", host, "messaging-groups list", 0, "cli:local", ""},
		{"host", host, "sessions list", 0, "terminal", ""},
		{"inside", inside, "sessions list", 0, "running", ""},
		{"inside", inside, "destinations list", 0, "terminal", ""},
		{"host", host, "help", 0, "groups list", ""},
		{"inside", inside, "help", 0, "sessions list", ""},
		{"inside", inside, "version", 0, "host ", ""},
		{"host", host, "nope", 2, "", `ncl: unknown command "nope" (known: `},
		{"inside", inside, "nope", 2, "", `ncl: unknown command "nope" (known: destinations list, help, `},
		{"inside", inside, "tasks create --name x", 2, "", `ncl: unknown command "tasks-create"`},
		{"inside", inside, "--json nope", 2, `"ok":false,"error":{"code":"invalid","message":"unknown command \"nope\""`, ""},
		{"host", host, "--json nope", 2, `"ok":false,"error":{"code":"invalid","message":"unknown command \"nope\""`, ""},
		{"inside", inside, "sessions list --bogus=1", 2, "", "does not take --bogus"},
		{"inside", inside, "", 0, "Exit codes", ""},
		{"inside", inside, "--json", 2, "", "Exit codes"},
	} {
		out, errs, code := m.ncl(c.env, "", strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.stderr) || (c.out == "") != (out == "") || (c.stderr == "") != (errs == "") {
			t.Errorf("%s: ncl %s: exit %d, want %d; stdout %q, stderr %q", c.where, c.args, code, c.code, out, errs)
		}
	}
	out, errs, code := m.ncl(inside, `{"limit": 1}`, "sessions", "list", "--stdin-json", "--json")
	var f control.Frame
	if err := json.Unmarshal([]byte(out), &f); err != nil || code != 0 || !f.OK || f.ID == "" || !strings.Contains(string(f.Data), `"chat":"terminal"`) {
		t.Errorf("--stdin-json: exit %d, %q, %q, %v", code, out, errs, err)
	}
	if st, err := m.client.Status(t.Context()); err != nil || st.Sandbox.Live != 1 || st.Deliveries.Queued != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if a := m.ask("m2", "still there?"); a.state != control.StateAnswered || len(a.texts) != 1 {
		t.Errorf("the agent after all that: %+v", a)
	}
}

// A command that is given while the host is away is answered by the next one.
func TestNclWhileTheHostIsAway(t *testing.T) {
	t.Parallel()
	m := setup(t, sandboxes(t)["process"])
	m.start()
	if a := m.ask("m1", "hello"); a.state != control.StateAnswered {
		t.Fatalf("%+v", a)
	}
	inside := m.runnerSocket()
	m.kill()
	type result struct {
		out, errs string
		code      int
	}
	done := make(chan result, 1)
	go func() {
		out, errs, code := m.ncl(inside, "", "status")
		done <- result{out, errs, code}
	}()
	m.start()
	if r := <-done; r.code != 0 || !strings.Contains(r.out, "agent Nano") {
		t.Errorf("%+v", r)
	}
	if n := strings.Count(m.log.String(), "sandbox started"); n != 1 {
		t.Errorf("%d sandboxes were started", n)
	}
}

// An agent that gives too many commands is told so, and the host is not held up.
func TestNclIsCounted(t *testing.T) {
	t.Parallel()
	m := setup(t, sandboxes(t)["process"])
	m.start()
	m.ask("m1", "hello")
	inside := m.runnerSocket()
	refused := 0
	for range 22 {
		if _, errs, code := m.ncl(inside, "", "version"); code == 6 && strings.Contains(errs, "too many commands") {
			refused++
		} else if code != 0 {
			t.Fatalf("exit %d, %q", code, errs)
		}
	}
	if refused != 2 {
		t.Errorf("%d of 22 commands were refused, want 2", refused)
	}
	if _, errs, code := m.ncl([]string{"NANOCLAW_HOME=" + m.home}, "", "version"); code != 0 {
		t.Errorf("the operator: exit %d, %q", code, errs)
	}
}

// The agent's own shell, in a real sandbox, finds ncl in its path and the runner behind it.
func TestNclInTheShellOfAnAgent(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"process", "bubblewrap", "docker"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m, _ := withClaude(t, kind)
			a := m.ask("m1", "please "+modelserver.Script(
				modelserver.Step{Tools: []modelserver.Tool{call(t, "Bash", map[string]string{"description": "ask the host",
					"command": "ncl status > out.txt; echo $? >> out.txt; ncl nope >> out.txt 2>&1; echo $? >> out.txt; ncl --json nope >> out.txt; echo $? >> out.txt"})}},
				modelserver.Step{Text: `<message to="terminal">Asked.</message>`}))
			if a.state != control.StateAnswered {
				t.Fatalf("%+v", a)
			}
			b, err := os.ReadFile(filepath.Join(m.home, "groups", "main", "out.txt"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			if len(lines) != 7 || !strings.HasPrefix(lines[0], "agent Nano, session sess-") || lines[2] != "0" ||
				!strings.HasPrefix(lines[3], `ncl: unknown command "nope" (known: destinations list, help,`) || lines[4] != "2" ||
				!strings.HasPrefix(lines[5], `{"id":`) || lines[6] != "2" {
				t.Errorf("the shell saw:\n%s", b)
			}
		})
	}
}

// P3: the host is killed after a command was carried out and before its answer is in the inbox: the next host answers.
func TestNclWhenTheHostDiesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	m := setup(t, crashSettings)
	m.script(`{"events":[{"type":"result","text":"<message to=\"terminal\">hello</message>"}]}`)
	flag := filepath.Join(m.home, "groups", "main", "crashed")
	m.env = []string{"NANOCLAW_CRASHPOINT=host.acted=1", "NANOCLAW_CRASHPOINT_ONCE=" + flag}
	stop := sync.OnceFunc(m.keepAlive())
	defer stop()
	if a := m.ask("m1", "hello"); a.state != control.StateAnswered {
		t.Fatalf("%+v", a)
	}
	out, errs, code := m.ncl(m.runnerSocket(), "", "status")
	if code != 0 || !strings.Contains(out, "agent Nano") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
	if _, err := os.Stat(flag); err != nil {
		t.Errorf("the host did not die: %v", err)
	}
	stop()
	m.invariants([]string{"hello"})
}
