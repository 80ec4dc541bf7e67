package acp

import (
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

const (
	answered = `read a; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true}}}}'; `
	opened   = `read b; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s1"}}'; `
)

func agent(t *testing.T, script string) *Provider {
	t.Helper()
	p, err := New(Options{Command: []string{"/bin/sh", "-c", script}, Home: t.TempDir(), Env: map[string]string{"SOME_KEY": "hush-hush-hush"}, InitWait: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// An agent that cannot be used ends the query with an error that says why; only a lost session is a lost session.
func TestUselessAgent(t *testing.T) {
	t.Parallel()
	own := []provider.MCPServer{{Name: container.ReservedMCPServer, URL: "http://127.0.0.1:1"}}
	for _, c := range []struct {
		name, script, continuation, want string
		servers                          []provider.MCPServer
		class                            provider.Class
	}{
		{"ends", `echo hush-hush-hush >&2; exit 3`, "", "exit status 3: [secret]", nil, provider.ClassOther},
		{"another version", `read a; echo '{"id":1,"result":{"protocolVersion":2}}'; cat >/dev/null`, "", "version 2", nil, provider.ClassOther},
		{"no load", `read a; echo '{"id":1,"result":{"protocolVersion":1}}'; cat >/dev/null`, "s1", "cannot load", nil, provider.ClassInvalidSession},
		{"unknown session", answered + `read b; echo '{"id":2,"error":{"code":-32603,"message":"gone"}}'; cat >/dev/null`, "s1", "gone", nil, provider.ClassInvalidSession},
		{"log-in to load", answered + `read b; echo '{"id":2,"error":{"code":-32000,"message":"log in"}}'; cat >/dev/null`, "s1", "log in", nil, provider.ClassAuth},
		{"no session", answered + `read b; echo '{"id":2,"result":{}}'; cat >/dev/null`, "", "names no session", nil, provider.ClassOther},
		{"no tools over HTTP", `read a; echo '{"id":1,"result":{"protocolVersion":1}}'; cat >/dev/null`, "", "cannot reach its own tools", own, provider.ClassOther},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := agent(t, c.script)
			q, err := p.Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Continuation: c.continuation, MCP: c.servers, Input: provider.Input{ID: "a", Text: "hi"}})
			if err != nil {
				t.Fatal(err)
			}
			for range q.Events() {
			}
			failed, ok := q.Err().(*provider.QueryError) //nolint:errorlint // it is exactly that
			if !ok || failed.Class != c.class || !strings.Contains(failed.Error(), c.want) || strings.Contains(failed.Error(), "hush") {
				t.Errorf("Err: %v", q.Err())
			}
			if p.IsSessionInvalid(q.Err()) != (c.class == provider.ClassInvalidSession) {
				t.Errorf("session invalid: %v", q.Err())
			}
		})
	}
}

// What the agent asks is answered: a permission is given, files and terminals are not offered. The answers come back as its words.
func TestQuestionsOfTheAgent(t *testing.T) {
	t.Parallel()
	say := `echo "{\"method\":\"session/update\",\"params\":{\"sessionId\":\"s1\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"messageId\":\"$1\",\"content\":{\"type\":\"text\",\"text\":\"$2\"}}}}"`
	script := `say() { ` + say + `; }; ` + answered + opened + `read c
echo '{"id":"p","method":"session/request_permission","params":{"options":[{"optionId":"no","kind":"reject_once"},{"optionId":"yes","kind":"allow_once"},{"optionId":"ever","kind":"allow_always"}]}}'
read d; case $d in *'"optionId":"ever"'*) say m1 "given";; *) say m1 "$d";; esac
echo '{"id":7,"method":"fs/read_text_file","params":{"path":"/etc/passwd"}}'
read e; case $e in *'-32601'*) say m2 "refused";; *) say m2 "$e";; esac
case $c in *'<instructions>\nBe kind.\n</instructions>'*) say m2 " and told";; esac
echo '{"id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":4}}}'; cat >/dev/null`
	script = strings.ReplaceAll(script, `<instructions>\nBe kind.\n</instructions>`, `Be kind.`)
	q, err := agent(t, script).Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Instructions: "Be kind.", Input: provider.Input{ID: "a", Text: "hi"}})
	if err != nil {
		t.Fatal(err)
	}
	q.End()
	var texts []string
	var result provider.Event
	for e := range q.Events() {
		switch e.Kind {
		case provider.Text:
			texts = append(texts, e.Text)
		case provider.Result:
			result = e
		}
	}
	if got := strings.Join(texts, "|"); got != "given|refused and told" || q.Err() != nil {
		t.Errorf("texts %q, Err %v", got, q.Err())
	}
	if result.Text != "refused and told" || result.Usage.InputTokens != 3 || result.Usage.OutputTokens != 4 {
		t.Errorf("result %+v", result)
	}
}

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   rpcError
		class provider.Class
		retry bool
	}{
		{rpcError{Code: authRequired, Message: "please log in"}, provider.ClassAuth, false},
		{rpcError{Code: -32603, Message: "Internal error: scripted invalid_request_error"}, provider.ClassOther, false},
		{rpcError{Code: -32603, Message: "Internal error", Data: json.RawMessage(`{"details":"rate limit reached"}`)}, provider.ClassRateLimit, true},
		{rpcError{Message: "You exceeded your current quota"}, provider.ClassQuota, false},
		{rpcError{Message: "Overloaded"}, provider.ClassOverloaded, true},
		{rpcError{Message: "input is too long"}, provider.ClassContext, false},
		{rpcError{Message: "unable to connect"}, provider.ClassNetwork, true},
		{rpcError{Code: 5}, provider.ClassOther, false},
	} {
		var e provider.Event
		c.err.failed(&e)
		if e.Class != c.class || e.Retryable != c.retry || !e.IsError || e.Message == "" {
			t.Errorf("%+v: %+v", c.err, e)
		}
	}
}

// Whatever the agent says, nothing panics, and starts and ends of tools are even.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","status":"pending"}}}` + "\n" +
		`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}}}`))
	f.Add([]byte("[]\n{\"id\":1}\n" + `{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","content":[{}]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		q := &query{p: &Provider{}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), events: child.NewQueue(), changed: make(chan struct{}), answers: map[int64]func(message){}, session: "s"}
		q.watch, q.alive = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
		defer q.watch.Stop()
		defer q.alive.Stop()
		q.turn = &turn{tools: map[string]string{}}
		for line := range strings.Lines(string(text)) {
			var m message
			if json.Unmarshal([]byte(line), &m) == nil && m.Method != "" && len(m.ID) > 0 {
				continue // a question: there is no process to answer to
			}
			q.read([]byte(strings.TrimSpace(line)), false)
		}
		q.mu.Lock()
		q.endTools()
		q.mu.Unlock()
		q.events.Close()
		open := 0
		for e := range q.events.Events() {
			switch e.Kind {
			case provider.ToolStart:
				open++
			case provider.ToolEnd:
				open--
			}
		}
		if open != 0 {
			t.Errorf("%d tools were left", open)
		}
	})
}
