package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/testkit/modelserver"
)

// admin runs a command of ncl over the control socket.
func (m *machine) admin(command string, args ...string) string {
	m.t.Helper()
	stdout, stderr, code := m.ncl(m.environment(), "", append(strings.Fields(command), args...)...)
	if code != 0 {
		m.t.Fatalf("ncl %s: exit %d: %s%s", command, code, stdout, stderr)
	}
	return stdout
}

// One chat that begins with one provider, goes on with another and comes back: each answers with its tools, and each remembers its
// own part, since a conversation is never handed to another provider.
func TestSwitchProvider(t *testing.T) {
	t.Parallel()
	m, api := withClaude(t, "bubblewrap")
	turn := func(name, secret, words string) modelserver.Request {
		t.Helper()
		a := m.ask(name, secret+" "+modelserver.Script(
			modelserver.Step{Tools: []modelserver.Tool{call(t, "Bash", map[string]string{"command": "echo " + words, "description": "say"})}},
			modelserver.Step{Tools: []modelserver.Tool{call(t, "mcp__nanoclaw__send_message", map[string]string{"to": "terminal", "text": words})}},
			modelserver.Step{Text: `<message to="terminal">end of ` + name + `</message>`}))
		if a.state != control.StateAnswered || strings.Join(a.texts, "|") != words+"|end of "+name {
			t.Fatalf("%s: %+v", name, a)
		}
		requests := api.Requests()
		return requests[len(requests)-1]
	}
	turn("m1", "alpha", "one")
	if err := m.client.PutSecret(t.Context(), control.Secret{Name: control.SecretOpenAI, Kind: control.SecretAPIKey, Value: marker}); err != nil {
		t.Fatal(err)
	}
	for i, next := range [][]string{{"anthropic", "claude-test"}, {"ollama", "local"}, {"openai", "gpt-test"}} {
		if out := m.admin("groups config update", "--provider", next[0], "--model", next[1]); !strings.Contains(out, "provider "+next[0]) {
			t.Fatalf("%s", out)
		}
		if turn("b"+next[0], "beta", "two-"+next[0]).Contains("alpha") {
			t.Errorf("%s (%d) got the conversation of the first provider", next[0], i)
		}
	}
	m.admin("groups config update", "--provider", "claude")
	third := turn("m3", "gamma", "three")
	if !third.Contains("alpha") || third.Contains("beta") {
		t.Error("the first provider did not go on with its own conversation")
	}
	m.nowhere(marker)
}

