package ollama

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

func serve(t *testing.T, opt Options, show string, answers ...string) (*Wire, *[]string) {
	t.Helper()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		a := show
		if r.URL.Path == "/api/chat" {
			asked = append(asked, strings.TrimSpace(string(b)))
			a = answers[min(len(asked), len(answers))-1]
		}
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
	opt.Endpoint = wire.Endpoint{URL: s.URL, Client: &http.Client{Transport: tr}, First: time.Minute, Idle: time.Minute}
	return New(opt), &asked
}

const done = `{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":7,"eval_count":3}`

func question() wire.Request {
	return wire.Request{Model: "m", Effort: "xhigh", Tools: []wire.Tool{{Name: "n", Description: "d", Schema: json.RawMessage(`{}`)}}, System: []string{"a", "", "b"},
		Messages: []history.Message{{Role: history.User, Blocks: []history.Block{{Kind: history.Text, Text: "hi"}}}}}
}

// The size of the context is always said, the server may not shorten anything, and calls get ids.
func TestChat(t *testing.T) {
	t.Parallel()
	w, asked := serve(t, Options{}, `{"capabilities":["tools","vision"],"model_info":{"x.context_length":8192}}`, strings.Join([]string{
		`{"message":{"thinking":"hm"}}`, `{"message":{"content":"Hel"}}`, `{"message":{"content":"lo"}}`, ``,
		`{"message":{"content":"","tool_calls":[{"function":{"name":"n","arguments":{"a":1}}},{"id":"own","function":{"name":"n","arguments":{}}}]}}`, done,
	}, "\n"))
	var texts []string
	on := func(e wire.Event) {
		if e.Text != "" {
			texts = append(texts, e.Text)
		}
	}
	r := question()
	a, err := w.Send(t.Context(), r, on)
	if err != nil || len(a.Blocks) != 4 || a.Usage != (provider.Usage{InputTokens: 7, OutputTokens: 3}) || !slices.Equal(texts, []string{"Hello"}) {
		t.Fatalf("%v, %+v, %q", err, a, texts)
	}
	if made := a.Blocks[2].ID; !strings.HasPrefix(made, "call_") || a.Blocks[3].ID != "own" || string(a.Blocks[2].Args) != `{"a":1}` {
		t.Errorf("calls %+v", a.Blocks[2:])
	}
	a.Blocks[2].ID = "c1"
	r.Load = func(string) ([]byte, error) { return []byte("x"), nil }
	r.Messages = append(r.Messages, history.Message{Role: history.Assistant, Blocks: a.Blocks[:3]}, history.Message{Role: history.User, Blocks: []history.Block{
		{Kind: history.Result, ID: "c1", Name: "n", Text: "no", IsError: true}, {Kind: history.File, MimeType: "image/png"}, {Kind: history.File, Name: "d", MimeType: "application/pdf"},
	}})
	if _, err := w.Send(t.Context(), r, on); err != nil {
		t.Fatal(err)
	}
	want := `{"model":"m","messages":[{"role":"system","content":"a\n\nb"},{"role":"user","content":"hi"},` +
		`{"role":"assistant","content":"Hello","thinking":"hm","tool_calls":[{"id":"c1","function":{"name":"n","arguments":{"a":1}}}]},` +
		`{"role":"tool","content":"Error: no","tool_name":"n","tool_call_id":"c1"},{"role":"user","content":"[file d (application/pdf) cannot be shown]","images":["eA=="]}],` +
		`"tools":[{"type":"function","function":{"name":"n","description":"d","parameters":{}}}],"stream":true,"think":"high","options":{"num_ctx":8192},"keep_alive":"30m","truncate":false,"shift":false}`
	if got := (*asked)[1]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestContext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		option int64
		show   string
		want   int64
	}{
		{0, `{"model_info":{"x.context_length":8192}}`, 8192}, {0, `{"model_info":{"x.context_length":1000000}}`, DefaultContext}, {0, `{"model_info":{"x.context_length":100}}`, smallest},
		{0, `404 {"error":"no such model"}`, DefaultContext}, {0, `{`, DefaultContext}, {65536, `{"model_info":{"x.context_length":8192}}`, 65536},
	} {
		w, _ := serve(t, Options{Context: c.option}, c.show, done)
		if got := w.Window(t.Context(), "m"); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestAdapt(t *testing.T) {
	t.Parallel()
	w, asked := serve(t, Options{}, `{"capabilities":["completion"]}`, `400 {"error":"\"m\" does not support thinking"}`, `400 {"error":"m does not support tools"}`, done)
	r := question()
	r.Load = func(string) ([]byte, error) { return []byte("x"), nil }
	r.Messages[0].Blocks = append(r.Messages[0].Blocks, history.Block{Kind: history.File, Name: "p", MimeType: "image/png"})
	if _, err := w.Send(t.Context(), r, func(wire.Event) {}); err != nil {
		t.Fatal(err)
	}
	if last := (*asked)[2]; strings.Contains(last, "think") || strings.Contains(last, `"tools"`) || strings.Contains(last, "images") {
		t.Errorf("%s", last)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		class  provider.Class
		retry  bool
	}{
		"status":    {`500 {"error":"llama runner has crashed"}`, provider.ClassOther, true},
		"too long":  {`400 {"error":"the input length exceeds the context length"}`, provider.ClassContext, false},
		"no model":  {`404 {"error":"model \"m\" not found, try pulling it first"}`, provider.ClassOther, false},
		"in stream": {`{"message":{"content":"x"}}` + "\n" + `{"error":"out of memory"}`, provider.ClassOther, true},
		"cut":       {`{"message":{"content":"x"}}` + "\n", provider.ClassNetwork, true},
		"no JSON":   {"x\n", provider.ClassNetwork, true},
		"text":      {"502 bad gateway", provider.ClassNetwork, true},
	} {
		w, _ := serve(t, Options{}, `{}`, c.answer)
		a, err := w.Send(t.Context(), question(), func(wire.Event) {})
		var e *wire.Error
		if !errors.As(err, &e) || e.Class != c.class || e.Retryable != c.retry || len(a.Blocks) != 0 {
			t.Errorf("%s: %v, %+v", name, err, a)
		}
	}
	w, _ := serve(t, Options{}, `{}`, `{"message":{"content":"x"},"done":true,"done_reason":"length"}`)
	if a, err := w.Send(t.Context(), question(), func(wire.Event) {}); err != nil || a.Stop != wire.Length {
		t.Errorf("%v, %+v", err, a)
	}
}

func FuzzLine(f *testing.F) {
	f.Add(`{"message":{"tool_calls":[{"function":{"name":"n","arguments":"x"}}]}}`, done)
	f.Fuzz(func(t *testing.T, a, b string) {
		r := reader{on: func(wire.Event) {}}
		_ = r.line([]byte(a))
		_ = r.line([]byte(b))
		r.finish()
		if _, err := json.Marshal(r.answer.Blocks); err != nil {
			t.Fatalf("an answer that cannot be kept: %v", err)
		}
	})
}
