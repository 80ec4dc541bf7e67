package operate

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

type follows struct{ asked []control.TraceQuery }

func (f *follows) Trace(_ context.Context, q control.TraceQuery) (control.Trace, error) {
	f.asked = append(f.asked, q)
	at := time.Date(2026, 5, 4, 22, 0, 0, 0, time.UTC)
	return control.Trace{Ways: []control.Way{{Message: "msg-1", Outcome: control.TraceAnswered, Verdict: "answered after 1.2 s", Steps: []control.TraceStep{
		{At: control.At(at), Step: "received", What: "received\x1b[2J"},
		{Step: "inbox", What: "no time"},
		{At: control.At(at.Add(1200 * time.Millisecond)), AfterMS: 1200, Step: "end", What: "ended", Text: "two\nlines"}}}}}, nil
}

func TestTraceCommand(t *testing.T) {
	t.Parallel()
	f := &follows{}
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	d := New(Trace(f, paris))
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, c := range []struct {
		command string
		args    map[string]json.RawMessage
		want    control.TraceQuery
		refused bool
	}{
		{"trace-msg-ab-c", nil, control.TraceQuery{ID: "msg-ab-c"}, false},
		{"trace", map[string]json.RawMessage{"last": raw("true")}, control.TraceQuery{Last: true}, false},
		{"trace", map[string]json.RawMessage{"last": raw("true"), "session": raw(`"sess-1"`), "text": raw("true")}, control.TraceQuery{Last: true, Session: "sess-1", Text: true}, false},
		{"trace", map[string]json.RawMessage{"message": raw(`"-100:7"`)}, control.TraceQuery{ID: "-100:7"}, false},
		{"trace", nil, control.TraceQuery{}, true},
		{"trace-x", map[string]json.RawMessage{"last": raw("true")}, control.TraceQuery{}, true},
		{"trace-x", map[string]json.RawMessage{"message": raw(`"y"`)}, control.TraceQuery{}, true},
		{"trace", map[string]json.RawMessage{"last": raw(`"msg-1"`)}, control.TraceQuery{}, true},
		{"trace-x", map[string]json.RawMessage{"session": raw("true")}, control.TraceQuery{}, true},
	} {
		before := len(f.asked)
		got := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: c.command, Args: c.args})
		switch {
		case c.refused:
			if got.OK || got.Error.Code != control.CodeInvalid || len(f.asked) != before {
				t.Errorf("%s %s: %+v", c.command, c.args, got)
			}
		case !got.OK || f.asked[len(f.asked)-1] != c.want:
			t.Errorf("%s %s: asked %+v, %+v", c.command, c.args, f.asked, got.Error)
		}
	}
	got := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: "trace-1"})
	const want = "2026-05-05 CEST\n" +
		"00:00:00.000      +0 ms  received?[2J\n" +
		"                         no time\n" +
		"00:00:01.200   +1200 ms  ended\n" +
		"                           | two\n" +
		"                           | lines\n" +
		"=> answered after 1.2 s"
	if got.Human != want {
		t.Errorf("got\n%s\nwant\n%s", got.Human, want)
	}
	var data control.Trace
	if err := json.Unmarshal(got.Data, &data); err != nil || data.Ways[0].Steps[2].AfterMS != 1200 {
		t.Errorf("%s %v", got.Data, err)
	}
}

// What happened to messages, and the host's log, are no matter of agents.
func TestObservingIsForTheOperator(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	log := obs.Logger(&b, slog.LevelInfo, false)
	d := New(Trace(&follows{}, time.UTC), LogLevel(log))
	for _, command := range []string{"trace-1", "log-level", "log-level-debug"} {
		if got := d.Do(t.Context(), Caller{Session: store.Session{ID: "sess-1"}}, "r", control.AdminRequest{Command: command}); got.OK || got.Error.Code != control.CodeForbidden {
			t.Errorf("%s: %+v", command, got)
		}
	}
	for command, want := range map[string]string{"log-level": "info"} {
		if got := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: command}); got.Human != want {
			t.Errorf("%s: %+v", command, got)
		}
	}
	if got := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: "log-level-debug"}); !got.OK || obs.Level(log) != slog.LevelDebug {
		t.Errorf("%+v", got)
	}
	if got := New(LogLevel(obs.Discard())).Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: "log-level-debug"}); got.OK {
		t.Error("a log without levels took one")
	}
}
