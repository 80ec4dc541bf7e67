package codex_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/codex"
)

// recording names a file of lines {"in": request} and {"out": message}, recorded from the real CLI.
const recording = "FAKE_CODEX"

type recorded struct {
	In *struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	} `json:"in"`
	Out map[string]json.RawMessage `json:"out"`
}

// replay is the fake CLI: it says what the real one said, each time it is asked the next thing that the real one was asked.
func replay(path string) int {
	file, err := os.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	in, lines := bufio.NewReader(os.Stdin), bufio.NewReader(file)
	ids := map[string]json.RawMessage{} // recorded → now
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var r recorded
		if err := json.Unmarshal(text, &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if r.In == nil {
			if id := r.Out["id"]; r.Out["method"] == nil && ids[string(id)] != nil {
				r.Out["id"] = ids[string(id)]
			}
			out, err := json.Marshal(r.Out)
			if err != nil {
				return 2
			}
			fmt.Println(string(out))
			continue
		}
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0 // its input was closed
		}
		var got struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(line, &got); err != nil || got.Method != r.In.Method {
			fmt.Fprintf(os.Stderr, "asked for %s, the recording has %s\n", got.Method, r.In.Method)
			return 3
		}
		ids[string(r.In.ID)] = got.ID
	}
	for {
		if _, err := in.ReadBytes('\n'); err != nil {
			return 0
		}
	}
}

func fake(t *testing.T, file string, change func(*codex.Options)) *codex.Provider {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	opt := codex.Options{Program: self, Home: t.TempDir(), BaseURL: "http://127.0.0.1:1/v1", Key: placeholder, Env: map[string]string{recording: path}}
	if change != nil {
		change(&opt)
	}
	p, err := codex.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func until(t *testing.T, q provider.Query, kind provider.Kind) (events []string, last provider.Event) {
	t.Helper()
	for {
		select {
		case e, ok := <-q.Events():
			if !ok {
				t.Fatalf("the events ended before %s: %v; seen %q", kind, q.Err(), events)
			}
			switch e.Kind {
			case provider.Activity:
			case provider.Text, provider.ToolStart, provider.ToolEnd, provider.Taken, provider.Init:
				events = append(events, strings.TrimSpace(string(e.Kind)+" "+e.Text+e.Tool+e.InputID))
			default:
				events = append(events, string(e.Kind))
			}
			if e.Kind == kind {
				return events, e
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no %s; seen %q", kind, events)
		}
	}
}

// A recorded session, event by event: a turn with a tool, one that fails, one that is interrupted while a prompt waits. The CLI forgets
// that prompt; it is sent again and answered.
func TestRecordedSession(t *testing.T) {
	t.Parallel()
	p := fake(t, "testdata/session.jsonl", nil)
	q, err := p.Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Input: provider.Input{ID: "a", Text: "add"}})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Abort()
	check := func(what string, events []string, want string) {
		t.Helper()
		if got := strings.Join(events, "|"); got != want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, want)
		}
	}
	push := func(id string) {
		t.Helper()
		if err := q.Push(t.Context(), provider.Input{ID: id, Text: id}); err != nil {
			t.Fatal(err)
		}
	}
	events, result := until(t, q, provider.Result)
	check("the first turn", events, "init|taken a|text Adding.|tool_start mcp__nanoclaw__add|tool_end mcp__nanoclaw__add|text Five.|result")
	if result.Text != "Five." || result.Usage.InputTokens != 200 || result.Usage.OutputTokens != 20 {
		t.Errorf("result %+v, usage %+v", result, result.Usage)
	}
	push("b")
	events, result = until(t, q, provider.Result)
	if result.Class != provider.ClassAuth || result.Retryable || !result.IsError || strings.Contains(result.Notice, "401") {
		t.Errorf("the second turn: %q, %+v", events, result)
	}
	push("c")
	events, _ = until(t, q, provider.ToolStart)
	check("the third turn", events, "taken c|text Waiting.|tool_start mcp__nanoclaw__block")
	push("d")
	if err := q.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, result = until(t, q, provider.Result)
	check("its end", events, "tool_end mcp__nanoclaw__block|result")
	if !result.Interrupted || result.IsError {
		t.Errorf("interrupted: %+v", result)
	}
	events, _ = until(t, q, provider.Result)
	check("the prompt that waited", events, "taken d|text Eggs.|result")
	q.End()
	for range q.Events() {
	}
	if err := q.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
}

// A CLI that ends by itself, or talks nonsense, ends the query with an error that says so and keeps the conversation.
func TestBrokenCLI(t *testing.T) {
	t.Parallel()
	write := func(lines string) string {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, lines, want string
		invalid           bool
		continuation      string
	}{
		{"another order", `{"in":{"id":1,"method":"other"}}` + "\n", "the recording has other", false, ""},
		{"refused", `{"in":{"id":1,"method":"initialize"}}` + "\n" + `{"out":{"id":1,"error":{"code":-1,"message":"no ` + placeholder + `"}}}` + "\n", "[secret]", false, ""},
		{"unknown thread", `{"in":{"id":1,"method":"initialize"}}` + "\n" + `{"out":{"id":1,"result":{}}}` + "\n" + `{"in":{"method":"initialized"}}` + "\n" +
			`{"in":{"id":2,"method":"thread/resume"}}` + "\n" + `{"out":{"id":2,"error":{"code":-32600,"message":"no rollout found for thread id x"}}}` + "\n", "no rollout", true, "11111111-1111-4111-8111-111111111111"},
		{"silent", "", "no thread within", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, write(c.lines), func(o *codex.Options) { o.InitWait = 2 * time.Second })
			q, err := p.Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Continuation: c.continuation, Input: provider.Input{ID: "a", Text: "hi"}})
			if err != nil {
				t.Fatal(err)
			}
			for e := range q.Events() {
				if e.Kind == provider.Result || e.Kind == provider.Text {
					t.Errorf("event %+v", e)
				}
			}
			if err := q.Err(); err == nil || !strings.Contains(err.Error(), c.want) || p.IsSessionInvalid(err) != c.invalid {
				t.Errorf("Err: %v", err)
			}
			if err := q.Err(); strings.Contains(fmt.Sprint(err), placeholder) {
				t.Errorf("a secret in %v", err)
			}
		})
	}
}
