package native_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native"
	"nanoclaw/internal/provider/native/wire"
	"nanoclaw/internal/provider/native/wire/anthropic"
	"nanoclaw/internal/provider/native/wire/ollama"
	"nanoclaw/internal/provider/native/wire/openai"
	"nanoclaw/internal/provider/providertest"
	"nanoclaw/internal/testkit/modelserver"
)

const placeholder = "nanoclaw-placeholder-4711"

// model starts a scripted API.
func model(t *testing.T, opt modelserver.Options) *modelserver.Server {
	t.Helper()
	s, err := modelserver.Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// client has connections of its own, which end with the test.
func client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func endpoint(t *testing.T, url string) wire.Endpoint {
	return wire.Endpoint{URL: url, Client: client(t), First: time.Minute, Idle: time.Minute}
}

// wires are all wires by name.
func wires() map[string]func(wire.Endpoint) wire.Wire {
	return map[string]func(wire.Endpoint) wire.Wire{
		"anthropic": func(e wire.Endpoint) wire.Wire {
			return anthropic.New(anthropic.Options{Endpoint: e, Key: placeholder})
		},
		"openai": func(e wire.Endpoint) wire.Wire { return openai.New(openai.Options{Endpoint: e, Key: placeholder}) },
		"chat": func(e wire.Endpoint) wire.Wire {
			return openai.New(openai.Options{Endpoint: e, Key: placeholder, Chat: true})
		},
		"ollama": func(e wire.Endpoint) wire.Wire { return ollama.New(ollama.Options{Endpoint: e}) },
	}
}

// options of a provider for tests.
func options(t *testing.T, home, url string, made func(wire.Endpoint) wire.Wire) native.Options {
	t.Helper()
	return native.Options{
		Wire: func() wire.Wire { return made(endpoint(t, url)) }, Home: home, HTTP: client(t), Tries: 2, Backoff: time.Millisecond,
		Log: obs.Logger(t.Output(), slog.LevelWarn, false),
	}
}

func make1(t *testing.T, opt native.Options) *native.Provider {
	t.Helper()
	p, err := native.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, made := range wires() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, func(t *testing.T) *providertest.Subject {
				home, cwd, api := t.TempDir(), t.TempDir(), model(t, modelserver.Options{})
				sub := &providertest.Subject{
					Cwd: cwd, Stale: "0193a5b2-1111-7111-8111-111111111111", Statuses: true, Shell: true, Long: true,
					New: func(t *testing.T, _ *providertest.Tools) provider.Provider {
						opt := options(t, home, api.URL(), made)
						opt.Pulse = 50 * time.Millisecond
						return make1(t, opt)
					},
					Block: time.Second, Quiet: 300 * time.Millisecond,
					Watchdog: func(t *testing.T, _ *providertest.Tools, silence time.Duration) provider.Provider {
						opt := options(t, home, api.URL(), made)
						opt.Wire = func() wire.Wire {
							e := endpoint(t, api.URL())
							e.First, e.Idle = silence, silence
							return made(e)
						}
						return make1(t, opt)
					},
					Spontaneous: func(_ *testing.T, text, first, second string) string {
						bash := call("Bash", map[string]any{"command": "read -t 0.5 line < <(sleep 9); true", "run_in_background": true})
						return text + "\n" + modelserver.Script(modelserver.Step{Tools: []modelserver.Tool{bash}}, modelserver.Step{Text: first}, modelserver.Step{Text: second})
					},
					Shown: func() []string {
						all := api.Requests()
						var types []string
						for _, m := range all[len(all)-1].Messages {
							if m.Role == "user" {
								types = nil
								for _, shown := range m.Media {
									types = append(types, shown.Type)
								}
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
				if name != "anthropic" { // what these wait for is the same code for every wire
					sub.Quiet, sub.Watchdog, sub.Spontaneous, sub.Block = 0, nil, nil, 100*time.Millisecond
				}
				return sub
			})
		})
	}
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
			step.Tools = []modelserver.Tool{call("Bash", map[string]any{"command": s.Shell, "timeout": 120_000})}
		}
		out = append(out, step)
	}
	return out
}

func call(name string, args any) modelserver.Tool {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return modelserver.Tool{Name: name, Input: b}
}
