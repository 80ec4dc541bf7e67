package native_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native"
)

// answers serves one answer of the Messages API after the other and records the bodies. An answer is a list of events; one that ends
// with "cut" breaks the connection.
func answers(t *testing.T, list ...[]string) (url string, bodies *[]string) {
	t.Helper()
	bodies = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*bodies = append(*bodies, string(b))
		for _, e := range list[min(len(*bodies), len(list))-1] {
			if e == "cut" {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", e)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, bodies
}

func textBlock(s string) []string {
	return []string{`{"type":"content_block_start","content_block":{"type":"text","text":"` + s + `"}}`, `{"type":"content_block_stop"}`}
}

func stop(reason string) []string {
	return []string{`{"type":"message_delta","delta":{"stop_reason":"` + reason + `"}}`, `{"type":"message_stop"}`}
}

// An answer that breaks off is not asked for again as far as it was whole, and so nothing is said twice; one that hit its limit is
// continued.
func TestAnswerIsContinued(t *testing.T) {
	half := []string{`{"type":"content_block_start","content_block":{"type":"text","text":"lost"}}`, "cut"}
	glob := []string{`{"type":"content_block_start","content_block":{"type":"tool_use","id":"t1","name":"Glob"}}`, `{"type":"content_block_delta","delta":{"partial_json":"{\"pattern\":\"*\"}"}}`, `{"type":"content_block_stop"}`}
	whole := append(textBlock("end"), stop("end_turn")...)
	for name, c := range map[string]struct {
		list  [][]string
		texts string
		told  string // stands in the last request
		class provider.Class
	}{
		"broken after a block":    {[][]string{append(textBlock("one"), half...), whole}, "one|end", "The connection broke here", ""},
		"broken before a block":   {[][]string{half, whole}, "end", "go", ""},
		"broken after a call":     {[][]string{append(append(textBlock("one"), glob...), half...), whole}, "one|end", `"tool_use_id":"t1"`, ""},
		"limit":                   {[][]string{append(textBlock("one"), stop("max_tokens")...), whole}, "one|end", "cut off by its limit", ""},
		"limit again and again":   {[][]string{append(textBlock("x"), stop("max_tokens")...)}, "x|x|x|x|x", "cut off by its limit", provider.ClassOther},
		"limit without a word":    {[][]string{stop("max_tokens")}, "", "go", provider.ClassOther},
		"broken again and again":  {[][]string{append(textBlock("x"), half...)}, "x|x|x|x|x", "broke here", provider.ClassOther},
		"refused":                 {[][]string{append(textBlock("no"), stop("refusal")...)}, "no", "go", provider.ClassOther},
		"an empty answer is none": {[][]string{stop("end_turn")}, "", "go", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			url, bodies := answers(t, c.list...)
			a.opt = options(t, t.TempDir(), url, wires()["anthropic"])
			e, _ := a.ask("", "go")
			var texts []string
			for _, s := range a.seen {
				if s.Kind == provider.Text {
					texts = append(texts, s.Text)
				}
			}
			if got := strings.Join(texts, "|"); got != c.texts || e.IsError != (c.class != "") || e.Class != c.class {
				t.Errorf("texts %q, result %+v", got, e)
			}
			if last := (*bodies)[len(*bodies)-1]; !strings.Contains(last, c.told) {
				t.Errorf("the last request lacks %q: %s", c.told, last)
			}
		})
	}
}

// A conversation that is killed in the middle of a tool goes on where it was.
func TestPRV7KilledInATool(t *testing.T) {
	a := newAgent(t)
	glob := []string{`{"type":"content_block_start","content_block":{"type":"tool_use","id":"t1","name":"Bash"}}`, `{"type":"content_block_delta","delta":{"partial_json":"{\"command\":\"sleep 600\"}"}}`, `{"type":"content_block_stop"}`}
	url, bodies := answers(t, append(glob, stop("tool_use")...), append(textBlock("on"), stop("end_turn")...))
	a.opt = options(t, t.TempDir(), url, wires()["anthropic"])
	q := a.query("", provider.Input{ID: "a", Text: "go"})
	id := a.until(q, provider.Init).Continuation
	a.until(q, provider.ToolStart)
	// what is on disk now is what a SIGKILL would leave
	from, to := filepath.Join(a.opt.Home, "native"), filepath.Join(t.TempDir(), "copy", "native")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	q.Abort()
	a.opt.Home = filepath.Dir(to)
	if e, _ := a.ask(id, "and now?"); e.Text != "on" || e.IsError {
		t.Errorf("result: %+v", e)
	}
	if last := (*bodies)[1]; !strings.Contains(last, `"tool_use_id":"t1","content":[{"type":"text","text":"The call was interrupted.`) || !strings.Contains(last, "and now?") {
		t.Errorf("request: %s", last)
	}
}

// Outputs that nobody has looked at for long are removed when the conversation is opened again.
func TestOldOutputs(t *testing.T) {
	a := newAgent(t)
	_, id := a.ask("", "go", say("hi"))
	dir := filepath.Join(a.opt.Home, "native", id, "output")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old.txt": 8 * 24 * time.Hour, "new.txt": time.Hour} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	a.ask(id, "again", say("hi"))
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "new.txt" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	fine := options(t, t.TempDir(), "http://127.0.0.1:1", wires()["openai"])
	if p, err := native.New(fine); err != nil || p.Name() != "openai" || !slices.Contains(p.Caps().Commands, "/compact") {
		t.Errorf("%v", err)
	}
	relative, bare := fine, fine
	relative.Home, bare.HTTP = "home", nil
	for _, o := range []native.Options{relative, bare, {}} {
		if _, err := native.New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
