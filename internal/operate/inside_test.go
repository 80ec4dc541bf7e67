package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// a desk whose commands say who asked, answer much, or wait for the host's end.
func testDesk() *Desk {
	return New(
		Command{Name: "who", Scope: Agents, Run: func(_ context.Context, c Caller, _ Args) (Result, error) {
			return result([]string{string(c.Session.ID), c.Key})
		}},
		Command{Name: "much", Scope: Agents, Run: func(context.Context, Caller, Args) (Result, error) {
			return result(strings.Repeat("x", mailbox.MaxContent))
		}},
		Command{Name: "fail", Scope: Agents, Run: func(context.Context, Caller, Args) (Result, error) {
			return Result{}, errors.New("the disk is full")
		}},
	)
}

func frameOf(t *testing.T, rows []mailbox.InRow) control.Frame {
	t.Helper()
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	var c struct {
		Type, RequestID string
		Frame           control.Frame
	}
	if err := json.Unmarshal(rows[0].Content, &c); err != nil || c.Type != "cli_response" || c.RequestID == "" || c.Frame.ID != c.RequestID {
		t.Fatalf("%s, %v", rows[0].Content, err)
	}
	return c.Frame
}

// W33: the answer is found by its own row id, which follows from the request's; it wakes nobody.
func TestW33AnswerRow(t *testing.T) {
	t.Parallel()
	i := NewInside(testDesk(), nil)
	rows, err := i.Do(t.Context(), store.Session{ID: "sess-1"}, "led-1", json.RawMessage(`{"action":"cli_request","requestId":"cli-1","command":"who","args":{},"session":"sess-2"}`))
	if err != nil {
		t.Fatal(err)
	}
	f := frameOf(t, rows)
	r := rows[0]
	if r.ID != "cli-resp-cli-1" || r.Kind != mailbox.KindSystem || r.Trigger || r.Status != "" || !r.Address.Zero() || r.Validate() != nil {
		t.Errorf("%+v", r)
	}
	if !f.OK || string(f.Data) != `["sess-1","led-1"]` {
		t.Errorf("%+v: the caller is who wrote the row", f)
	}
	again, err := i.Do(t.Context(), store.Session{ID: "sess-1"}, "led-1", json.RawMessage(`{"requestId":"cli-1","command":"who"}`))
	if err != nil || again[0].ID != r.ID {
		t.Errorf("asked again: %v, %v", again, err)
	}
}

// P6: nothing in a request is believed. With a usable id it is answered by an error, without one it is refused.
func TestBrokenRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		content string
		code    control.Code // "" is refused
	}{
		{`{}`, ""},
		{`{"requestId":7,"command":"who"}`, ""},
		{`{"requestId":"","command":"who"}`, ""},
		{`{"requestId":"../x","command":"who"}`, ""},
		{`{"requestId":".x","command":"who"}`, ""},
		{`{"requestId":"` + strings.Repeat("x", maxRequestID+1) + `","command":"who"}`, ""},
		{`{"requestId":"r","command":7}`, control.CodeInvalid},
		{`{"requestId":"r"}`, control.CodeInvalid},
		{`{"requestId":"r","command":null}`, control.CodeInvalid},
		{`{"requestId":"r","command":["who"]}`, control.CodeInvalid},
		{`{"requestId":"r","command":"who","args":[]}`, control.CodeInvalid},
		{`{"requestId":"r","command":"who","args":"x"}`, control.CodeInvalid},
		{`{"requestId":"r","command":"who","args":{"a":1}}`, control.CodeInvalid},
		{`{"requestId":"r","command":"` + strings.Repeat("x", control.MaxCommand+1) + `"}`, control.CodeTooLarge},
		{`{"requestId":"r","command":"who","args":{"a":"` + strings.Repeat("x", control.MaxArgs) + `"}}`, control.CodeTooLarge},
		{`{"requestId":"r","command":"much"}`, control.CodeTooLarge},
		{`{"requestId":"r","command":"fail"}`, control.CodeFailed},
		{`{"requestId":"` + strings.Repeat("x", maxRequestID) + `","command":"nope"}`, control.CodeInvalid},
	} {
		rows, err := NewInside(testDesk(), nil).Do(t.Context(), store.Session{ID: "s"}, "k", json.RawMessage(c.content))
		if c.code == "" {
			if err == nil || len(rows) != 0 {
				t.Errorf("%.60s: %v, %v; want a refusal", c.content, rows, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.60s: %v", c.content, err)
			continue
		}
		if f := frameOf(t, rows); f.OK || f.Error.Code != c.code {
			t.Errorf("%.60s: %+v, want %s", c.content, f.Error, c.code)
		}
	}
}

// An agent cannot flood the host: 20 commands a minute, counted for each session.
func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	i := NewInside(testDesk(), func() time.Time { return now })
	n := 0
	ask := func(s string) control.Frame {
		n++
		rows, err := i.Do(t.Context(), store.Session{ID: id.Session(s)}, "k", json.RawMessage(fmt.Sprintf(`{"requestId":"r%d","command":"who"}`, n)))
		if err != nil {
			t.Fatal(err)
		}
		return frameOf(t, rows)
	}
	for k := range perMinute {
		if f := ask("a"); !f.OK {
			t.Fatalf("command %d: %+v", k+1, f.Error)
		}
		now = now.Add(time.Second)
	}
	if f := ask("a"); f.OK || f.Error.Code != control.CodeUnavailable || !strings.Contains(f.Error.Message, "too many") {
		t.Errorf("command %d: %+v", perMinute+1, f)
	}
	if f := ask("b"); !f.OK {
		t.Errorf("another session pays for it: %+v", f.Error)
	}
	now = now.Add(41 * time.Second) // the first two are over a minute old
	if f := ask("a"); !f.OK {
		t.Errorf("a minute after the first: %+v", f.Error)
	}
	now = now.Add(time.Hour)
	ask("b")
	if len(i.last) != 1 {
		t.Errorf("%d sessions are remembered; those that rest cost nothing", len(i.last))
	}
}

// A host that ends leaves the request to the next one.
func TestEndOfTheHost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	d := New(Command{Name: "wait", Scope: Agents, Run: func(ctx context.Context, _ Caller, _ Args) (Result, error) {
		cancel()
		return Result{}, ctx.Err()
	}})
	if rows, err := NewInside(d, nil).Do(ctx, store.Session{ID: "s"}, "k", json.RawMessage(`{"requestId":"r","command":"wait"}`)); !errors.Is(err, context.Canceled) || rows != nil {
		t.Errorf("%v, %v", rows, err)
	}
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{`{"requestId":"r","command":"who","args":{}}`, `{"requestId":"r"}`, `[]`, `{"requestId":"r","command":"help-x","args":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rows, err := NewInside(testDesk(), nil).Do(t.Context(), store.Session{ID: "s"}, "k", json.RawMessage(s))
		if err != nil {
			return
		}
		if len(rows) != 1 || rows[0].Validate() != nil || !strings.HasPrefix(rows[0].ID, mailbox.ResponsePrefix) || rows[0].Trigger {
			t.Fatalf("%q became %+v", s, rows)
		}
	})
}
