package e2e

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"nanoclaw/container"
	"nanoclaw/internal/control"
	"nanoclaw/internal/testkit/modelserver"
)

// marker is the key that must be found nowhere but in the vault and at the API.
const marker = "sk-ant-MARKER-5d1f0c77e2"

// claudeProgram is the pinned CLI: NANOCLAW_TEST_CLAUDE, else what scripts/fetch-claude left in the cache.
func claudeProgram(t *testing.T) string {
	t.Helper()
	path := os.Getenv("NANOCLAW_TEST_CLAUDE")
	if path == "" {
		found, _ := filepath.Glob("../.cache/claude-code-*/claude")
		if len(found) > 0 {
			path = found[len(found)-1]
		}
	}
	if _, err := os.Stat(path); path == "" || err != nil {
		missing(t, "the claude CLI (scripts/fetch-claude)")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// inImage wants the program of a provider in the image of the tests, which says by a label what it has.
func inImage(t *testing.T, name string) {
	t.Helper()
	out, err := exec.Command("docker", "image", "inspect", "--format", `{{index .Config.Labels "`+container.ProgramsLabel+`"}}`, "nanoclaw-agent:test").Output()
	if err != nil || !slices.Contains(strings.Fields(string(out)), name) {
		missing(t, "the "+name+" program in the image nanoclaw-agent:test (scripts/test-image)")
	}
}

// programSetting names a program of this machine, but in docker, whose image has its own.
func programSetting(kind, name, path string) string {
	if kind == "docker" {
		return ""
	}
	return "[" + name + "]\nprogram = \"" + path + "\"\n"
}

// withClaude is a home whose agent is driven by the real CLI against a scripted API.
func withClaude(t *testing.T, kind string) (*machine, *modelserver.Server) {
	t.Helper()
	available(t, kind)
	program := claudeProgram(t)
	if kind == "docker" {
		inImage(t, "claude")
	}
	api, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	m := setup(t, sandboxes(t)[kind]+programSetting(kind, "claude", program)+"[anthropic]\nbase_url = \""+api.URL()+"\"\n[openai]\nbase_url = \""+api.URL()+"\"\n[ollama]\nbase_url = \""+api.URL()+"\"\n")
	m.start()
	if err := m.client.PutSecret(t.Context(), control.Secret{Name: control.SecretAnthropic, Kind: control.SecretAPIKey, Value: marker}); err != nil {
		t.Fatal(err)
	}
	b, err := m.client.Bootstrap(t.Context(), control.BootstrapRequest{})
	if err != nil || b.Provider != "claude" {
		t.Fatalf("bootstrap %+v, %v", b, err)
	}
	return m, api
}

func call(t *testing.T, name string, input map[string]string) modelserver.Tool {
	t.Helper()
	b, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	return modelserver.Tool{Name: name, Input: b}
}

// Two turns with a shell call and a tool of ours through the real CLI, behind the egress proxy; the key is seen by the API
// and by nobody else.
func TestClaude(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"bubblewrap", "docker"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m, api := withClaude(t, kind)
			first := m.ask("m1", "please "+modelserver.Script(
				modelserver.Step{Text: `<message to="terminal">On it.</message>`, Tools: []modelserver.Tool{call(t, "Bash", map[string]string{
					"command": "for i in 1 2 3 4 5 6; do sleep 0.3; done; env > env.txt; cat /proc/*/environ > environ.txt 2>/dev/null; cat /proc/*/cmdline > cmdline.txt 2>/dev/null; id -u", "description": "look around"})}},
				modelserver.Step{Tools: []modelserver.Tool{call(t, "mcp__nanoclaw__send_message", map[string]string{"to": "terminal", "text": "by tool"})}},
				modelserver.Step{Text: `<message to="terminal">Done.</message>`}))
			if first.state != control.StateAnswered || strings.Join(first.texts, "|") != "On it.|by tool|Done." {
				t.Fatalf("first turn: %+v", first)
			}
			if gap := first.at[2].Sub(first.at[0]); gap < 1500*time.Millisecond {
				t.Errorf("the text before the tool call came %v before the end of the turn; the tool alone takes 1.8 s", gap)
			}
			second := m.ask("m2", "again "+modelserver.Script(modelserver.Step{Text: `<message to="terminal">Second.</message>`}))
			if second.state != control.StateAnswered || strings.Join(second.texts, "|") != "Second." {
				t.Fatalf("second turn: %+v", second)
			}
			requests := api.Requests()
			last := requests[len(requests)-1]
			if !last.Contains("please") || !strings.Contains(last.System, "terminal") {
				t.Error("the second turn does not know the first, or the system prompt does not name the destination")
			}
			for _, r := range requests {
				if got := r.Header.Get("X-Api-Key"); r.Method == "POST" && got != marker {
					t.Errorf("the API got the key %q on %s", got, r.Path)
				}
			}
			m.nowhere(marker)
		})
	}
}

