package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/runner/door"
)

// foreign is a program of others that speaks the protocol, as scripts/fetch-mcp left it in the cache.
type foreign struct{ node, script string }

func foreignProgram(t *testing.T, name string) foreign {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	lock, err := os.ReadFile(filepath.Join(root, "scripts", "mcp-clients", "package-lock.json"))
	must(t, err)
	cache := os.Getenv("NANOCLAW_CACHE")
	if cache == "" {
		cache = filepath.Join(root, ".cache")
	}
	sum := sha256.Sum256(lock)
	folder := filepath.Join(cache, "mcp-clients-"+hex.EncodeToString(sum[:])[:12])
	// By its real name: the inspector does nothing when it is started through a link.
	script, err := filepath.EvalSymlinks(filepath.Join(folder, name))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the MCP %s is missing (scripts/fetch-mcp gets it): %v", name, err)
		}
		t.Skipf("the MCP %s is missing (scripts/fetch-mcp gets it): %v", name, err)
	}
	script, err = filepath.Abs(script)
	must(t, err)
	node, err := filepath.Abs(filepath.Join(folder, "node"))
	must(t, err)
	return foreign{node, script}
}

// run runs the program with a home of its own and returns what it wrote and its exit status.
func (f foreign) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, f.node, append([]string{f.script}, args...)...)
	cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "NO_COLOR=1"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// inspect lists and calls tools with the inspector; target is how it reaches the server.
func inspect(t *testing.T, f *fake, inspector foreign, target ...string) {
	t.Helper()
	do := func(args ...string) (stdout, stderr string, code int) {
		return inspector.run(t, append(slices.Clone(target), args...)...)
	}
	stdout, stderr, code := do("--method", "tools/list", "--strict")
	var list struct {
		Tools []struct {
			Name, Description string
			InputSchema       json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != 0 {
		t.Fatalf("tools/list ends with %d: %s %s (%v)", code, stdout, stderr, err)
	}
	// The actions of a card may be anything, on purpose; no other schema gives cause for a word.
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "Warning: tool") && !strings.Contains(line, "send_card") || strings.HasPrefix(line, "Error") {
			t.Errorf("of our schemas it says: %s", stderr)
		}
	}
	ours := New(Options{}).Tools()
	if len(list.Tools) != len(ours) {
		t.Errorf("it sees %d tools of %d", len(list.Tools), len(ours))
	}
	for _, theirs := range list.Tools {
		i := slices.IndexFunc(ours, func(one Tool) bool { return one.Name == theirs.Name })
		if i < 0 || ours[i].Description != theirs.Description || !sameJSON(t, ours[i].Schema, theirs.InputSchema) {
			t.Errorf("it sees another %s: %+v", theirs.Name, theirs)
		}
	}

	for _, tt := range []struct {
		args []string
		want string // part of the answer
		code int
		did  any
	}{
		{args: []string{"send_message", "--tool-arg", "to=me", `text="a < b"`}, want: "sent to me (id: 3)", did: Message{To: "me", Text: "a < b"}},
		{args: []string{"add_reaction", "--tool-arg", "messageId=7", "emoji=thumbs_up"}, want: "message 7 in me gets 👍", did: Change{Message: 7, Emoji: "👍"}},
		{args: []string{"ask_user_question", "--tool-arg", "title=t", "question=q", `options=["yes please",{"label":"no"}]`}, want: `"text": "yes please"`},
		{args: []string{"send_message", "--tool-arg", "to=you", "text=x"}, want: `Error: unknown destination \"you\"; known names: me`, code: 5},
		{args: []string{"send_message", "--tool-arg", "to=me", "text=x", "thread=y"}, want: `Error: unknown field \"thread\"`, code: 5},
		{args: []string{"SendMessage"}, want: "not found", code: 5},
	} {
		_, before := f.last()
		stdout, stderr, code := do(append([]string{"--method", "tools/call", "--tool-name"}, tt.args...)...)
		if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("%s ends with %d: %s%s; want %d and %s", tt.args, code, stdout, stderr, tt.code, tt.want)
		}
		did, after := f.last()
		if tt.did != nil && !equal(did, tt.did) || (tt.code == 0) != (after == before+1) {
			t.Errorf("%s: did %+v", tt.args, did)
		}
	}
}

func equal(a, b any) bool {
	m, ok := a.(Message)
	want, wanted := b.(Message)
	if ok && wanted {
		return m.To == want.To && m.Text == want.Text && len(m.Files) == 0
	}
	return a == b
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	plain := func(in []byte) string {
		var v any
		must(t, json.Unmarshal(in, &v))
		out, err := json.Marshal(v)
		must(t, err)
		return string(out)
	}
	return plain(a) == plain(b)
}

// The MCP inspector's command line, over HTTP with the token.
func TestForeignInspectorOverHTTP(t *testing.T) {
	t.Parallel()
	inspector := foreignProgram(t, "inspector")
	f := &fake{}
	r := serve(t, New(Options{Session: f}))
	inspect(t, f, inspector, r.url, "--transport", "http", "--header", "Authorization: Bearer "+r.token)
	if stdout, stderr, code := inspector.run(t, r.url, "--transport", "http", "--header", "Authorization: Bearer x", "--method", "tools/list"); code == 0 || strings.Contains(stdout, "send_message") {
		t.Errorf("with a wrong token it ends with %d: %s%s", code, stdout, stderr)
	}
}

