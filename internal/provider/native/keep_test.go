package native_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/testkit/modelserver"
)

// A picture that is broken never gets into the history, where it would make every later request fail.
func TestBrokenPicture(t *testing.T) {
	a := newAgent(t)
	path := filepath.Join(a.cwd, "broken.png")
	if err := os.WriteFile(path, []byte("\x89PNG\r\n\x1a\nand no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := a.result(a.query("", provider.Input{
		ID: "p", Text: prompt("look", do(call("Read", map[string]string{"file_path": path})), say("seen")),
		Attachments: []provider.Attachment{{Name: "broken.png", Path: path}},
	}))
	if e.IsError || e.Text != "seen" {
		t.Fatalf("%+v", e)
	}
	if body := string(a.lastRequest().Body); strings.Contains(body, `"type":"image"`) || !strings.Contains(body, "cannot be shown") {
		t.Errorf("the picture was sent: %s", body)
	}
}

// Two summaries within a minute leave two archives.
func TestArchivesHaveNamesOfTheirOwn(t *testing.T) {
	a := newAgent(t)
	_, c := a.ask("", "remember the word heron", say("I will."))
	for _, text := range []string{"which word?", "and which else?"} {
		e, next := a.ask(c, text, modelserver.Step{Status: 400, Times: 1, Message: "prompt is too long: 200001 tokens > 200000 maximum", Text: "after " + text})
		if e.IsError {
			t.Fatalf("%+v", e)
		}
		c = next
	}
	archived, err := filepath.Glob(filepath.Join(a.cwd, "conversations", "*.md"))
	if err != nil || len(archived) != 2 {
		t.Errorf("%v, %v", archived, err)
	}
}
