package openai

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

// serve answers each request with the next of answers (`404 text` is a status), and records path and body.
func serve(t *testing.T, chat bool, answers ...string) (*Wire, *[]string) {
	t.Helper()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.Path+" "+string(b))
		a := answers[min(len(asked), len(answers))-1]
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
	return New(Options{Chat: chat, Endpoint: wire.Endpoint{URL: s.URL, Client: &http.Client{Transport: tr}, First: time.Minute, Idle: time.Minute}}), &asked
}

func stream(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

func question() wire.Request {
	return wire.Request{Model: "m", Session: "s-1", Effort: "max", Messages: []history.Message{{Role: history.User, Blocks: []history.Block{{Kind: history.Text, Text: "hi"}}}}}
}

func send(t *testing.T, w *Wire, r wire.Request) (blocks, texts []string, a wire.Answer, err error) {
	t.Helper()
	a, err = w.Send(t.Context(), r, func(e wire.Event) {
		if e.Text != "" {
			texts = append(texts, e.Text)
		}
	})
	for _, b := range a.Blocks {
		if b.Kind == history.Call && strings.HasPrefix(b.ID, "call_") {
			b.ID = "made"
		}
		blocks = append(blocks, fmt.Sprintf("%s %s%s%s%s", b.Kind, b.Text, b.ID, b.Args, b.Raw))
	}
	return blocks, texts, a, err
}

const completed = `{"type":"response.completed","response":{"usage":{"input_tokens":10,"output_tokens":5,"input_tokens_details":{"cached_tokens":4}}}}`

func TestResponses(t *testing.T) {
	t.Parallel()
	w, asked := serve(t, false, stream(
		`{"type":"response.created","response":{}}`,
		`{"type":"response.output_item.done","item":{"type":"reasoning","id":"r1","status":"completed","encrypted_content":"xyz"}}`,
		`{"type":"response.output_item.done","item":{"type":"reasoning","id":"r2","summary":[]}}`,
		`{"type":"response.output_text.delta","delta":"Hel"}`,
		`{"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"Hello"}]}}`,
		`{"type":"response.output_item.done","item":{"type":"function_call","call_id":"c1","name":"n","arguments":"{\"a\":1}"}}`,
		`{"type":"response.output_item.done","item":{"type":"function_call","name":"n","arguments":"{\"cut"}}`,
		`{"type":"response.output_item.done","item":{"type":"web_search_call"}}`, completed,
	))
	r := question()
	blocks, texts, a, err := send(t, w, r)
	want := []string{`thinking {"encrypted_content":"xyz","id":"r1","summary":[],"type":"reasoning"}`, "text Hello", `call c1{"a":1}`, `call {"cutmade{}`}
	if err != nil || !slices.Equal(blocks, want) || !slices.Equal(texts, []string{"Hello"}) || a.Usage != (provider.Usage{InputTokens: 6, OutputTokens: 5, CacheReadTokens: 4}) {
		t.Errorf("%v, %q, %q, %+v", err, blocks, texts, a.Usage)
	}
	// and back
	r.System, r.NoCalls, r.Load = []string{"fixed", "changing"}, true, func(string) ([]byte, error) { return []byte("x"), nil }
	r.Tools = []wire.Tool{{Name: "n", Description: "d", Schema: json.RawMessage(`{}`)}}
	r.Messages = append(r.Messages, history.Message{Role: history.Assistant, Blocks: a.Blocks[:3]}, history.Message{Role: history.User, Blocks: []history.Block{
		{Kind: history.Result, ID: "c1", Text: "no", IsError: true}, {Kind: history.File, MimeType: "image/png"}, {Kind: history.Text, Text: "more"}, {Kind: history.File, Name: "d", MimeType: "application/pdf"},
	}})
	if _, _, _, err := send(t, w, r); err != nil {
		t.Fatal(err)
	}
	wantBody := `/v1/responses {"model":"m","instructions":"fixed\n\nchanging","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},` +
		`{"encrypted_content":"xyz","id":"r1","summary":[],"type":"reasoning"},{"type":"message","role":"assistant","content":"Hello"},` +
		`{"type":"function_call","call_id":"c1","name":"n","arguments":"{\"a\":1}"},` +
		`{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"Error: no"},{"type":"input_image","image_url":"data:image/png;base64,eA=="}]},` +
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"more"},{"type":"input_file","filename":"d","file_data":"data:application/pdf;base64,eA=="}]}],` +
		`"tools":[{"type":"function","name":"n","description":"d","parameters":{},"strict":false}],"tool_choice":"none","stream":true,"store":false,` +
		`"include":["reasoning.encrypted_content"],"reasoning":{"effort":"xhigh"},"prompt_cache_key":"s-1"}`
	if got := strings.TrimSpace((*asked)[1]); got != wantBody {
		t.Errorf("got  %s\nwant %s", got, wantBody)
	}
}

func TestResponsesEnds(t *testing.T) {
	t.Parallel()
	item := `{"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"x"}]}}`
	for name, c := range map[string]struct {
		last  string
		stop  wire.Stop
		class provider.Class
	}{
		"whole":    {completed, wire.Done, ""},
		"length":   {`{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}`, wire.Length, ""},
		"filter":   {`{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}`, wire.Refused, ""},
		"failed":   {`{"type":"response.failed","response":{"error":{"code":"server_error","message":"oops"}}}`, "", provider.ClassOther},
		"too long": {`{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"oops"}}}`, "", provider.ClassContext},
		"limit":    {`{"type":"error","code":"rate_limit_exceeded","message":"slow"}`, "", provider.ClassRateLimit},
		"cut":      {``, "", provider.ClassNetwork},
		"no JSON":  {`{`, "", provider.ClassNetwork},
	} {
		w, _ := serve(t, false, stream(item, c.last))
		_, _, a, err := send(t, w, question())
		var e *wire.Error
		if c.class == "" && (err != nil || a.Stop != c.stop) || c.class != "" && (!errors.As(err, &e) || e.Class != c.class) || len(a.Blocks) != 1 {
			t.Errorf("%s: %v, %+v", name, err, a)
		}
	}
}