// The MCP inspector's command line, over stdio through the real `agent-runner mcp`.
func TestForeignInspectorOverStdio(t *testing.T) {
	t.Parallel()
	inspector := foreignProgram(t, "inspector")
	root := t.TempDir()
	program := filepath.Join(root, "agent-runner")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "nanoclaw/cmd/agent-runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build agent-runner: %v\n%s", err, out)
	}
	must(t, os.Mkdir(filepath.Join(root, "run"), 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{}
	s := NewServer(New(Options{Session: f}), nil)
	opened, err := door.Listen(ctx, filepath.Join(root, "run"), nil, s.Handler())
	must(t, err)
	defer func() {
		cancel()
		opened.Wait()
		must(t, s.Close())
	}()
	config := filepath.Join(root, "servers.json")
	b, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"nanoclaw": map[string]any{"command": program, "args": []string{"mcp", "--root", root}}}})
	must(t, err)
	must(t, os.WriteFile(config, b, 0o600))
	inspect(t, f, inspector, "--config", config, "--server", "nanoclaw")
}

// notForTools are the scenarios of the conformance suite that do not apply, and why. The suite calls tools of its own; those
// whose result is one text item are added to our server below, to see that it carries them.
func notForTools() map[string]string {
	const (
		logging   = "the server has no logging capability"
		content   = "our tools answer with one text item"
		client    = "our tools ask nothing of the client"
		resources = "the server has no resources"
		prompts   = "the server has no prompts"
	)
	return map[string]string{
		"logging-set-level": logging, "tools-call-with-logging": logging,
		"completion-complete": "the server has no completions",
		"tools-call-image":    content, "tools-call-audio": content, "tools-call-embedded-resource": content, "tools-call-mixed-content": content,
		"tools-call-sampling": client, "tools-call-elicitation": client, "elicitation-sep1034-defaults": client, "elicitation-sep1330-enums": client,
		"server-sse-polling": "streams are not resumed: client and server are one machine",
		"resources-list":     resources, "resources-read-text": resources, "resources-read-binary": resources, "resources-templates-read": resources,
		"resources-subscribe": resources, "resources-unsubscribe": resources,
		"prompts-list": prompts, "prompts-get-simple": prompts, "prompts-get-with-args": prompts, "prompts-get-embedded-resource": prompts, "prompts-get-with-image": prompts,
	}
}

// suiteTools are what the suite wants to call: defined as ours are, so that they take the same way.
func suiteTools() []Tool {
	nothing := json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	return []Tool{
		{Name: "test_simple_text", Description: "of the suite", Schema: nothing, Call: func(context.Context, json.RawMessage) (string, error) {
			return "This is a simple text response for testing.", nil
		}},
		{Name: "test_error_handling", Description: "of the suite", Schema: nothing, Call: func(context.Context, json.RawMessage) (string, error) {
			return "", errors.New("this tool intentionally returns an error for testing")
		}},
		{Name: "test_tool_with_progress", Description: "of the suite", Schema: nothing, Call: func(ctx context.Context, _ json.RawMessage) (string, error) {
			select { // the suite wants to hear of a call that takes its time
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(200 * time.Millisecond):
				return "done", nil
			}
		}},
		{Name: "json_schema_2020_12_tool", Description: "of the suite", Schema: json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
			"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
			"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"}},"additionalProperties":false}`),
			Call: func(context.Context, json.RawMessage) (string, error) { return "ok", nil }},
	}
}

// The official conformance suite: every scenario passes without a warning or is named above with the reason why it does not
// apply. The suite cannot send a token, so a proxy adds it.
func TestForeignConformance(t *testing.T) {
	t.Parallel()
	suite := foreignProgram(t, "conformance")
	stdout, stderr, code := suite.run(t, "list", "--server")
	var scenarios []string
	for line := range strings.Lines(stdout) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			scenarios = append(scenarios, strings.Fields(name)[0])
		}
	}
	if code != 0 || len(scenarios) < 30 {
		t.Fatalf("the suite has no scenarios: %d %s%s", code, stdout, stderr)
	}
	set, err := NewSet(append(New(Options{Session: &fake{}}).Tools(), suiteTools()...)...)
	must(t, err)
	r := serve(t, set, func(s *Server) { s.progress = 20 * time.Millisecond })
	target, err := url.Parse(r.url)
	must(t, err)
	target.Path = ""
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Transport:     &http.Transport{DisableKeepAlives: true},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Host = p.In.Host // one scenario is about it
			p.Out.Header.Set("Authorization", "Bearer "+r.token)
		},
	})
	t.Cleanup(proxy.Close)
	unused := notForTools()
	t.Run("scenarios", func(t *testing.T) {
		for _, name := range scenarios {
			if _, ok := unused[name]; ok {
				delete(unused, name)
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				stdout, stderr, code := suite.run(t, "server", "--url", proxy.URL+path, "--scenario", name)
				if code != 0 || !strings.Contains(stdout, ", 0 failed, 0 warnings") || strings.Contains(stdout, "Passed: 0/0") {
					t.Errorf("ends with %d:\n%s%s", code, stdout, stderr)
				}
			})
		}
	})
	for name := range unused {
		t.Errorf("the suite has no scenario %s any more", name)
	}
}
