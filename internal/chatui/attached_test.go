package chatui

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/control"
)

func (d *desk) asks(id string) {
	d.Helper()
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorAgent, ID: id, Text: "in plain words",
		Question: &control.Question{ID: "q-" + id, Title: "Deploy " + id, Text: "Now?", Options: []control.Option{{Label: "Yes", Value: "y"}, {Label: "Not yet", Value: "n"}}}})
}

func (d *desk) hides(parts ...string) {
	d.Helper()
	s := d.screen()
	for _, p := range parts {
		if strings.Contains(s, p) {
			d.Errorf("the screen shows %q:\n%s", p, s)
		}
	}
}

func TestQuestionIsAnsweredByNumberOrText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2", "not yet", " NOT YET "} {
		d := newDesk(t, 80, 20)
		d.event(control.Event{Kind: control.EventWorking, Work: &control.Work{Working: true, Tool: "ask_user_question"}})
		d.asks("a")
		d.shows("Deploy a", "Now?", "1. Yes", "2. Not yet", "type a number", "Nano asks you")
		d.hides("in plain words")
		d.typed("perhaps")
		d.enter()
		if len(d.chose) != 0 || len(d.said) != 1 {
			t.Fatalf("another text answered: %+v", d.chose)
		}
		d.typed(text)
		d.enter()
		if diff := cmp.Diff([]control.Answer{{Question: "q-a", Value: "n"}}, d.chose); diff != "" || len(d.said) != 1 {
			t.Fatalf("%q: %s, said %+v", text, diff, d.said)
		}
		d.shows("answering", "working")
		d.do(AnsweredMsg{Question: "q-a"})
		d.shows("answering")
		d.event(control.Event{Kind: control.EventAnswer, Target: "a", Text: "Not yet, wait", Value: "n"})
		d.shows("Deploy a", "✓ Not yet, wait")
		d.hides("1. Yes", "answering", "type a number")
		d.typed("2")
		d.enter()
		if len(d.chose) != 1 || len(d.said) != 2 {
			t.Errorf("an answered question takes answers")
		}
	}
}

// The newest open question that has such an option is meant.
func TestSeveralQuestions(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 30)
	d.asks("a")
	d.asks("b")
	for range 2 {
		d.typed("1")
		d.enter()
	}
	if diff := cmp.Diff([]control.Answer{{Question: "q-b", Value: "y"}, {Question: "q-a", Value: "y"}}, d.chose); diff != "" {
		t.Error(diff)
	}
	d.event(control.Event{Kind: control.EventAnswer, Target: "b"})
	d.shows("(closed without an answer)")
}

func TestRefusedAnswer(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 20)
	d.asks("a")
	d.typed("1")
	d.enter()
	d.do(AnsweredMsg{Question: "q-a", Err: errors.New("disk full")})
	d.shows("disk full", "1. Yes", "type a number")
	d.typed("1")
	d.enter()
	d.do(AnsweredMsg{Question: "q-a", Err: &control.Error{Code: control.CodeConflict, Message: "this question is no longer open"}})
	d.shows("no longer open", "closed without")
	d.typed("1")
	d.enter()
	if len(d.chose) != 2 || len(d.said) != 1 {
		t.Errorf("answers %+v, messages %+v", d.chose, d.said)
	}
}

// An answer given elsewhere, or before this chat was opened, is shown the same.
func TestAnswerFromElsewhere(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 20)
	d.asks("a")
	d.typed("1")
	d.enter()
	d.event(control.Event{Kind: control.EventAnswer, Target: "a", Text: "Yes", Value: "y"})
	d.do(AnsweredMsg{Question: "q-a", Err: &control.Error{Code: control.CodeConflict, Message: "too late"}})
	d.shows("✓ Yes")
	d.hides("too late")
	d.event(control.Event{Kind: control.EventAnswer, Target: "nothing here", Text: "x"})
}

func TestFilesAndCards(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 100, 30)
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorAgent, ID: "f", Text: "here you are", Files: []control.File{
		{Name: "report.pdf", Size: 12 << 10, Path: "/h/files/local/out-1/report.pdf"}, {Name: "empty", Size: 0, Path: "/h/empty"}}})
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorAgent, ID: "g", Files: []control.File{{Name: "big", Size: 3 << 20, Path: "/h/big"}}})
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorAgent, ID: "c", Text: "in words", Card: &control.Card{
		Title: "Build", Body: "All green", Paragraphs: []string{"42 tests"}, Links: []control.Link{{Label: "Log", URL: "https://example.org/log"}}}})
	d.event(control.Event{Kind: control.EventReaction, Target: "c", Emoji: "🎉"})
	d.shows("here you are", "file: report.pdf (12 KB) saved at /h/files/local/out-1/report.pdf", "file: empty (0 bytes)", "file: big (3.0 MB) saved at /h/big",
		"Build", "All green", "42 tests", "Log: https://example.org/log", "🎉")
	d.hides("in words")
	d.event(control.Event{Kind: control.EventEdit, Target: "c", Text: "red after all"})
	d.shows("red after all", "edited")
	d.hides("All green")
}

// An agent's names, labels and links cannot steer the terminal.
func TestAttachedThingsAreHarmless(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;owned\x07\x1b[2J\u009b2J\u202ex\ny"
	d := newDesk(t, 80, 40)
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorAgent, ID: "a", Files: []control.File{{Name: evil, Path: evil}}})
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorAgent, ID: "b", Question: &control.Question{ID: "q", Title: evil, Text: evil,
		Options: []control.Option{{Label: evil, Value: "v"}}}})
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorAgent, ID: "c", Card: &control.Card{Title: evil, Body: evil, Paragraphs: []string{evil},
		Links: []control.Link{{Label: evil, URL: evil}}}})
	check := func() {
		t.Helper()
		content := d.m.View().Content
		for _, bad := range []string{"\x1b]", "\x07", "\x1b[2J", "\u009b", "\u202e"} {
			if strings.Contains(content, bad) {
				t.Errorf("the screen holds %q", bad)
			}
		}
		d.screen()
	}
	check()
	d.typed("1")
	d.enter()
	d.do(AnsweredMsg{Question: "q", Err: errors.New(evil)})
	check()
	d.event(control.Event{Kind: control.EventAnswer, Target: "b", Text: evil})
	check()
}

// APR-10: an answered question keeps its title and text, also in a chat that is opened later; only the options go.
func TestAPR10AnsweredQuestionKeepsItsText(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 20)
	d.m.Load(control.History{Last: 2, Cursor: 2, Events: []control.Event{
		{Seq: 1, Kind: control.EventMessage, Author: control.AuthorAgent, ID: "a", Text: "x", Question: &control.Question{ID: "q", Title: "Deploy", Text: "Now?",
			Options: []control.Option{{Label: "Sure", Value: "y"}}}},
		{Seq: 2, Kind: control.EventAnswer, Target: "a", Text: "Sure, go", Value: "y"},
	}})
	d.shows("Deploy", "Now?", "✓ Sure, go")
	d.hides("1. Sure")
	d.typed("1")
	d.enter()
	if len(d.chose) != 0 || len(d.said) != 1 {
		t.Errorf("an answered question takes answers: %+v", d.chose)
	}
}
