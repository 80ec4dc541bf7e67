package claude

import (
	"encoding/json"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]bool{OldestTested: true, NewestTested: true, "2.1.300": true, "2.1.260": false, "2.2.0": false, "1.9.999": false, "": false, "x.y": false, "2.1.333-beta": false} {
		if got := tested(v); got != want {
			t.Errorf("%q: %v", v, got)
		}
	}
}

// sent keeps what a query writes.
type sent struct {
	lines  [][]byte
	closed bool
}

func (s *sent) CloseInput() { s.closed = true }

func (s *sent) Send(v any) error {
	b, err := json.Marshal(v)
	s.lines = append(s.lines, b)
	return err
}

// detached is a query without a process.
func detached(t testing.TB, p *Provider) *query {
	q := &query{
		p: p, log: p.opt.Log, changed: make(chan struct{}), exited: make(chan struct{}), inputs: map[string]prompt{"u": {Input: provider.Input{ID: "a"}}},
		tools: map[string]string{}, answers: map[string]chan error{}, stdin: &sent{}, events: child.NewQueue(), watch: time.NewTimer(time.Hour),
		alive: time.NewTimer(time.Hour), rules: newRules(nil),
	}
	q.watch.Stop()
	q.alive.Stop()
	t.Cleanup(func() {
		q.events.Close()
		for range q.events.Events() {
		}
	})
	return q
}

// Whatever the CLI writes, reading it neither fails nor blocks.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"type":"system","subtype":"init","session_id":"x","mcp_servers":[{"name":"a","status":"failed"}]}`))
	f.Add([]byte(`{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"x"}]}}`))
	f.Add([]byte(`{"type":"result","is_error":true,"errors":["No conversation"],"usage":{"input_tokens":5}}`))
	f.Add([]byte(`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1e300}}`))
	f.Add([]byte(`{"type":"control_request","request_id":"a","request":{"subtype":"hook_callback","callback_id":"PreToolUse","input":{"tool_name":"Bash","tool_input":{"timeout":-1}}}}`))
	f.Add([]byte(`{"type":"command_lifecycle","command_uuid":"u","state":"started"}`))
	p, err := New(Options{Program: "/claude", Home: "/home"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		q := detached(t, p)
		q.line(line)
		q.work.Wait()
		if q.err != nil {
			t.Fatalf("a line of a conversation that was not resumed, without servers, ended it: %v", q.err)
		}
	})
}
