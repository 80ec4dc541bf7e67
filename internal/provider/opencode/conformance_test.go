package opencode_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/opencode"
	"nanoclaw/internal/provider/providertest"
	"nanoclaw/internal/testkit/modelserver"
)

// program is the real CLI: NANOCLAW_TEST_OPENCODE, else what scripts/fetch-opencode left in the cache.
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
		path = filepath.Join(cache, "opencode-linux-"+arch+"-"+opencode.Tested, "bin", "opencode")
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

func options(program, home, url string) opencode.Options {
	return opencode.Options{
		Program: program, Home: home, Model: "scripted", BaseURL: url + "/v1", Key: placeholder, Retries: 1,
		Env: map[string]string{"TMPDIR": home, "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	cli := program(t)
	providertest.Run(t, func(t *testing.T) *providertest.Subject {
		home, cwd, api := t.TempDir(), t.TempDir(), model(t)
		build := func(t *testing.T, change func(*opencode.Options)) provider.Provider {
			opt := options(cli, home, api.URL())
			change(&opt)
			p, err := opencode.New(opt)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		return &providertest.Subject{
			Cwd: cwd, Stale: "ses_dcfbbec8bffec6vUavsuC2pJhX", Statuses: true, Shell: true,
			New: func(t *testing.T, _ *providertest.Tools) provider.Provider {
				return build(t, func(o *opencode.Options) { o.KeepAlive = 300 * time.Millisecond })
			},
			Quiet:   time.Second,
			Silence: 12 * time.Second,
			Watchdog: func(t *testing.T, _ *providertest.Tools, silence time.Duration) provider.Provider {
				return build(t, func(o *opencode.Options) { o.Silence = silence })
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
		step := modelserver.Step{Text: s.Text, Status: s.Status}
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
