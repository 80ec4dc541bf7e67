package program

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/mailbox"
)

func TestEchoUntilSIGTERM(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.listen()
	p := r.spawn("", nil)
	for _, id := range []string{"m1", "m2", "m3"} {
		r.put(message(id, "hi "+id))
		r.until(id+" is answered", func() bool { return r.ack(id).Status == mailbox.AckCompleted })
	}
	if got := r.said(); !slices.Equal(got, []string{"me:hi m1", "me:hi m2", "me:hi m3"}) {
		t.Fatalf("said %q", got)
	}
	st, err := r.host.State(t.Context())
	r.must(err)
	if st.Container.Turn != mailbox.TurnIdle || st.Heartbeat.IsZero() || !strings.HasPrefix(st.Session["continuation:mock"], "mock-") {
		t.Fatalf("state %+v", st)
	}
	r.must(p.Process.Signal(syscall.SIGTERM))
	if code := p.code(); code != ExitOK {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "run", "runner.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestSIGTERMInMidTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, line(`{"type":"sleep","ms":600000}`))
	r.listen()
	p := r.spawn("", nil)
	r.put(message("m1", "hi"))
	r.until("claimed", func() bool { return r.ack("m1").Status == mailbox.AckProcessing })
	r.must(p.Process.Signal(syscall.SIGTERM))
	if code := p.code(); code != ExitOK {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	if a := r.ack("m1"); a.Status != "" {
		t.Fatalf("the claim is left: %+v", a)
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t,
		line(say(block("me", "starting")), send("family", "news"), say("and "+block("me", "done")), `{"type":"result"}`),
		line(say("bare"), `{"type":"result"}`),
		line(say("still bare"), `{"type":"result"}`),
		line(`{"type":"error","message":"boom"}`),
		line(`{"type":"tool","name":"nosuch","args":{}}`, send("nobody", "x"), say(block("me", "tools failed")), `{"type":"result"}`),
	)
	r.conf.MaxMessagesPerPrompt = 1
	r.configure()
	r.put(message("m1", "a"), message("m2", "b"), message("m3", "c"), message("m4", "d"))
	p := r.spawn("", nil, "--once")
	if code := p.code(); code != ExitOK {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	got := r.said()
	want := []string{"me:starting", "42:news", "me:done", "me:still bare"}
	if len(got) != 6 || !slices.Equal(got[:4], want) || !strings.Contains(got[4], "could not answer") || got[5] != "me:tools failed" {
		t.Fatalf("said %q\n%s", got, p.stderr)
	}
	if strings.Contains(got[4], "boom") {
		t.Error("diagnostics reached a person")
	}
	for id, status := range map[string]mailbox.AckStatus{"m1": mailbox.AckCompleted, "m2": mailbox.AckCompleted, "m3": mailbox.AckFailed, "m4": mailbox.AckCompleted} {
		if a := r.ack(id); a.Status != status {
			t.Errorf("%s is %s", id, a.Status)
		}
	}
	if rows := r.out(); !rows[3].Fallback || rows[0].Fallback {
		t.Error("marks of the fallback")
	}
}

func TestOnceWithNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if p := r.spawn("", nil, "--once"); p.code() != ExitOK {
		t.Fatal(p.stderr)
	}
}

func TestWithoutBell(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.spawn("", nil)
	r.listen() // only now: the runner has begun to poll
	r.put(message("m1", "hi"))
	r.until("answered", func() bool { return r.ack("m1").Status == mailbox.AckCompleted })
	r.must(p.Process.Signal(syscall.SIGTERM))
	if p.code() != ExitOK {
		t.Fatal(p.stderr)
	}
}

func TestFollowUpTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t, line(say(block("me", "one")), `{"type":"take"}`, say(block("me", "two")), `{"type":"result"}`))
	r.listen()
	r.spawn("", nil)
	r.put(message("m1", "a"))
	r.until("the first words", func() bool { return len(r.out()) == 1 })
	r.put(message("m2", "b"))
	r.until("both", func() bool { return r.ack("m2").Status == mailbox.AckCompleted })
	if a, b := r.ack("m1"), r.ack("m2"); a.Status != mailbox.AckCompleted || a.Exchange != b.Exchange {
		t.Fatalf("%+v and %+v", a, b)
	}
	if got := r.said(); !slices.Equal(got, []string{"me:one", "me:two"}) {
		t.Fatalf("said %q", got)
	}
}

func TestBadStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	write := func(name, content string) string {
		path := filepath.Join(r.dir, name)
		r.must(os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"unknown provider", []string{"--config", write("a.json", `{"provider":"gpt"}`)}, ExitFatal, "known are: acp, anthropic, claude, codex, mock, ollama, openai, opencode"},
		{"no settings", []string{"--config", filepath.Join(r.dir, "nosuch.json")}, ExitFatal, "nosuch.json"},
		{"broken settings", []string{"--config", write("b.json", `{`)}, ExitFatal, "b.json"},
		{"no mailbox", []string{"--root", t.TempDir(), "--config", write("c.json", `{"provider":"mock"}`)}, ExitFatal, "mailbox does not exist"},
		{"no folder", []string{"--root", filepath.Join(r.dir, "nosuch"), "--once"}, ExitFatal, "find the session's folder: stat " + r.dir},
		{"unknown flag", []string{"--frob"}, ExitUsage, "--once"},
		{"stray argument", []string{"now"}, ExitUsage, "unexpected argument"},
		{"claude without a program", []string{"--config", write("d.json", `{"provider":"claude","programs":{"claude":"no-such-claude"}}`)}, container.ExitNoProgram, "claude program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := r.spawn("", nil, tt.args...)
			if code := p.code(); code != tt.code || !strings.Contains(p.stderr.String(), tt.says) {
				t.Errorf("exit %d, want %d and %q: %s", code, tt.code, tt.says, p.stderr)
			}
		})
	}
	var out bytes.Buffer
	if code := Execute(t.Context(), []string{"--help"}, nil, &out, &out); code != ExitOK || !strings.Contains(out.String(), "agent-runner mcp") {
		t.Errorf("help: %d %s", code, &out)
	}
	if code := Execute(t.Context(), []string{"mcp", "--root", t.TempDir()}, strings.NewReader(""), &out, &out); code != ExitFatal {
		t.Errorf("mcp without a runner: %d", code)
	}
}

func TestSettingsThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(os.WriteFile(filepath.Join(r.dir, "agent", "container.json"),
		[]byte(`{"provider":"MOCK","maxMessagesPerPrompt":-3,"mcpServers":{"nanoclaw":{"command":"evil"}}}`), 0o600))
	r.put(message("m1", "hi"))
	p := r.spawn("", nil, "--once")
	if p.code() != ExitOK {
		t.Fatal(p.stderr)
	}
	for _, name := range []string{"maxMessagesPerPrompt", "mcpServers.nanoclaw"} {
		if !strings.Contains(p.stderr.String(), name) {
			t.Errorf("%s is not named: %s", name, p.stderr)
		}
	}
	if got := r.said(); !slices.Equal(got, []string{"me:hi"}) {
		t.Fatalf("said %q", got)
	}
}

func TestMCPClient(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.listen()
	r.spawn("", nil)
	r.put(message("m1", "hi"))
	r.until("answered", func() bool { return r.ack("m1").Status == mailbox.AckCompleted })
	in := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_message","arguments":{"to":"family","text":"from outside"}}}
`
	var out, errs bytes.Buffer
	if code := Execute(t.Context(), []string{"mcp", "--root", r.dir}, strings.NewReader(in), &out, &errs); code != ExitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if !strings.Contains(out.String(), "sent to family (id: ") {
		t.Fatalf("answers %s", &out)
	}
	if got := r.said(); !slices.Equal(got, []string{"me:hi", "42:from outside"}) {
		t.Fatalf("said %q", got)
	}
	if rows := r.out(); rows[1].Exchange != "" {
		t.Error("nobody's exchange")
	}
}

// Nothing a person wrote stands in the log.
func TestLogHoldsNoWords(t *testing.T) {
	t.Parallel()
	r := newRig(t, line(say(block("nosuch", "very private")), `{"type":"result"}`), line(say("very private"), `{"type":"result"}`))
	row := message("m1", "very private")
	r.put(row)
	p := r.spawn("", nil, "--once")
	if p.code() != ExitOK {
		t.Fatal(p.stderr)
	}
	if !strings.Contains(p.stderr.String(), "nosuch") {
		t.Errorf("the bad name is not in the log: %s", p.stderr)
	}
	var content mailbox.ChatIn
	r.must(json.Unmarshal(row.Content, &content))
	if strings.Contains(p.stderr.String(), content.Text) {
		t.Errorf("log: %s", p.stderr)
	}
}