// Commands of the CLI and of the runner, as a person types them: their output is the answer.
func TestClaudeCommands(t *testing.T) {
	t.Parallel()
	m, api := withClaude(t, "bubblewrap")
	say := func(name, secret string) {
		t.Helper()
		a := m.ask(name, secret+" "+modelserver.Script(modelserver.Step{Text: `<message to="terminal">heard ` + name + `</message>`}))
		if strings.Join(a.texts, "|") != "heard "+name {
			t.Fatalf("%+v", a)
		}
	}
	say("m1", "alpha")
	for i, c := range []struct{ word, part string }{{"/context", "Context"}, {"/cost", "answers since"}, {"/files", "files in my folder"}} {
		if a := m.ask("c"+strconv.Itoa(i), c.word); a.state != control.StateAnswered || len(a.texts) != 1 || !strings.Contains(a.texts[0], c.part) {
			t.Errorf("%s: %+v", c.word, a)
		}
	}
	say("m2", "beta")
	if requests := api.Requests(); !requests[len(requests)-1].Contains("alpha") {
		t.Error("a command has lost the conversation")
	}
	if a := m.ask("c9", "/clear"); a.state != control.StateAnswered || len(a.texts) != 1 {
		t.Errorf("/clear: %+v", a)
	}
	say("m3", "gamma")
	if requests := api.Requests(); requests[len(requests)-1].Contains("alpha") {
		t.Error("the conversation goes on behind /clear")
	}
}

// A follow-up during a turn is taken by the running turn or answered after it, never lost.
func TestClaudeFollowUp(t *testing.T) {
	t.Parallel()
	m, _ := withClaude(t, "bubblewrap")
	acc := m.say("m1", "please "+modelserver.Script(
		modelserver.Step{Text: `<message to="terminal">Started.</message>`, Tools: []modelserver.Tool{call(t, "Bash", map[string]string{"command": "for i in 1 2 3 4; do sleep 0.5; done", "description": "wait"})}},
		modelserver.Step{Text: `<message to="terminal">First done.</message>`}))
	if _, err := m.firstText(acc.Seq); err != nil {
		t.Fatal(err)
	}
	m.say("m2", "and also this")
	for _, name := range []string{"m1", "m2"} {
		a, err := m.await(name, acc.Seq, patience)
		if err != nil || (a.state != control.StateAnswered && name == "m1") {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

// The host is killed in mid-turn; the CLI waits for the proxy to come back and the answer arrives.
func TestClaudeSurvivesTheHost(t *testing.T) {
	t.Parallel()
	m, _ := withClaude(t, "bubblewrap")
	acc := m.say("m1", "please "+modelserver.Script(
		modelserver.Step{Text: `<message to="terminal">Started.</message>`, Tools: []modelserver.Tool{call(t, "Bash", map[string]string{"command": "for i in 1 2 3 4; do sleep 0.5; done", "description": "wait"})}},
		modelserver.Step{Text: `<message to="terminal">Survived.</message>`}))
	if _, err := m.firstText(acc.Seq); err != nil {
		t.Fatal(err)
	}
	m.kill()
	m.start()
	a, err := m.await("m1", acc.Seq, patience)
	if err != nil || a.state != control.StateAnswered || strings.Join(a.texts, "|") != "Started.|Survived." {
		t.Errorf("%+v, %v", a, err)
	}
}

// nowhere looks for a secret in everything of a home but the vault, in the host's log, and in the environment and command
// line of every process that belongs to the home.
func (m *machine) nowhere(secret string) {
	m.t.Helper()
	err := filepath.WalkDir(m.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path == filepath.Join(m.home, "secrets") {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(secret)) {
			m.t.Errorf("the key stands in %s", strings.TrimPrefix(path, m.home))
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if strings.Contains(m.log.String(), secret) {
		m.t.Error("the key stands in the log")
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"environ", "cmdline"} {
			b, err := os.ReadFile(filepath.Join("/proc", e.Name(), file))
			if err == nil && bytes.Contains(b, []byte(secret)) {
				line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
				m.t.Errorf("the key stands in the %s of %q", file, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
			}
		}
	}
}
