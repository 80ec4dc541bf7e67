package modelserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"nanoclaw/internal/testkit/modelserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object = map[string]any

func start(t *testing.T, opt modelserver.Options) *modelserver.Server {
	t.Helper()
	s, err := modelserver.Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

func post(t *testing.T, s *modelserver.Server, path string, body any) *http.Response {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "k")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func user(text string) object { return object{"role": "user", "content": text} }

func assistant() object {
	return object{"role": "assistant", "content": []object{{"type": "text", "text": "x"}}}
}

// text asks and gives the text of the answer and the status.
func text(t *testing.T, s *modelserver.Server, messages ...object) (string, int) {
	t.Helper()
	res := post(t, s, "/v1/messages", object{"model": "m", "messages": messages})
	var out struct {
		Content []struct{ Text, Name string }
		Error   struct{ Type string }
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	all := out.Error.Type
	for _, c := range out.Content {
		all += c.Text + c.Name
	}
	return all, res.StatusCode
}

func TestStepFollowsTheConversation(t *testing.T) {
	t.Parallel()
	s := start(t, modelserver.Options{Steps: []modelserver.Step{{Text: "d1"}}})
	script := modelserver.Script(modelserver.Step{Text: "one", Tools: []modelserver.Tool{{Name: "Bash"}}}, modelserver.Step{Text: "two"})
	escaped := strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&quot;").Replace(script)
	for name, c := range map[string]struct {
		messages []object
		want     string
	}{
		"first":           {[]object{user("a " + script)}, "oneBash"},
		"second":          {[]object{user(script), assistant(), {"role": "user", "content": []object{{"type": "tool_result", "content": "r"}, {"type": "text", "text": "pushed"}}}}, "two"},
		"over":            {[]object{user(script), assistant(), assistant()}, "ok"},
		"newest script":   {[]object{user(script), assistant(), assistant(), user("b " + modelserver.Script(modelserver.Step{Text: "new"}))}, "new"},
		"escaped":         {[]object{user("<message>" + escaped + "</message>")}, "oneBash"},
		"system between":  {[]object{user(script), {"role": "system", "content": "reminder"}}, "oneBash"},
		"without script":  {[]object{user("hello")}, "d1"},
		"beyond the list": {[]object{user("hello"), assistant(), user("on")}, "ok"},
	} {
		if got, status := text(t, s, c.messages...); got != c.want || status != 200 {
			t.Errorf("%s: %q (%d), want %q", name, got, status, c.want)
		}
	}
	if got, status := text(t, s, user("SCRIPT:[{]:END")); status != 400 {
		t.Errorf("a broken script: %q (%d)", got, status)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := start(t, modelserver.Options{})
	twice := user(modelserver.Script(modelserver.Step{Status: 529, Times: 2, Text: "up"}))
	for i, want := range []string{"overloaded_error", "overloaded_error", "up", "up"} {
		if got, _ := text(t, s, twice); got != want {
			t.Errorf("try %d: %q", i, got)
		}
	}
	for range 3 {
		if got, status := text(t, s, user(modelserver.Script(modelserver.Step{Status: 401}))); got != "authentication_error" || status != 401 {
			t.Errorf("%q (%d)", got, status)
		}
	}
	res := post(t, s, "/v1/messages", object{"messages": []object{user(modelserver.Script(modelserver.Step{Status: 429, Headers: map[string]string{"retry-after": "7"}}))}})
	if res.Header.Get("retry-after") != "7" {
		t.Errorf("headers: %v", res.Header)
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	s := start(t, modelserver.Options{})
	long := strings.Repeat("你好 wörld ", 50)
	script := modelserver.Script(modelserver.Step{Text: long, Tools: []modelserver.Tool{{Name: "Bash", Input: json.RawMessage(`{"command":"date"}`)}}, InputTokens: 7})
	res := post(t, s, "/v1/messages?beta=true", object{"stream": true, "messages": []object{user(script)}})
	var kinds []string
	var said, input string
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type  string
			Delta struct {
				Text    string
				Partial string `json:"partial_json"`
			}
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		said, input = said+e.Delta.Text, input+e.Delta.Partial
		if len(kinds) == 0 || kinds[len(kinds)-1] != e.Type {
			kinds = append(kinds, e.Type)
		}
	}
	want := "message_start ping content_block_start content_block_delta content_block_stop content_block_start content_block_delta content_block_stop message_delta message_stop"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("events %s", got)
	}
	if said != long || input != `{"command":"date"}` {
		t.Errorf("text %q, input %q", said, input)
	}

	res = post(t, s, "/v1/messages", object{"stream": true, "messages": []object{user(modelserver.Script(modelserver.Step{Text: long, Cut: true}))}})
	if b, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("a cut stream ended well: %s", b)
	}
}

func TestRecordsAndGates(t *testing.T) {
	t.Parallel()
	s := start(t, modelserver.Options{})
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			if got, _ := text(t, s, user(fmt.Sprint("n", i, modelserver.Script(modelserver.Step{Text: fmt.Sprint("a", i), Gate: "go"})))); got != fmt.Sprint("a", i) {
				t.Errorf("conversation %d: %q", i, got)
			}
		})
	}
	for i := range 8 { // all are asked before one is answered
		r, err := s.Wait(t.Context(), func(r modelserver.Request) bool { return strings.HasPrefix(r.LastText("user"), fmt.Sprint("n", i)) })
		if err != nil || !r.IsMessages() || r.Header.Get("X-Api-Key") != "k" || r.Model != "m" {
			t.Errorf("request %d: %+v, %v", i, r, err)
		}
	}
	s.Open("go")
	s.Open("go")
	wait.Wait()

	post(t, s, "/v1/messages", object{
		"system": []object{{"type": "text", "text": "You are"}, {"type": "text", "text": "Andy"}}, "tools": []object{{"name": "Bash"}},
		"messages": []object{{"role": "user", "content": []object{{"type": "tool_result", "is_error": true, "content": []object{{"type": "text", "text": "failed"}}}}}},
	})
	all := s.Requests()
	r := all[len(all)-1]
	if r.System != "You are\nAndy" || len(r.Tools) != 1 || !r.Contains("failed") || !r.Messages[0].Results[0].IsError {
		t.Errorf("%+v", r)
	}
	post(t, s, "/v1/messages", object{"messages": []object{{"role": "user", "content": []object{
		{"type": "text", "text": "look"}, {"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": "aGVyb24="}},
		{"type": "document", "source": object{"type": "url", "url": "https://example.org"}}, {"type": "search_result", "source": "a string"},
	}}}})
	all = s.Requests()
	want := []modelserver.Media{{Kind: "image", Type: "image/png", Size: 8}, {Kind: "document"}}
	if m := all[len(all)-1].Messages[0]; m.Text != "look" || !slices.Equal(m.Media, want) {
		t.Errorf("%+v", m)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Wait(gone, func(modelserver.Request) bool { return false }); err == nil {
		t.Error("Wait found nothing and said nothing")
	}
	if res := post(t, s, "/v1/messages/count_tokens", object{"messages": []object{user("x")}}); res.StatusCode != 200 {
		t.Errorf("count_tokens: %d", res.StatusCode)
	}
	if res := post(t, s, "/v1/other", object{}); res.StatusCode != 404 {
		t.Errorf("another path: %d", res.StatusCode)
	}
}
