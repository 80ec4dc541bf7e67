package command

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/cli"
)

func source(name, content string) channel.File {
	return channel.File{Name: name, Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(content)), nil
	}}
}

// sendsFiles answers every message with two files.
func sendsFiles(w *world, a *cli.Adapter, m channel.Inbound) {
	w.deliver(a, m, channel.Op{Kind: channel.OpText, Text: "here", ReplyTo: m.ID, Files: []channel.File{source("a.txt", "one\x00"), source("b", "")}}, m.ID+"f")
	w.settle(a, m, channel.Answered, "")
}

func TestChatShowsWhereFilesAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.does(sendsFiles)
	r := w.run("chat", "files please")
	lines := strings.Split(r.out, "\n")
	if r.code != 0 || len(lines) != 4 || lines[0] != "here" || !strings.HasPrefix(lines[1], "file: a.txt (4 bytes) saved at "+w.home) {
		t.Fatalf("exit %d, %q; %s", r.code, r.out, r.err)
	}
	_, path, _ := strings.Cut(lines[1], "saved at ")
	if b, err := os.ReadFile(path); err != nil || string(b) != "one\x00" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestChatSavesFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.does(sendsFiles)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.txt"), "mine")
	in := func(name string) string { return filepath.Join(dir, name) }
	w.want(w.run("chat", "--save", dir, "files please"), 0,
		"here\nfile: a.txt (4 bytes) saved at "+in("a (2).txt")+"\nfile: b (0 bytes) saved at "+in("b")+"\n")
	w.want(w.runIn(t.Context(), strings.NewReader("again\n"), "chat", "--save", dir), 0,
		"here\nfile: a.txt (4 bytes) saved at "+in("a (3).txt")+"\nfile: b (0 bytes) saved at "+in("b (2)")+"\n")
	var a answer
	r := w.run("chat", "--json", "--save", dir, "files please")
	if err := json.Unmarshal([]byte(r.out), &a); err != nil || len(a.Messages) != 1 || a.Messages[0].Files[0].Path != in("a (4).txt") {
		t.Errorf("%v: %s", err, r.out)
	}
	for name, want := range map[string]string{"a.txt": "mine", "a (2).txt": "one\x00", "a (3).txt": "one\x00", "a (4).txt": "one\x00", "b (2)": ""} {
		if b, err := os.ReadFile(in(name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	w.want(w.run("chat", "--save", filepath.Join(dir, "nowhere"), "x"), 2, "", "not a folder")
}

// A file that cannot be saved is told, stays where it is, and is a failure.
func TestChatCannotSave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.does(func(w *world, a *cli.Adapter, m channel.Inbound) {
		w.deliver(a, m, channel.Op{Kind: channel.OpText, Text: "here", ReplyTo: m.ID, Files: []channel.File{source("a.txt", "one")}}, "f")
		if err := os.RemoveAll(filepath.Join(w.home, "files")); err != nil { // somebody has tidied up
			w.Error(err)
		}
		w.settle(a, m, channel.Answered, "")
	})
	r := w.run("chat", "--save", t.TempDir(), "x")
	if r.code != 1 || !strings.Contains(r.out, "here\nfile: a.txt (3 bytes) saved at "+w.home) || !strings.Contains(r.err, `save "a.txt"`) {
		t.Errorf("exit %d, %q, %q", r.code, r.out, r.err)
	}
}

func asksFirst(w *world, a *cli.Adapter, m channel.Inbound) {
	q := &channel.Question{ID: "led-1", Title: "Deploy", Text: "Now?", Options: []channel.Option{{Label: "Yes", Selected: "Yes, now", Value: "y"}, {Label: "No", Selected: "No", Value: "n"}}}
	shown := w.deliver(a, m, channel.Op{Kind: channel.OpQuestion, Question: q, ReplyTo: m.ID}, m.ID+"q")
	w.deliver(a, m, channel.Op{Kind: channel.OpAnswered, Question: q, Target: shown, Chosen: &q.Options[0]}, m.ID+"a")
	w.reply(a, m, "went on")
	w.settle(a, m, channel.Answered, "")
}

func TestChatShowsQuestionsAsTheyCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.does(asksFirst)
	const question = "Deploy\n\nNow?\n\n1. Yes\n2. No\n\nAnswer with a number.\n"
	w.want(w.run("chat", "x"), 0, "went on\n", question, "nanoclaw chat 1")
	w.want(w.run("chat", "--conversation", "work", "x"), 0, "went on\n", question, "nanoclaw chat --conversation work 1")
	w.want(w.runIn(t.Context(), strings.NewReader("x\n"), "chat"), 0, question+"went on\n", "answered: Yes, now")
	var a answer
	r := w.run("chat", "--json", "x")
	if err := json.Unmarshal([]byte(r.out), &a); err != nil || len(a.Messages) != 2 || a.Messages[0].Question == nil || a.Messages[0].Question.Options[1].Value != "n" {
		t.Errorf("%v: %s", err, r.out)
	}
}

// A name with escape sequences comes to no terminal: the channel refuses it, and a line about a file is plain in any case.
func TestFileNamesAreHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.does(func(w *world, a *cli.Adapter, m channel.Inbound) {
		if _, err := a.Deliver(t.Context(), m.Address, channel.Op{Kind: channel.OpText, Files: []channel.File{source("a\x1b[2J", "")}}, "f"); err == nil {
			w.Error("the name was taken")
		}
		w.deliver(a, m, channel.Op{Kind: channel.OpCard, ReplyTo: m.ID, Card: &channel.Card{Title: "T", Body: "B"}}, "c")
		w.settle(a, m, channel.Answered, "")
	})
	r := w.run("chat", "x")
	w.want(r, 0, "T\n\nB\n")
	if bytes.ContainsRune([]byte(r.out+r.err), 0x1b) {
		t.Errorf("%q %q", r.out, r.err)
	}
}

// At a terminal, a one-shot chat takes the answer right there.
func TestChatTakesTheAnswerAtTheSameTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stdin, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	w.store.Verdicts(channel.Verdict{Kind: channel.Dropped, Reason: "not yet"})
	w.does(func(w *world, a *cli.Adapter, m channel.Inbound) {
		q := &channel.Question{ID: "led-1", Title: "Deploy", Text: "Now?", Options: []channel.Option{{Label: "Yes", Value: "y"}, {Label: "No", Value: "n"}}}
		w.deliver(a, m, channel.Op{Kind: channel.OpQuestion, Question: q, ReplyTo: m.ID}, "q")
		for i, line := range []string{"perhaps\n", "2\n", "\n", "no\n"} {
			if _, err := io.WriteString(typed, line); err != nil {
				w.Errorf("line %d: %v", i, err)
			}
		}
		for len(w.store.Answers()) < 2 {
			runtime.Gosched()
		}
		w.reply(a, m, "went on")
		w.settle(a, m, channel.Answered, "")
	})
	deps := w.deps()
	deps.Terminal = func(v any) bool { return v == any(stdin) }
	var out, errs bytes.Buffer
	code := Run(t.Context(), deps, []string{"--home", w.home, "chat", "x"}, stdin, &out, &errs)
	_ = stdin.Close()
	w.want(result{out.String(), errs.String(), code}, 0, "went on\n", "1. Yes\n2. No\n", "type the number or the text of an option", "not yet")
	for _, a := range w.store.Answers() {
		if a.QuestionID != "led-1" || a.Value != "n" {
			t.Errorf("the host got %+v", a)
		}
	}
}
