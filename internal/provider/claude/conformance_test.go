package claude_test

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
	"nanoclaw/internal/provider/claude"
	"nanoclaw/internal/provider/providertest"
	"nanoclaw/internal/testkit/modelserver"
)

// program is the real CLI: NANOCLAW_TEST_CLAUDE, else what scripts/fetch-claude left in the cache.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("NANOCLAW_TEST_CLAUDE")
	if path == "" {
		cache := os.Getenv("NANOCLAW_CACHE")
		if cache == "" {
			cache = "../../../.cache"
		}
		arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
		if arch == "" {
			arch = runtime.GOARCH
		}
		path = filepath.Join(cache, "claude-code-linux-"+arch+"-"+claude.NewestTested, "claude")
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the claude CLI is missing (scripts/fetch-claude gets it): %v", err)
		}
		t.Skipf("the claude CLI is missing (scripts/fetch-claude gets it): %v", err)
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

func options(program, home, url string) claude.Options {
	return claude.Options{
		Program: program, Home: home, Model: "sonnet", Effort: "low",
		Env: map[string]string{
			"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": placeholder, "CLAUDE_CODE_MAX_RETRIES": "1", "TMPDIR": home,
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	cli := program(t)
	providertest.Run(t, func(t *testing.T) *providertest.Subject {
		home, cwd, api := t.TempDir(), t.TempDir(), model(t)
		build := func(t *testing.T, change func(*claude.Options)) provider.Provider {
			opt := options(cli, home, api.URL())
			change(&opt)
			p, err := claude.New(opt)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		return &providertest.Subject{
			Cwd: cwd, Stale: "11111111-1111-4111-8111-111111111111", Statuses: true, Shell: true, Long: true, Program: true,
			New: func(t *testing.T, _ *providertest.Tools) provider.Provider {
				return build(t, func(o *claude.Options) { o.KeepAlive = 200 * time.Millisecond })
			},
			Quiet: 1500 * time.Millisecond,
			Watchdog: func(t *testing.T, _ *providertest.Tools, silence time.Duration) provider.Provider {
				return build(t, func(o *claude.Options) { o.Silence = silence })
			},
			Spontaneous: func(_ *testing.T, text, first, second string) string {
				command := json.RawMessage(`{"command":"read -t 5 line < <(sleep 9); true","run_in_background":true}`)
				return text + "\n" + modelserver.Script(modelserver.Step{Tools: []modelserver.Tool{{Name: "Bash", Input: command}}}, modelserver.Step{Text: first}, modelserver.Step{Text: second})
			},
			Shown: func() []string {
				all := api.Requests()
				var types []string
				for _, m := range all[len(all)-1].Messages {
					if m.Role != "user" {
						continue
					}
					types = nil
					for _, shown := range m.Media {
						types = append(types, shown.Type)
					}
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
			step.Tools = []modelserver.Tool{{Name: "mcp__nanoclaw__" + s.Tool, Input: json.RawMessage(s.Args)}}
		case s.Shell != "":
			input, err := json.Marshal(map[string]any{"command": s.Shell, "timeout": 120_000})
			if err != nil {
				panic(err)
			}
			step.Tools = []modelserver.Tool{{Name: "Bash", Input: input}}
		}
		out = append(out, step)
	}
	return out
}

// No secret stands in the arguments of the CLI, and nothing of our own environment in its.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	cli, home, cwd, api := program(t), t.TempDir(), t.TempDir(), model(t)
	p, err := claude.New(options(cli, home, api.URL()))
	if err != nil {
		t.Fatal(err)
	}
	in := provider.QueryInput{Cwd: cwd, Input: provider.Input{ID: "a", Text: "go " + modelserver.Script(
		modelserver.Step{Tools: []modelserver.Tool{{Name: "Bash", Input: json.RawMessage(`{"command":"tr '\\0' '\\n' < /proc/$PPID/cmdline; echo; env"}`)}}},
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
		if r.Header.Get("X-Api-Key") != placeholder {
			t.Errorf("request with key %q", r.Header.Get("X-Api-Key"))
		}
		for _, m := range r.Messages {
			for _, res := range m.Results {
				out = res.Text
			}
		}
	}
	args, env, ok := strings.Cut(out, "\n\n")
	if !ok || !strings.Contains(args, "--await-initialize") {
		t.Fatalf("unexpected output of the tool: %q", out)
	}
	if strings.Contains(args, placeholder) || strings.Contains(args, "hush-hush") {
		t.Errorf("a secret in the arguments: %s", args)
	}
	for _, name := range []string{"GOPATH=", "GOFLAGS=", "CI=", "OLDPWD=/"} {
		if v := os.Getenv(strings.TrimSuffix(name, "=")); v != "" && strings.Contains(env, "\n"+name+v) {
			t.Errorf("inherited %s", name)
		}
	}
}
