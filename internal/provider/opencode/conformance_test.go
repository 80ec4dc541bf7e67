package opencode_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
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
	s, err := modelserver.Start(modelserver.Options{OnlyOffered: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// A turn with a tool, a summary and a failure, by each of the other APIs that the program reaches a model by.
func TestOtherModels(t *testing.T) {
	t.Parallel()
	cli := program(t)
	for name, path := range map[string]string{opencode.OpenAI: "/v1/responses", opencode.Ollama: "/v1/chat/completions"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := model(t)
			opt := options(cli, t.TempDir(), api.URL())
			opt.API, opt.Model, opt.ContextTokens = name, "vendor/some-model:8b", 100_000
			if name == opencode.Ollama {
				opt.Key = "" // it wants none
			}
			p, err := opencode.New(opt)
			if err != nil {
				t.Fatal(err)
			}
			next := []string{
				"remember the heron " + modelserver.Script(modelserver.Step{Text: "Looking.", Tools: []modelserver.Tool{{Name: "bash", Input: json.RawMessage(`{"command":"echo $((6*7))","description":"count"}`)}}}, modelserver.Step{Text: "It is 42."}),
				"/compact",
				"and now? " + modelserver.Script(modelserver.Step{Status: 401}),
			}
			q, err := p.Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Instructions: "speak of birds", Input: provider.Input{ID: "0", Text: next[0]}})
			if err != nil {
				t.Fatal(err)
			}
			var results []provider.Event
			for e := range q.Events() {
				if e.Kind != provider.Result {
					continue
				}
				if results = append(results, e); len(results) == len(next) {
					q.End()
				} else if err := q.Push(t.Context(), provider.Input{ID: "n", Text: next[len(results)]}); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Err(); err != nil || len(results) != 3 {
				t.Fatalf("%d results, %v", len(results), err)
			}
			if r := results[0]; r.Text != "It is 42." || r.IsError || r.Usage.InputTokens != 200 {
				t.Errorf("a turn: %+v, usage %+v", r, r.Usage)
			}
			if r := results[1]; r.IsError || r.Text == "" {
				t.Errorf("the command: %+v", r)
			}
			if r := results[2]; r.Class != provider.ClassAuth || !r.IsError {
				t.Errorf("a refused key: %+v", r)
			}
			for _, r := range api.Requests() {
				if r.Path != path || r.Model != opt.Model {
					t.Errorf("request %s of model %s", r.Path, r.Model)
				}
				if key := r.Header.Get("Authorization"); opt.Key != "" && key != "Bearer "+opt.Key || opt.Key == "" && key != "" && key != "Bearer" {
					t.Errorf("request with %q", key)
				}
			}
			if !api.Requests()[1].Contains("42") || api.Requests()[0].System == "" {
				t.Error("the output or the instructions did not reach the model")
			}
		})
	}
}

// A summary that fails is told as a failure, and the next prompt is answered.
func TestSummaryFails(t *testing.T) {
	t.Parallel()
	cli, api := program(t), modelserver.New(modelserver.Options{OnlyOffered: true})
	var refuse atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"not now"}}`)
			return
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	p, err := opencode.New(options(cli, t.TempDir(), web.URL))
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Input: provider.Input{ID: "a", Text: "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	var results []provider.Event
	for e := range q.Events() {
		if e.Kind != provider.Result {
			continue
		}
		results = append(results, e)
		next := ""
		switch len(results) {
		case 1:
			next = "/compact"
		case 2:
			next = "and now? " + modelserver.Script(modelserver.Step{Text: "Still here."})
		default:
			q.End()
			continue
		}
		refuse.Store(len(results) == 1)
		if err := q.Push(t.Context(), provider.Input{ID: "n", Text: next}); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Err(); err != nil || len(results) != 3 {
		t.Fatalf("%v; %+v", err, results)
	}
	if r := results[1]; !r.IsError || r.Text != "" || !strings.Contains(r.Message, "not now") {
		t.Errorf("the command: %+v", r)
	}
	if r := results[2]; r.IsError || r.Text != "Still here." {
		t.Errorf("after it: %+v", r)
	}
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
			Cwd: cwd, Stale: "ses_dcfbbec8bffec6vUavsuC2pJhX", Statuses: true, Shell: true, Long: true, Program: true,
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
