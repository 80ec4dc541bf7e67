package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/socket"
)

// scrape reads the metrics as curl --unix-socket does.
func (m *machine) scrape() string {
	m.t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return socket.Dial(ctx, control.SocketDir(m.home), control.SocketName)
		}}}
	res, err := client.Get("http://x/metrics")
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		m.t.Fatalf("%d, %v", res.StatusCode, err)
	}
	return string(b)
}

// A message is followed over the death of its host; neither trace, log nor metrics hold its text.
func TestTraceLogAndMetrics(t *testing.T) {
	t.Parallel()
	const asked, said = "marker-of-a-person", "marker-of-an-agent"
	for kind, settings := range sandboxes(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			available(t, kind)
			m := setup(t, settings)
			m.script(
				`{"events":[{"type":"text","text":"<message to=\"nobody\">`+said+`</message>"},{"type":"tool","name":"send_message","args":{"to":"terminal","text":"`+said+`"}},{"type":"result","text":"x"}]}`,
				`{"events":[{"type":"text","text":"<message to=\"terminal\">`+said+` two</message>"},{"type":"result","text":"x"}]}`,
				`{"events":[{"type":"text","text":"<message to=\"terminal\">`+said+` three</message>"},{"type":"result","text":"x"}]}`)
			m.start()
			if a := m.ask("m1", asked); a.state != control.StateAnswered {
				t.Fatalf("%+v", a)
			}
			m.kill()
			m.start()
			env := []string{"NANOCLAW_HOME=" + m.home}
			text, errs, code := m.ncl(env, "", "trace", "--message=m1")
			if code != 0 {
				t.Fatalf("%d %s", code, errs)
			}
			for _, part := range []string{"received from cli", "for this agent: every message engages", "in the inbox of session", "tool send_message",
				"a block to nobody did not leave: unknown destination", "acknowledged by the platform", "=> answered after"} {
				if !strings.Contains(text, part) {
					t.Errorf("no %q in\n%s", part, text)
				}
			}
			if strings.Contains(text, "marker") {
				t.Errorf("message text without --text:\n%s", text)
			}
			if text, _, _ := m.ncl(env, "", "trace", "--last", "--text"); !strings.Contains(text, asked) || !strings.Contains(text, said) {
				t.Errorf("with --text:\n%s", text)
			}
			if _, _, code := m.ncl(env, "", "trace", "nothing-like-it"); code != 4 {
				t.Errorf("an id that nobody knows: exit %d", code)
			}
			if a := m.ask("m2", asked); a.state != control.StateAnswered {
				t.Fatalf("%+v", a)
			}
			body := m.scrape()
			for _, line := range []string{`nanoclaw_messages_total{channel="cli",verdict="stored"} 1`, `nanoclaw_sandbox_starts_total{result="adopted"} 1`, `nanoclaw_up 1`} {
				if !strings.Contains(body, line+"\n") {
					t.Errorf("no line %s in\n%s", line, body)
				}
			}
			if strings.Contains(body, "cli:local") || strings.Contains(body, "sess-") {
				t.Error("a label holds an id")
			}
			if log := m.log.String(); strings.Contains(log, "marker-of") {
				t.Errorf("the log holds message text:\n%s", log)
			}
			if kind == "docker" { // which keeps it until the sandbox ends
				return
			}
			logs, err := filepath.Glob(filepath.Join(m.home, "sessions", "*", "*", "sandbox", "sandbox.log"))
			if err != nil || len(logs) != 1 {
				t.Fatalf("%v, %v", logs, err)
			}
			b, err := os.ReadFile(logs[0])
			if err != nil || len(b) == 0 || strings.Contains(string(b), "marker-of") {
				t.Errorf("the agent's own log: %q, %v", b, err)
			}
		})
	}
}

// SIGHUP reads the level again and begins a moved log file anew; ncl changes the level, too.
func TestLogLevelOfARunningHost(t *testing.T) {
	t.Parallel()
	m := setup(t, "[sandbox]\nkind = \"process\"\n")
	m.env = []string{"NANOCLAW_LOG_FILE=logs/mine.log"}
	path := filepath.Join(m.home, "logs", "mine.log")
	m.start()
	env := []string{"NANOCLAW_HOME=" + m.home}
	if out, _, code := m.ncl(env, "", "log", "level"); code != 0 || out != "info\n" {
		t.Errorf("%d %q", code, out)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.home, "nanoclaw.toml"), []byte("[sandbox]\nkind = \"process\"\n[log]\nlevel = \"debug\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), "log_level=debug") {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal("the signal changed nothing")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if out, _, code := m.ncl(env, "", "log", "level", "error"); code != 0 || out != "error\n" {
		t.Errorf("%d %q", code, out)
	}
	if _, errs, code := m.ncl(env, "", "log", "level", "loud"); code != 2 || !strings.Contains(errs, "debug, info, warn or error") {
		t.Errorf("%d %q", code, errs)
	}
	if b, err := os.ReadFile(path + ".moved"); err != nil || !strings.Contains(string(b), "host ready") {
		t.Errorf("what was moved: %q, %v", b, err)
	}
	if m.log.String() != "" {
		t.Errorf("standard error, too: %s", m.log.String())
	}
}
