package codex

import (
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

// PRV-1: what the CLI says of a failure, and what becomes of it.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	later := time.Date(2026, 12, 2, 6, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		info, message string
		limit         time.Time
		class         provider.Class
		retry         bool
	}{
		{`{"httpConnectionFailed":{"httpStatusCode":401}}`, "unexpected status 401", time.Time{}, provider.ClassAuth, false},
		{`{"httpConnectionFailed":{"httpStatusCode":403}}`, "", time.Time{}, provider.ClassAuth, false},
		{`"unauthorized"`, "", time.Time{}, provider.ClassAuth, false},
		{`{"httpConnectionFailed":{"httpStatusCode":404}}`, "", time.Time{}, provider.ClassOther, false},
		{`{"responseTooManyFailedAttempts":{"httpStatusCode":429}}`, "exceeded retry limit", time.Time{}, provider.ClassRateLimit, true},
		{`{"responseTooManyFailedAttempts":{"httpStatusCode":429}}`, "exceeded retry limit", later, provider.ClassRateLimit, false},
		{`"usageLimitExceeded"`, "Quota exceeded. Check your plan and billing details.", time.Time{}, provider.ClassQuota, false},
		{`"usageLimitExceeded"`, "You’ve hit your usage limit.", later, provider.ClassRateLimit, false},
		{`"rateLimitExceeded"`, "", time.Time{}, provider.ClassRateLimit, true},
		{`"serverOverloaded"`, "", time.Time{}, provider.ClassOverloaded, true},
		{`{"httpConnectionFailed":{"httpStatusCode":529}}`, "", time.Time{}, provider.ClassOverloaded, true},
		{`{"httpConnectionFailed":{"httpStatusCode":503}}`, "", time.Time{}, provider.ClassOverloaded, true},
		{`"internalServerError"`, "high demand", time.Time{}, provider.ClassOther, true},
		{`{"httpConnectionFailed":{"httpStatusCode":null}}`, "Connection failed: error sending request", time.Time{}, provider.ClassNetwork, true},
		{`"other"`, "stream disconnected before completion", time.Time{}, provider.ClassNetwork, true},
		{`"contextWindowExceeded"`, "", time.Time{}, provider.ClassContext, false},
		{`"other"`, `{"error":{"message":"Your input exceeds the context window of this model"}}`, time.Time{}, provider.ClassContext, false},
		{`"other"`, `{"error":{"message":"scripted invalid_request_error"}}`, time.Time{}, provider.ClassOther, false},
		{`"of a later version"`, "", time.Time{}, provider.ClassOther, false},
		{`{"a":{},"b":{}}`, "", time.Time{}, provider.ClassOther, false},
		{`null`, "", time.Time{}, provider.ClassOther, false},
	} {
		var e provider.Event
		turnError{Message: c.message, Info: json.RawMessage(c.info)}.failed(&e, c.limit)
		if e.Class != c.class || e.Retryable != c.retry || !e.IsError {
			t.Errorf("%s %q: %+v", c.info, c.message, e)
		}
		if e.ResetsAt.IsZero() != (c.limit.IsZero() || c.class != provider.ClassRateLimit) {
			t.Errorf("%s: resets at %s", c.info, e.ResetsAt)
		}
		if strings.ContainsAny(e.Notice, "{}") || e.Class != provider.ClassOther && e.Notice == "" {
			t.Errorf("%s: notice %q", c.info, e.Notice)
		}
	}
}

// Only a window that is used up has a reset that matters; of two the later.
func TestResets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		`{"rateLimits":{"primary":{"usedPercent":100,"resetsAt":1796190000},"secondary":{"usedPercent":20,"resetsAt":1796990000}}}`:  1796190000,
		`{"rateLimits":{"primary":{"usedPercent":100,"resetsAt":1796190000},"secondary":{"usedPercent":100,"resetsAt":1796990000}}}`: 1796990000,
		`{"rateLimits":{"primary":{"usedPercent":99.5,"resetsAt":1796190000}}}`:                                                      0,
		`{"rateLimits":{"primary":null}}`: 0,
		`{}`:                              0,
	} {
		var n limitsNote
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		if got := n.resets(); want == 0 && !got.IsZero() || want != 0 && got.Unix() != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// Whatever the CLI says, nothing panics, starts and ends of tools are even, and no turn is left behind one that ended.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}` + "\n" +
		`{"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"id":"i","type":"mcpToolCall","server":"s","tool":"x"}}}` + "\n" +
		`{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"interrupted"}}}`))
	f.Add([]byte(`{"method":"error","params":{"threadId":"t","willRetry":true,"error":{"codexErrorInfo":{"a":1}}}}` + "\n[]\n{\"id\":7,\"result\":null}\n\"x\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		q := &query{p: &Provider{}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), events: child.NewQueue(), changed: make(chan struct{}), answers: map[int64]func(message){}, thread: "t"}
		q.watch, q.alive = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
		defer q.watch.Stop()
		defer q.alive.Stop()
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
		if open > 0 {
			t.Errorf("%d tools were left", open)
		}
	})
}
