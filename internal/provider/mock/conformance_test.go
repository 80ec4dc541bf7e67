package mock_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/mock"
	"nanoclaw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object map[string]any

func TestConformance(t *testing.T) {
	providertest.Run(t, func(t *testing.T) *providertest.Subject {
		cwd, home := t.TempDir(), t.TempDir()
		script := filepath.Join(cwd, mock.ScriptName)
		// the capabilities are those of a script that takes input; this line is never played
		if err := os.WriteFile(script, []byte(`{"match":"^never$","events":[{"type":"take"}]}`+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		prompts := 0
		return &providertest.Subject{
			Cwd: cwd, Stale: "mock-01",
			New: func(_ *testing.T, tools *providertest.Tools) provider.Provider {
				return mock.New(mock.Options{Script: script, Home: home, CallTool: tools.Call, KeepAlive: 100 * time.Millisecond})
			},
			Quiet: 1500 * time.Millisecond,
			Spontaneous: func(t *testing.T, text, first, second string) string {
				prompts++
				text = fmt.Sprintf("%s #%d", text, prompts)
				appendLine(t, script, object{"match": regexp.QuoteMeta(text) + "$", "events": append(events([]providertest.Step{{Text: first}}), events([]providertest.Step{{Text: second}})...)})
				return text
			},
			Prompt: func(t *testing.T, text string, steps ...providertest.Step) string {
				prompts++
				text = fmt.Sprintf("%s #%d", text, prompts)
				appendLine(t, script, object{"match": regexp.QuoteMeta(text) + "$", "events": events(steps)})
				return text
			},
		}
	})
}

func events(steps []providertest.Step) []object {
	out := []object{}
	last := ""
	for _, s := range steps {
		if s.Text != "" {
			last = s.Text
			out = append(out, object{"type": "text", "text": s.Text})
		}
		if s.Tool != "" {
			out = append(out, object{"type": "tool", "name": s.Tool, "args": json.RawMessage(s.Args)})
		}
		if s.Take {
			out = append(out, object{"type": "take"})
		}
	}
	return append(out, object{"type": "result", "text": last})
}

func appendLine(t *testing.T, path string, line object) {
	t.Helper()
	b, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
