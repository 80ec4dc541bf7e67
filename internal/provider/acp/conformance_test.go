package acp_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/acp"
	"nanoclaw/internal/provider/providertest"
	"nanoclaw/internal/testkit/modelserver"
)

// opencodeVersion is that of scripts/fetch-opencode.
const opencodeVersion = "1.18.33"

// program is an agent that speaks the protocol, opencode: NANOCLAW_TEST_OPENCODE, else what scripts/fetch-opencode left in the cache.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("NANOCLAW_TEST_OPENCODE")
	if path == "" {
		cache := os.Getenv("NANOCLAW_CACHE")
		if cache == "" {
			cache = "../../../.cache"
		}
		arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
		if arch == "" {
			arch = runtime.GOARCH
		}
		path = filepath.Join(cache, "opencode-linux-"+arch+"-"+opencodeVersion, "bin", "opencode")
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the opencode program is missing (scripts/fetch-opencode gets it): %v", err)
		}
		t.Skipf("the opencode program is missing (scripts/fetch-opencode gets it): %v", err)
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

func options(program, home, url string) acp.Options {
	return acp.Options{Command: []string{program, "acp"}, Home: home, Env: map[string]string{
		"TMPDIR": home, "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1",
		"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
		"OPENCODE_CONFIG_CONTENT": `{"model":"anthropic/scripted","small_model":"anthropic/scripted","enabled_providers":["anthropic"],"permission":"allow","autoupdate":false,"share":"disabled",` +
			`"provider":{"anthropic":{"npm":"@ai-sdk/anthropic","options":{"baseURL":"` + url + `/v1","apiKey":"` + placeholder + `"},"models":{"scripted":{"tool_call":true}}}}}`,
	}}
}

// inShort is the part of the suite that depends on the protocol. What the child process, the commands and the memory have in common
// with other providers is tested there; NANOCLAW_TEST_LONG=1 runs all of it here too, five minutes of two processors.
func inShort() []string {
	if os.Getenv("NANOCLAW_TEST_LONG") != "" {
		return nil
	}
	return []string{"one turn", "tool", "interrupt and go on", "resume in a new process with other instructions", "stale continuation", "abort leaves no process",
		"PRV-7 killed in a tool", "a text that looks like a command", "attachments", "watchdog", "end finishes what is queued"}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	cli := program(t)
	providertest.Run(t, func(t *testing.T) *providertest.Subject {
		home, cwd, api := t.TempDir(), t.TempDir(), model(t)
		build := func(t *testing.T, change func(*acp.Options)) provider.Provider {
			opt := options(cli, home, api.URL())
			change(&opt)
			p, err := acp.New(opt)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		return &providertest.Subject{
			Cwd: cwd, Stale: "ses_dcfbbec8bffec6vUavsuC2pJhX", Shell: true, Long: true, Program: true,
			New: func(t *testing.T, _ *providertest.Tools) provider.Provider {
				return build(t, func(o *acp.Options) { o.KeepAlive = 300 * time.Millisecond })
			},
			Quiet:   time.Second,
			Silence: 12 * time.Second,
			Watchdog: func(t *testing.T, _ *providertest.Tools, silence time.Duration) provider.Provider {
				return build(t, func(o *acp.Options) { o.Silence = silence })
			},
			Prompt: func(_ *testing.T, text string, steps ...providertest.Step) string {
				if len(steps) == 0 {
					return text
				}
				return text + "\n" + modelserver.Script(script(steps)...)
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
	}, inShort()...)
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
			step.Tools = []modelserver.Tool{{Name: "nanoclaw_" + s.Tool, Input: json.RawMessage(s.Args)}}
		case s.Shell != "":
			input, err := json.Marshal(map[string]any{"command": s.Shell, "description": "work", "timeout": 120_000})
			if err != nil {
				panic(err)
			}
			step.Tools = []modelserver.Tool{{Name: "bash", Input: input}}
		}
		out = append(out, step)
	}
	return out
}
