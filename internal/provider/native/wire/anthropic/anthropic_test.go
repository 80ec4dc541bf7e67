package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/wire"
	"nanoclaw/internal/testkit/loopback"
)

func TestMain(m *testing.M) {
	loopback.Main()
	goleak.VerifyTestMain(m)
}

// serve answers each request with the next of answers, the last one again and again, and records the bodies.
func serve(t *testing.T, answers ...string) (*Wire, *[]string) {
	t.Helper()
	var bodies []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(b))
		a := answers[min(len(bodies), len(answers))-1]
		if status, rest, ok := strings.Cut(a, " "); ok && len(status) == 3 {
			var code int
			_, _ = fmt.Sscan(status, &code)
			w.WriteHeader(code)
			a = rest
		}
		_, _ = io.WriteString(w, a)
	}))
	tr := &http.Transport{}
	t.Cleanup(func() { tr.CloseIdleConnections(); s.Close() })
	return New(Options{Endpoint: wire.Endpoint{URL: s.URL, Client: &http.Client{Transport: tr}, First: time.Minute, Idle: time.Minute}}), &bodies
}

// stream is a list of events, each without its name.
func stream(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

const over = `{"type":"message_stop"}`

func question() wire.Request {
	return wire.Request{Model: "m", Messages: []history.Message{{Role: history.User, Blocks: []history.Block{{Kind: history.Text, Text: "hi"}}}}}
}

func TestStream(t *testing.T) {
	t.Parallel()
	w, _ := serve(t, stream(
		`{"type":"message_start","message":{"usage":{"input_tokens":7,"cache_read_input_tokens":3,"cache_creation_input_tokens":2,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"ping"}`,
		`{"type":"something_new","delta":{"x":1}}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Hel"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"lo"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t1","name":"Read","input":{}}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":":1}"}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"t2","name":"Read","input":{}}}`,
		`{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{\"cut"}}`,
		`{"type":"content_block_stop","index":4}`,
		`{"type":"content_block_start","index":5,"content_block":{"type":"server_tool_use","id":"s"}}`,
		`{"type":"content_block_stop","index":5}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`, over,
	))
	var texts []string
	a, err := w.Send(t.Context(), question(), func(e wire.Event) {
		if e.Text != "" {
			texts = append(texts, e.Text)
		}
	})
	if err != nil || !slices.Equal(texts, []string{"Hello"}) || a.Stop != wire.Done || a.Context() != 7+3+2+9 {
		t.Fatalf("%v, %q, %+v", err, texts, a)
	}
	var got []string
	for _, b := range a.Blocks {
		got = append(got, fmt.Sprintf("%s %s%s%s%s", b.Kind, b.Text, b.ID, b.Args, b.Raw))
	}
	want := []string{
		`thinking {"type":"thinking","thinking":"Hm","signature":"sig"}`, `thinking {"type":"redacted_thinking","data":"xyz"}`, `text Hello`,
		`call t1{"a":1}`, `call {"cutt2{}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("blocks %q", got)
	}
	// and back, unchanged
	r := question()
	r.Messages = append(r.Messages, history.Message{Role: history.Assistant, Blocks: a.Blocks})
	body, err := json.Marshal(mustEncode(t, w, r))
	if err != nil || !strings.Contains(string(body), `{"type":"thinking","thinking":"Hm","signature":"sig"},{"type":"redacted_thinking","data":"xyz"},{"type":"text","text":"Hello"}`) {
		t.Errorf("%v: %s", err, body)
	}
}

func mustEncode(t *testing.T, w *Wire, r wire.Request) *request {
	t.Helper()
	out, err := w.encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEncode(t *testing.T) {
	t.Parallel()
	w, _ := serve(t, "")
	load := func(path string) ([]byte, error) {
		if path == "gone" {
			return nil, errors.New("gone")
		}
		return []byte("x"), nil
	}
	file := func(kind, path string) history.Block {
		return history.Block{Kind: history.File, Name: "n", MimeType: kind, Path: path}
	}
	r := wire.Request{
		Model: "haiku", System: []string{"fixed", "", "changing"}, Effort: "low", NoCalls: true, Load: load,
		Tools: []wire.Tool{{Name: "a", Schema: json.RawMessage(`{}`)}, {Name: "b", Description: "d", Schema: json.RawMessage(`{}`)}},
		Messages: []history.Message{
			{Role: history.User, Blocks: []history.Block{{Kind: history.Text, Text: "one"}, file("image/png", "p"), file("application/pdf", "p"), file("image/png", "gone")}},
			{Role: history.Assistant, Blocks: []history.Block{{Kind: history.Thinking, Wire: "openai", Raw: json.RawMessage(`{"no":1}`)}, {Kind: history.Call, ID: "1", Name: "a", Args: json.RawMessage(`{"x":"<"}`)}}},
			{Role: history.User, Blocks: []history.Block{{Kind: history.Result, ID: "1", Text: "r", IsError: true}, file("image/png", "p"), {Kind: history.Text, Text: "two"}, file("image/png", "p")}},
		},
	}
	b, err := json.MarshalIndent(mustEncode(t, w, r), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(string(b)), "")
	mark := `"cache_control":{"type":"ephemeral"}`
	picture := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"eA=="}}`
	marked := strings.TrimSuffix(picture, "}") + "," + mark + "}"
	gone := `{"type":"text","text":"[filen(image/png)cannotbeshown]",` + mark + `}`
	want := `{"model":"claude-haiku-5-5","max_tokens":32000,"stream":true,"system":[{"type":"text","text":"fixed",` + mark + `},{"type":"text","text":"changing"}],` +
		`"messages":[{"role":"user","content":[{"type":"text","text":"one"},` + picture +
		`,{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"eA=="},"title":"n"},` + gone + `]},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"a","input":{"x":"\u003c"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"},` + picture + `],"is_error":true},{"type":"text","text":"two"},` + marked + `]}],` +
		`"tools":[{"name":"a","input_schema":{}},{"name":"b","description":"d","input_schema":{},` + mark + `}],"tool_choice":{"type":"none"},"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestStreamFailures(t *testing.T) {
	t.Parallel()
	said := []string{`{"type":"content_block_start","content_block":{"type":"text","text":"whole"}}`, `{"type":"content_block_stop"}`, `{"type":"content_block_start","content_block":{"type":"text","text":"half"}}`}
	for name, c := range map[string]struct {
		events []string
		class  provider.Class
		retry  bool
	}{
		"cut":        {said, provider.ClassNetwork, true},
		"overloaded": {append(said, `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`), provider.ClassOverloaded, true},
		"limit":      {append(said, `{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`), provider.ClassRateLimit, true},
		"other":      {append(said, `{"type":"error","error":{"type":"api_error","message":"oops"}}`), provider.ClassOther, true},
		"no JSON":    {append(said, `{"type":`), provider.ClassNetwork, true},
	} {
		w, _ := serve(t, stream(c.events...))
		a, err := w.Send(t.Context(), question(), func(wire.Event) {})
		var e *wire.Error
		if !errors.As(err, &e) || e.Class != c.class || e.Retryable != c.retry || len(a.Blocks) != 1 || a.Blocks[0].Text != "whole" {
			t.Errorf("%s: %v, %+v", name, err, a)
		}
	}
}

// A model that does not know a setting is asked without it, and not troubled with it again.
func TestAdapt(t *testing.T) {
	t.Parallel()
	bad := func(message string) string {
		return `400 {"type":"error","error":{"type":"invalid_request_error","message":"` + message + `"}}`
	}
	w, bodies := serve(t, bad("output_config.effort: not supported"), bad("max_tokens: 32000 > 8192, which is the maximum"), stream(over))
	r := question()
	r.Effort = "high"
	for range 2 {
		if _, err := w.Send(t.Context(), r, func(wire.Event) {}); err != nil {
			t.Fatal(err)
		}
	}
	if all := *bodies; len(all) != 4 || !strings.Contains(all[0], "effort") || strings.Contains(all[3], "effort") || !strings.Contains(all[3], `"max_tokens":8192`) {
		t.Errorf("bodies: %q", all)
	}
	// thoughts that the API does not take back are left out: else no later question would be answered
	w, bodies = serve(t, bad("messages.1.content.0: Invalid `signature` in `thinking` block"), stream(over))
	old := question()
	old.Messages = append(old.Messages, history.Message{Role: history.Assistant, Blocks: []history.Block{
		{Kind: history.Thinking, Wire: Name, Raw: json.RawMessage(`{"type":"thinking","signature":"old"}`)}, {Kind: history.Text, Text: "x"}}}, old.Messages[0])
	if _, err := w.Send(t.Context(), old, func(wire.Event) {}); err != nil || len(*bodies) != 2 || !strings.Contains((*bodies)[0], `"old"`) || strings.Contains((*bodies)[1], `"old"`) {
		t.Errorf("%v, %q", err, *bodies)
	}
	w, bodies = serve(t, bad("thinking: no"))
	if _, err := w.Send(t.Context(), r, func(wire.Event) {}); err == nil || len(*bodies) != 2 {
		t.Errorf("%v after %d requests", err, len(*bodies))
	}
}

// Only a rejected request is a limit; the time is in seconds or milliseconds.
func TestPRV1Limits(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		status, reset, reason string
		class                 provider.Class
		at                    time.Time
	}{
		{"allowed", "1800000000", "", provider.ClassOther, time.Time{}},
		{"allowed_warning", "1800000000", "", provider.ClassOther, time.Time{}},
		{"rejected", "1800000000", "", provider.ClassRateLimit, at},
		{"rejected", "1800000000000", "", provider.ClassRateLimit, at},
		{"rejected", "soon", "", provider.ClassRateLimit, time.Time{}},
		{"rejected", "1800000000", "out_of_credits", provider.ClassQuota, at},
		{"rejected", "1800000000", "credits_required", provider.ClassQuota, at},
	} {
		h := http.Header{}
		h.Set("anthropic-ratelimit-unified-status", c.status)
		h.Set("anthropic-ratelimit-unified-reset", c.reset)
		h.Set("anthropic-ratelimit-unified-overage-disabled-reason", c.reason)
		e := &wire.Error{Class: provider.ClassOther}
		limits(e, h)
		if e.Class != c.class || !e.ResetsAt.Equal(c.at) {
			t.Errorf("%+v: %+v", c, e)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add(`{"type":"content_block_start","content_block":{"type":"tool_use","id":"1","name":"n"}}`, `{"type":"content_block_delta","delta":{"partial_json":"{"}}`)
	f.Add(`{"type":"content_block_stop"}`, over)
	f.Fuzz(func(t *testing.T, a, b string) {
		r := reader{on: func(wire.Event) {}}
		for _, e := range []string{a, b, `{"type":"content_block_stop"}`} {
			if r.event("", []byte(e)) != nil {
				break
			}
		}
		if _, err := json.Marshal(r.answer.Blocks); err != nil {
			t.Fatalf("an answer that cannot be kept: %v", err)
		}
	})
}
