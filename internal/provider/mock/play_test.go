package mock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/mock"
)

// agent is a folder with a script.
func agent(t *testing.T, script ...string) mock.Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), mock.ScriptName)
	if err := os.WriteFile(path, []byte(strings.Join(script, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return mock.Options{Script: path, Home: t.TempDir(), Exit: func(int) {}}
}

// talk sends prompts one after the other and renders the events of each.
func talk(t *testing.T, opt mock.Options, continuation string, prompts ...string) (lines []string, last string) {
	t.Helper()
	q, err := mock.New(opt).Query(t.Context(), provider.QueryInput{Continuation: continuation, Input: provider.Input{ID: "p0", Text: prompts[0]}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for e := range q.Events() {
		switch e.Kind {
		case provider.Activity:
			continue
		case provider.Init:
			last = e.Continuation
			continue
		case provider.Result:
			if n++; n < len(prompts) {
				if err := q.Push(t.Context(), provider.Input{ID: fmt.Sprint("p", n), Text: prompts[n]}); err != nil {
					t.Error(err)
				}
			} else {
				q.End()
			}
		}
		s := string(e.Kind)
		for _, v := range []string{e.Text, e.Tool, e.Message, e.InputID} {
			if v != "" {
				s += " " + v
			}
		}
		if e.IsError {
			s += " error"
		}
		if e.Retryable {
			s += " retryable"
		}
		lines = append(lines, s)
	}
	if err := q.Err(); err != nil {
		lines = append(lines, "err "+err.Error())
	}
	return lines, last
}

func TestPlay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script  []string
		prompts []string
		want    []string
	}{
		"texts as they are cut, the result repeats them": {
			[]string{`{"events":[{"type":"text","text":"<mess"},{"type":"text","text":"age to=\"a\">x</message>"},{"type":"result","text":"<message to=\"a\">x</message>"}]}`},
			[]string{"hi"}, []string{"text <mess", `text age to="a">x</message>`, `result <message to="a">x</message>`},
		},
		"a result that was not streamed is": {
			[]string{`{"events":[{"type":"result","text":"only here"}]}`}, []string{"hi"}, []string{"text only here", "result only here"},
		},
		"also after other texts": {
			[]string{`{"events":[{"type":"text","text":"a"},{"type":"result","text":"b"}]}`}, []string{"hi"}, []string{"text a", "text b", "result b"},
		},
		"no result: the last text": {
			[]string{`{"events":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`}, []string{"hi"}, []string{"text a", "text b", "result b"},
		},
		"silence": {[]string{`{"events":[]}`}, []string{"hi"}, []string{"result"}},
		"an error result is not streamed": {
			[]string{`{"events":[{"type":"result","text":"boom","isError":true}]}`}, []string{"hi"}, []string{"result boom error"},
		},
		"an error at the end": {
			[]string{`{"events":[{"type":"text","text":"a"},{"type":"error","message":"boom","retryable":true},{"type":"activity"}]}`},
			[]string{"hi"}, []string{"text a", "error boom retryable", "result boom error retryable"},
		},
		"an error that was overcome": {
			[]string{`{"events":[{"type":"error","message":"boom"},{"type":"text","text":"a"}]}`}, []string{"hi"}, []string{"error boom", "text a", "result a"},
		},
		"tools": {
			[]string{`{"events":[{"type":"tool","name":"good","args":{"x":1}},{"type":"tool","name":"other"},{"type":"result","text":"a"}]}`},
			[]string{"hi"}, []string{"tool_start good", "tool_end good", "tool_start other", "tool_end other", "progress tool other failed: unknown tool other", "text a", "result a"},
		},
		"a turn nobody asked for": {
			[]string{`{"events":[{"type":"result","text":"a"},{"type":"sleep","ms":1},{"type":"result","text":"b"}]}`},
			[]string{"hi", "again"}, []string{"text a", "result a", "text b", "result b"},
		},
		"in order, passed over, then echo": {
			[]string{`{"match":"^b","events":[{"type":"text","text":"B"}]}`, ``, `{"events":[{"type":"text","text":"1"}]}`, `{"match":"[ab]","events":[{"type":"text","text":"2"}]}`},
			[]string{"a", "a", "b", "b"}, []string{"text 1", "result 1", "text 2", "result 2", "text B", "result B", "text b", "result b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := agent(t, c.script...)
			opt.CallTool = func(_ context.Context, name string, args json.RawMessage) (string, error) {
				if name != "good" || string(args) != `{"x":1}` {
					return "", errors.New("unknown tool " + name)
				}
				return "fine", nil
			}
			got, _ := talk(t, opt, "", c.prompts...)
			if name == "a turn nobody asked for" {
				got = got[:4] // the second prompt is answered by echo, before or after the extra turn ended
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A new process goes on at the right line; a line whose result was not stored is played again.
func TestPositionSurvives(t *testing.T) {
	t.Parallel()
	opt := agent(t, `{"match":"never","events":[]}`, `{"events":[{"type":"text","text":"1"}]}`, `{"events":[{"type":"text","text":"2"}]}`)
	got, at := talk(t, opt, "", "x")
	if at != "mock-0.2" || got[0] != "text 1" {
		t.Errorf("%v at %s", got, at)
	}
	if got, at = talk(t, opt, at, "x", "x"); got[0] != "text 2" || got[2] != "text x" || at != "mock-0.2.3" {
		t.Errorf("%v at %s", got, at)
	}
	if got, _ = talk(t, opt, "mock-0.2", "x"); got[0] != "text 2" {
		t.Errorf("again: %v", got)
	}
}

// A line that ends the process is played once, although no continuation was ever stored.
func TestExit(t *testing.T) {
	t.Parallel()
	opt := agent(t, `{"events":[{"type":"text","text":"dying"},{"type":"exit","code":7},{"type":"text","text":"never"}]}`, `{"events":[{"type":"text","text":"alive"}]}`)
	code := 0
	opt.Exit = func(c int) { code = c }
	got, _ := talk(t, opt, "", "x")
	want := []string{"text dying", "err play the script: the script ended the process"}
	if diff := cmp.Diff(want, got); diff != "" || code != 7 {
		t.Errorf("code %d: %s", code, diff)
	}
	if got, _ = talk(t, opt, "", "x"); got[0] != "text alive" {
		t.Errorf("after the exit: %v", got)
	}
}

func TestBadScriptIsNoRetry(t *testing.T) {
	t.Parallel()
	opt := agent(t, `{"events":[]}`, `{"events":[{"type":"jump"}]}`)
	p := mock.New(opt)
	_, err := p.Query(t.Context(), provider.QueryInput{Input: provider.Input{Text: "x"}})
	var qe *provider.QueryError
	if !errors.As(err, &qe) || qe.Retryable || p.IsSessionInvalid(err) || !strings.Contains(err.Error(), `line 2: field events[0].type: unknown type "jump"`) {
		t.Errorf("%v", err)
	}
}

// The script may change while the agent runs; a mistake then is an error result, and the query goes on.
func TestScriptIsReadAgain(t *testing.T) {
	t.Parallel()
	opt := agent(t)
	q, err := mock.New(opt).Query(t.Context(), provider.QueryInput{Input: provider.Input{ID: "a", Text: "one"}})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Abort()
	scripts := []string{`{`, `{"events":[{"type":"text","text":"new"}]}`}
	var got []string
	for e := range q.Events() {
		if e.Kind != provider.Result {
			continue
		}
		got = append(got, fmt.Sprint(e.Text, e.IsError))
		if len(got) > len(scripts) {
			q.End()
			continue
		}
		if err := os.WriteFile(opt.Script, []byte(scripts[len(got)-1]), 0o600); err != nil {
			t.Error(err)
		}
		if err := q.Push(t.Context(), provider.Input{ID: "n", Text: "next"}); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"onefalse", "true", "newfalse"}, got); diff != "" {
		t.Error(diff)
	}
}

// An hour's sleep ends at once by Interrupt, and by Abort.
func TestSleepIsInterruptible(t *testing.T) {
	t.Parallel()
	opt := agent(t, `{"events":[{"type":"sleep","ms":3600000},{"type":"text","text":"never"}]}`, `{"events":[{"type":"sleep","ms":3600000}]}`)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q, err := mock.New(opt).Query(t.Context(), provider.QueryInput{Input: provider.Input{ID: "a", Text: "one"}})
		if err != nil {
			t.Fatal(err)
		}
		<-q.Events() // activity
		<-q.Events() // init
		synctest.Wait()
		if err := q.Interrupt(t.Context()); err != nil {
			t.Error(err)
		}
		for e := range q.Events() {
			if e.Kind != provider.Result {
				continue
			}
			if !e.Interrupted || e.IsError {
				t.Errorf("result: %+v", e)
			}
			break
		}
		if err := q.Push(t.Context(), provider.Input{ID: "b", Text: "two"}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		q.Abort()
		for range q.Events() {
			t.Error("an event after Abort")
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}
