package codex_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/codex"
	"nanoclaw/internal/provider/providertest"
	"nanoclaw/internal/testkit/modelserver"
)

// program is the real CLI: NANOCLAW_TEST_CODEX, else what scripts/fetch-codex left in the cache.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("NANOCLAW_TEST_CODEX")
	if path == "" {
		cache := os.Getenv("NANOCLAW_CACHE")
		if cache == "" {
			cache = "../../../.cache"
		}
		arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
		if arch == "" {
			arch = runtime.GOARCH
		}
		path = filepath.Join(cache, "codex-linux-"+arch+"-"+codex.Tested, "bin", "codex")
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the codex CLI is missing (scripts/fetch-codex gets it): %v", err)
		}
		t.Skipf("the codex CLI is missing (scripts/fetch-codex gets it): %v", err)
	}
	return path
}

const placeholder = "nanoclaw-placeholder-4711"

// model starts a scripted API.
func model(t *testing.T) *modelserver.Server {
	t.Helper()
	s, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func options(program, home, url string) codex.Options {
	return codex.Options{
		Program: program, Home: home, Model: "gpt-scripted", Effort: "low", BaseURL: url + "/v1", Key: placeholder, Retries: 1,
		Env: map[string]string{"TMPDIR": home},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	cli := program(t)
	providertest.Run(t, func(t *testing.T) *providertest.Subject {
		home, cwd, api := t.TempDir(), t.TempDir(), model(t)
		build := func(t *testing.T, change func(*codex.Options)) provider.Provider {
			opt := options(cli, home, api.URL())
			change(&opt)
			p, err := codex.New(opt)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		return &providertest.Subject{
			Cwd: cwd, Stale: "11111111-1111-4111-8111-111111111111", Statuses: true, Shell: true, Long: true, Program: true,
			New: func(t *testing.T, _ *providertest.Tools) provider.Provider {
				return build(t, func(o *codex.Options) { o.KeepAlive = 300 * time.Millisecond })
			},
			Quiet: time.Second, Recodes: map[string]string{"image/gif": "image/png"},
			Watchdog: func(t *testing.T, _ *providertest.Tools, silence time.Duration) provider.Provider {
				return build(t, func(o *codex.Options) { o.Silence = silence })
			},
			Shown: func() []string {
				all := api.Requests()
				types := []string{}
				for _, m := range last(all[len(all)-1].Messages, "user").Media {
					types = append(types, m.Type)
				}
				return types
			},
			Prompt: func(_ *testing.T, text string, steps ...providertest.Step) string {
				if len(steps) == 0 {
					return text
				}
				return text + "\n" + modelserver.Script(script(steps)...)
			},
			System: func() string {
				all := api.Requests()
				return all[len(all)-1].System
			},
			Received: func(text string) bool {
				for _, r := range api.Requests() {
					if r.Contains(text) {
						return true
					}
				}
				return false
			},
			Wait: func(ctx context.Context, answers int) error {
				_, err := api.Wait(ctx, func(r modelserver.Request) bool {
					n := 0
					for _, m := range r.Messages {
						if m.Role == "assistant" {
							n++
						}
					}
					return n >= answers
				})
				return err
			},
		}
	})
}

func last(all []modelserver.Message, role string) modelserver.Message {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Role == role {
			return all[i]
		}
	}
	return modelserver.Message{}
}

func script(steps []providertest.Step) []modelserver.Step {
	var out []modelserver.Step
	for _, s := range steps {
		step := modelserver.Step{Text: s.Text, Repeat: s.Repeat, Status: s.Status}
		if s.Silent {
			step.Gate = "never"
		}
		switch {
		case s.Tool == "no_such_tool":
			step.Tools = []modelserver.Tool{{Name: s.Tool}}
		case s.Tool != "":
			step.Tools = []modelserver.Tool{{Name: s.Tool, Namespace: "mcp__nanoclaw", Input: json.RawMessage(s.Args)}}
		case s.Shell != "":
			input, err := json.Marshal(map[string]any{"cmd": s.Shell})
			if err != nil {
				panic(err)
			}
			step.Tools = []modelserver.Tool{{Name: "exec_command", Input: input}}
		}
		out = append(out, step)
	}
	return out
}

// No secret stands in the arguments of the CLI, nor the key in the environment of its shells.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	cli, home, cwd, api := program(t), t.TempDir(), t.TempDir(), model(t)
	p, err := codex.New(options(cli, home, api.URL()))
	if err != nil {
		t.Fatal(err)
	}
	in := provider.QueryInput{Cwd: cwd, Input: provider.Input{ID: "a", Text: "go " + modelserver.Script(
		modelserver.Step{Tools: []modelserver.Tool{{Name: "exec_command", Input: json.RawMessage(`{"cmd":"tr '\\0' '\\n' < /proc/$PPID/cmdline; echo; env"}`)}}},
		modelserver.Step{Text: "done"},
	)}, MCP: []provider.MCPServer{{Name: "late", URL: "http://127.0.0.1:9/", Headers: map[string]string{"Authorization": "Bearer hush-hush-hush"}}}}
	q, err := p.Query(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for e := range q.Events() {
		if e.Kind == provider.Result {
			q.End()
		}
	}
	if err := q.Err(); err != nil {
		t.Fatal(err)
	}
	var out string
	for _, r := range api.Requests() {
		if got := r.Header.Get("Authorization"); got != "Bearer "+placeholder {
			t.Errorf("request with key %q", got)
		}
		for _, m := range r.Messages {
			for _, res := range m.Results {
				out = res.Text
			}
		}
	}
	args, env, ok := strings.Cut(out, "\n\n")
	if !ok || !strings.Contains(args, "app-server") || !strings.Contains(env, "HOME=") {
		t.Fatalf("unexpected output of the tool: %q", out)
	}
	if strings.Contains(out, placeholder) || strings.Contains(out, "hush-hush") {
		t.Errorf("a secret in the sight of a shell: %s", out)
	}
}

// The models of the catalogue call everything from within one tool that runs a script: its calls are tool events all the same.
func TestCodeMode(t *testing.T) {
	t.Parallel()
	cli, api := program(t), model(t)
	opt := options(cli, t.TempDir(), api.URL())
	opt.Model, opt.Effort = "gpt-6.2-sol", ""
	p, err := codex.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Input: provider.Input{ID: "a", Text: "go " + modelserver.Script(
		modelserver.Step{Text: "Looking.", Tools: []modelserver.Tool{{Name: "exec", Custom: `const r = await tools.exec_command({cmd: "echo inside $((6*7))"}); text(JSON.stringify(r));`}}},
		modelserver.Step{Text: "Done."},
	)}})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for e := range q.Events() {
		switch e.Kind {
		case provider.Text, provider.ToolStart, provider.ToolEnd:
			order = append(order, string(e.Kind)+" "+e.Tool+e.Text)
		case provider.Result:
			q.End()
		}
	}
	if got, want := strings.Join(order, "|"), "text Looking.|tool_start shell|tool_end shell|text Done."; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	all := api.Requests()
	if !all[len(all)-1].Contains("inside 42") {
		t.Error("the model did not get the output")
	}
}