// A provider whose key is refused hands the message to its fallback: the person gets one line about it and the answer, and no
// further word with the next message.
func TestFallbackChain(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"claude", "anthropic"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			available(t, "bubblewrap")
			program := claudeProgram(t)
			api, err := modelserver.Start(modelserver.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(api.Close)
			locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`)
			}))
			t.Cleanup(locked.Close)
			m := setup(t, sandboxes(t)["bubblewrap"]+"[claude]\nprogram = \""+program+"\"\n[anthropic]\nbase_url = \""+locked.URL+"\"\n[ollama]\nbase_url = \""+api.URL()+"\"\n")
			m.start()
			if err := m.client.PutSecret(t.Context(), control.Secret{Name: control.SecretAnthropic, Kind: control.SecretAPIKey, Value: marker}); err != nil {
				t.Fatal(err)
			}
			if _, err := m.client.Bootstrap(t.Context(), control.BootstrapRequest{}); err != nil {
				t.Fatal(err)
			}
			m.admin("groups config update", "--provider", first, "--fallback", "ollama:local")
			for _, name := range []string{"m1", "m2"} {
				a := m.ask(name, "hi "+modelserver.Script(modelserver.Step{Text: `<message to="terminal">by the fallback</message>`}))
				if a.state != control.StateAnswered || strings.Join(a.texts, "|") != "by the fallback" {
					t.Fatalf("%s: %+v", name, a)
				}
				if said := strings.Join(a.notices, "|"); (name == "m1") != strings.Contains(said, "ollama answers instead") {
					t.Errorf("%s: notices %q", name, said)
				}
			}
		})
	}
}

// programOf is a provider's pinned program: its variable, else what its script left in the cache.
func programOf(t *testing.T, name string) string {
	t.Helper()
	path := os.Getenv("NANOCLAW_TEST_" + strings.ToUpper(name))
	if path == "" {
		if found, _ := filepath.Glob("../.cache/" + name + "-*/bin/" + name); len(found) > 0 {
			path = found[len(found)-1]
		}
	}
	if path == "" {
		missing(t, "the "+name+" program (scripts/fetch-"+name+")")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// withModel is a home whose host holds keys for a scripted API and whose agent has the given provider.
func withModel(t *testing.T, settings, provider, model string) (*machine, *modelserver.Server) {
	t.Helper()
	api, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	m := setup(t, settings+"[openai]\nbase_url = \""+api.URL()+"\"\n[anthropic]\nbase_url = \""+api.URL()+"\"\n[ollama]\nbase_url = \""+api.URL()+"\"\n")
	m.start()
	for _, key := range []string{control.SecretOpenAI, control.SecretAnthropic} {
		if err := m.client.PutSecret(t.Context(), control.Secret{Name: key, Kind: control.SecretAPIKey, Value: marker}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.client.Bootstrap(t.Context(), control.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}
	m.admin("groups config update", "--provider", provider, "--model", model)
	return m, api
}

// Other agents' programs in a sandbox, of this machine or of the image: their own shell, a tool of ours, a second turn, and the key
// only at the API.
func TestOtherPrograms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ shell, send modelserver.Tool }{
		"codex": {
			modelserver.Tool{Name: "exec_command", Input: json.RawMessage(`{"cmd":"id -u; env > env.txt"}`)},
			modelserver.Tool{Name: "send_message", Namespace: "mcp__nanoclaw", Input: json.RawMessage(`{"to":"terminal","text":"by tool"}`)},
		},
		"opencode": {
			modelserver.Tool{Name: "bash", Input: json.RawMessage(`{"command":"id -u; env > env.txt","description":"look"}`)},
			modelserver.Tool{Name: "nanoclaw_send_message", Input: json.RawMessage(`{"to":"terminal","text":"by tool"}`)},
		},
	} {
		for from, kind := range map[string]string{"bubblewrap": "bubblewrap", "image": "docker", "mount": "docker"} {
			if from == "mount" && name != "codex" {
				continue // what is mounted is the same matter for all; codex comes with a helper
			}
			t.Run(name+" by "+from, func(t *testing.T) {
				t.Parallel()
				available(t, kind)
				program := "[" + name + "]\nprogram = \"" + programOf(t, name) + "\"\n"
				if from == "image" {
					inImage(t, name)
					program = ""
				}
				m, _ := withModel(t, sandboxes(t)[kind]+program, name, "test-model")
				for _, id := range []string{"m1", "m2"} {
					a := m.ask(id, "hi "+modelserver.Script(
						modelserver.Step{Text: `<message to="terminal">on it</message>`, Tools: []modelserver.Tool{c.shell}},
						modelserver.Step{Tools: []modelserver.Tool{c.send}},
						modelserver.Step{Text: `<message to="terminal">done</message>`}))
					if a.state != control.StateAnswered || strings.Join(a.texts, "|") != "on it|by tool|done" {
						t.Fatalf("%s: %+v\n%s", id, a, m.log.tail(2000))
					}
				}
				m.nowhere(marker)
			})
		}
	}
}

// A foreign agent that speaks the Agent Client Protocol: it is told where the API is and what stands for the key, and does the rest by
// its own settings, here those in the agent's folder.
func TestForeignAgent(t *testing.T) {
	t.Parallel()
	available(t, "bubblewrap")
	m, api := withModel(t, sandboxes(t)["bubblewrap"]+"[acp]\nprogram = \""+programOf(t, "opencode")+"\"\nargs = \"acp\"\napi = \"anthropic\"\n", "acp", "default")
	const own = `{"model":"anthropic/scripted","small_model":"anthropic/scripted","enabled_providers":["anthropic"],"permission":"allow","autoupdate":false,"share":"disabled",
		"provider":{"anthropic":{"npm":"@ai-sdk/anthropic","options":{"baseURL":"{env:ANTHROPIC_BASE_URL}/v1","apiKey":"{env:ANTHROPIC_API_KEY}"},"models":{"scripted":{"tool_call":true}}}}}`
	dir := filepath.Join(m.home, "groups", "main")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "opencode.json"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"m1", "m2"} {
		a := m.ask(id, "secret of "+id+" "+modelserver.Script(
			modelserver.Step{Text: `<message to="terminal">on it</message>`, Tools: []modelserver.Tool{{Name: "bash", Input: json.RawMessage(`{"command":"id -u; env > env.txt","description":"look"}`)}}},
			modelserver.Step{Tools: []modelserver.Tool{{Name: "nanoclaw_send_message", Input: json.RawMessage(`{"to":"terminal","text":"by tool"}`)}}},
			modelserver.Step{Text: `<message to="terminal">done</message>`}))
		if a.state != control.StateAnswered || strings.Join(a.texts, "|") != "on it|by tool|done" {
			t.Fatalf("%s: %+v\n%s", id, a, m.log.tail(2000))
		}
	}
	requests := api.Requests()
	if last := requests[len(requests)-1]; !last.Contains("secret of m1") || last.Header.Get("X-Api-Key") != marker {
		t.Error("the second turn does not know the first, or the host's key did not come to the API")
	}
	m.nowhere(marker)
}

// A provider whose program is not there: with a fallback that one answers, and the chat is told in one line; without, the person is told
// in plain words, the message is kept, and it is answered as soon as somebody can. status and doctor say the same.
func TestMissingProgram(t *testing.T) {
	t.Parallel()
	available(t, "bubblewrap")
	m := setup(t, sandboxes(t)["bubblewrap"]+"[codex]\nprogram = \"/nowhere/codex\"\n")
	m.start()
	if _, err := m.client.Bootstrap(t.Context(), control.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}
	if out := m.admin("groups config update", "--provider", "codex", "--fallback", "mock"); !strings.Contains(out, "/nowhere/codex, which is no program on this machine") {
		t.Errorf("the change does not say what is missing: %s", out)
	}
	a := m.ask("m1", "hello")
	if a.state != control.StateAnswered || len(a.texts) != 1 || strings.Join(a.notices, "|") != "(codex is not installed here; mock answers instead.)" {
		t.Errorf("with a fallback: %+v", a)
	}
	status := func(want string) {
		t.Helper()
		st, err := m.client.Status(t.Context())
		if err != nil || st.State != control.HostDegraded || !strings.Contains(strings.Join(st.Warnings, "\n"), want) {
			t.Errorf("status %+v, %v; want %q", st, err, want)
		}
	}
	status("mock answers instead")
	for _, args := range [][]string{{"doctor"}, {"doctor", "--provider", "codex"}} {
		if out, _, code := m.run(args...); code != 9 || !strings.Contains(out, "codex program: /nowhere/codex is not on this machine; needed by") || !strings.Contains(out, "scripts/fetch-codex") {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
	}

	m.admin("groups config update", "--fallback", "default")
	acc := m.say("m2", "are you there?")
	notice, err := m.firstText(acc.Seq)
	if err != nil || !strings.Contains(notice, "your message is kept") || !strings.Contains(notice, "the codex program; `nanoclaw doctor` says how to get it") {
		t.Errorf("without a fallback: %q, %v", notice, err)
	}
	status("cannot be started")
	m.admin("groups config update", "--provider", "mock")
	if a, err := m.await("m2", acc.Seq, patience); err != nil || a.state != control.StateAnswered || len(a.texts) != 1 {
		t.Errorf("the message was not answered when somebody could: %+v, %v", a, err)
	}
}

// opencode reaches models of other vendors by our reverse proxy: the name of the model says which API, and only that one's key is used.
func TestOpencodeModelsOfOthers(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"openai/test-model", "ollama/test-model:8b"} {
		t.Run(strings.ReplaceAll(model, "/", " "), func(t *testing.T) {
			t.Parallel()
			available(t, "bubblewrap")
			m, api := withModel(t, sandboxes(t)["bubblewrap"]+programSetting("bubblewrap", "opencode", programOf(t, "opencode")), "opencode", model)
			a := m.ask("m1", "hi "+modelserver.Script(
				modelserver.Step{Tools: []modelserver.Tool{{Name: "nanoclaw_send_message", Input: json.RawMessage(`{"to":"terminal","text":"by tool"}`)}}},
				modelserver.Step{Text: `<message to="terminal">done</message>`}))
			if a.state != control.StateAnswered || strings.Join(a.texts, "|") != "by tool|done" {
				t.Fatalf("%+v\n%s", a, m.log.tail(2000))
			}
			vendor, name, _ := strings.Cut(model, "/")
			for _, r := range api.Requests() {
				if keyed := r.Header.Get("Authorization") == "Bearer "+marker; r.Model != name || keyed != (vendor == "openai") {
					t.Errorf("request %s of model %q, with the key: %t", r.Path, r.Model, keyed)
				}
			}
			m.nowhere(marker)
		})
	}
}