// A server that does not know Responses is spoken to in the other way from then on; a model that is not there is another matter.
func TestChangesToChat(t *testing.T) {
	t.Parallel()
	done := stream(`{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`, "[DONE]")
	w, asked := serve(t, false, "404 page not found", done, done)
	for range 2 {
		if _, texts, _, err := send(t, w, question()); err != nil || !slices.Equal(texts, []string{"x"}) {
			t.Errorf("%v, %q", err, texts)
		}
	}
	if len(*asked) != 3 || !strings.HasPrefix((*asked)[2], "/v1/chat/completions ") {
		t.Errorf("%q", *asked)
	}
	w, asked = serve(t, false, `404 {"error":{"code":"model_not_found","message":"The model m does not exist"}}`)
	if _, _, _, err := send(t, w, question()); err == nil || len(*asked) != 1 {
		t.Errorf("%v after %d", err, len(*asked))
	}
}

func TestAdapt(t *testing.T) {
	t.Parallel()
	bad := func(message string) string { return `400 {"error":{"message":"` + message + `"}}` }
	w, asked := serve(t, false, bad("Encrypted content is not supported with this model."), bad("Unsupported parameter: 'reasoning.effort'"), bad("unknown prompt_cache_key"), stream(completed))
	if _, _, _, err := send(t, w, question()); err != nil {
		t.Fatal(err)
	}
	if last := (*asked)[3]; strings.Contains(last, "include") || strings.Contains(last, "effort") || strings.Contains(last, "prompt_cache_key") {
		t.Errorf("%s", last)
	}
}

func TestChat(t *testing.T) {
	t.Parallel()
	w, asked := serve(t, true, stream(
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
		`{"choices":[{"delta":{"content":"Hel"}}]}`, `{"choices":[{"delta":{"content":"lo"}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"n","arguments":"{\"a\""}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"name":"m","arguments":""}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":99,"id":"z","function":{"name":"z"}}]}}]}`,
		`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}`, "[DONE]",
	))
	r := question()
	blocks, texts, a, err := send(t, w, r)
	if err != nil || !slices.Equal(blocks, []string{"text Hello", `call a{"a":1}`, "call made{}"}) || !slices.Equal(texts, []string{"Hello"}) || a.Usage.InputTokens != 6 {
		t.Errorf("%v, %q, %q, %+v", err, blocks, texts, a.Usage)
	}
	r.System, r.Load = []string{"s"}, func(string) ([]byte, error) { return nil, errors.New("gone") }
	r.Messages = append(r.Messages, history.Message{Role: history.Assistant, Blocks: a.Blocks[:2]}, history.Message{Role: history.User, Blocks: []history.Block{
		{Kind: history.Result, ID: "a", Text: "yes"}, {Kind: history.File, Name: "f", MimeType: "image/png"}, {Kind: history.Text, Text: "more"},
	}})
	if _, _, _, err := send(t, w, r); err != nil {
		t.Fatal(err)
	}
	want := `/v1/chat/completions {"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"},` +
		`{"role":"assistant","content":"Hello","tool_calls":[{"id":"a","type":"function","function":{"name":"n","arguments":"{\"a\":1}"}}]},` +
		`{"role":"tool","content":"yes","tool_call_id":"a"},{"role":"user","content":[{"type":"text","text":"[file f (image/png) cannot be shown]"},{"type":"text","text":"more"}]}],` +
		`"stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"xhigh"}`
	if got := strings.TrimSpace((*asked)[1]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// servers that number nothing, and that do not say when they are done
	w, _ = serve(t, true, stream(
		`{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"n","arguments":"{}"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"n","arguments":"{}"}}]}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`))
	if blocks, _, _, err := send(t, w, question()); err != nil || !slices.Equal(blocks, []string{"call a{}", "call b{}"}) {
		t.Errorf("%v, %q", err, blocks)
	}
	w, _ = serve(t, true, stream(`{"choices":[{"delta":{"content":"half"}}]}`))
	if blocks, _, _, err := send(t, w, question()); err == nil || blocks != nil {
		t.Errorf("a cut answer: %v, %q", err, blocks)
	}
}

func FuzzChat(f *testing.F) {
	f.Add(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"n","arguments":"{"}}]}}]}`, `{"type":"response.output_item.done","item":{"type":"reasoning","encrypted_content":"x"}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		c := chatReader{on: func(wire.Event) {}}
		r := responsesReader{on: func(wire.Event) {}}
		for _, e := range []string{a, b} {
			_ = c.event("", []byte(e))
			_ = r.event("", []byte(e))
		}
		c.finish()
		if _, err := json.Marshal(append(c.answer.Blocks, r.answer.Blocks...)); err != nil {
			t.Fatalf("an answer that cannot be kept: %v", err)
		}
	})
}
