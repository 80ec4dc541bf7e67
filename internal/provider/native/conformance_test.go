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
				return &providertest.Subject{
					Cwd: cwd, Stale: "0193a5b2-1111-7111-8111-111111111111", Statuses: true, Shell: true,
					New: func(t *testing.T, _ *providertest.Tools) provider.Provider {
						return make1(t, options(t, home, api.URL(), made))
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
		})
	}
}

func script(steps []providertest.Step) []modelserver.Step {
	var out []modelserver.Step
	for _, s := range steps {
		step := modelserver.Step{Text: s.Text, Status: s.Status}
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
