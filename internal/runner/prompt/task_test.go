package prompt

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"nanoclaw/internal/mailbox"
)

// GATE-8: a task session is told that only tools send, and is shown no block that it could write instead; a chat session is.
func TestGATE8TaskSessionSendsByTools(t *testing.T) {
	t.Parallel()
	for _, destinations := range [][]mailbox.Destination{
		nil, {chat("family", "", "C1")}, {peer("parent", "ag-1")}, {chat("family", "", "C1"), chat("work", "", "C2"), peer("parent", "ag-1")},
	} {
		got := Addendum(AddendumEnv{Name: "Andy", Destinations: destinations, Task: &TaskEnv{SeriesID: "task-7"}})
		for what, text := range map[string]string{"addendum": got, "nudge": TaskNudge([]TaskBlock{{"family", "hi"}}, []string{"family"}), "compaction": Compaction([]string{"family"}, true)} {
			for _, never := range []string{"<message to", "</message>", "Answer where the message came from"} {
				if strings.Contains(text, never) {
					t.Errorf("%s shows %q", what, never)
				}
			}
		}
		for _, must := range []string{"only if the task asks", "not sent to anybody", "`tasks/task-7.md`"} {
			if !strings.Contains(got, must) {
				t.Errorf("no %q in %s", must, got)
			}
		}
		channels := strings.Contains(got, "one of your own chats")
		if want := len(destinations) > 0 && strings.Contains(got, "`family`"); channels != want {
			t.Errorf("where to turn: %v, want %v: %s", channels, want, got)
		}
		if none := strings.Contains(got, "You have no destinations"); none != (len(destinations) == 0) {
			t.Errorf("no destinations: %v", none)
		}
	}
	if got := Addendum(AddendumEnv{Destinations: []mailbox.Destination{chat("family", "", "C1")}}); !strings.Contains(got, `<message to="name">`) || strings.Contains(got, "Task run") {
		t.Error("a chat session is told of tasks, or not of blocks")
	}
}

// GATE-12: what is said at compaction is for the summary and ends with the rule and the names; it is no prompt that asks for
// words now.
func TestGATE12ReminderEndsTheSummary(t *testing.T) {
	t.Parallel()
	for _, task := range []bool{false, true} {
		got := Compaction([]string{"work", "family"}, task)
		if strings.Contains(got, "<system>") || strings.Contains(got, "<context") {
			t.Errorf("task %v: it looks like a prompt: %s", task, got)
		}
		if !strings.HasSuffix(got, "\nYour destinations: family, work.") {
			t.Errorf("task %v: the names are not at the end: %s", task, got)
		}
		_, reminder, _ := strings.Cut(got, "End the summary with this reminder")
		if rule := strings.Contains(reminder, `<message to="name">`); rule == task || !strings.Contains(reminder, "send_message") {
			t.Errorf("task %v: the wrong rule: %s", task, reminder)
		}
		for _, element := range []string{"<message>", "<task>", "<webhook>", "attributes", "who said what"} {
			if !strings.Contains(got, element) {
				t.Errorf("no %s in %s", element, got)
			}
		}
	}
	if got := Compaction(nil, false); !strings.HasSuffix(got, "You have no destinations.") {
		t.Error(got)
	}
}

// spec/runner.md section 4.10.
func TestRunLog(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", " \n\t": "", "<internal>only thought</internal>": "", "</invoke>\n</function_calls>": "",
		"Done.":                "Done.",
		"Two\n\n  lines\there": "Two lines here",
		"a <internal>x <internal>y</internal> z</internal> b": "a b",
		"before <internal>never closed":                       "before",
		`Checked. <message to="family">Dinner is
ready</message> End.`: "Checked. [for family] Dinner is ready End.",
		`<message to="a">1</message><message to="b">2<internal>no</internal></message>`: "[for a] 1 [for b] 2",
		`<message to="a"></message>`:                                          "[for a]",
		`x <message to="a">never closed`:                                      "x [for a] never closed",
		`<message to="a">one <message to="b">two</message>`:                   "[for a] one [for b] two",
		`<message to="a">one <message to="b">two</message></message>`:         `[for a] one <message to="b">two</message>`,
		"In code: `<message to=\"a\">x</message>`.":                           "In code: `<message to=\"a\">x</message>`.",
		"<internal><message to=\"a\">draft</message>":                         "",
		"Done.</parameter>\n</invoke>":                                        "Done.",
		"use </invoke> here":                                                  "use </invoke> here",
		"\x1b[31mred\x00\u009b \xff":                                          "[31mred \ufffd",
		strings.Repeat("é", 500):                                              strings.Repeat("é", 500),
		strings.Repeat("é", 501):                                              strings.Repeat("é", 499) + "…",
		strings.Repeat("a", 498) + "     " + "bcd":                            strings.Repeat("a", 498) + "…",
		`<message to="a">` + strings.Repeat("x", 300<<10) + `</message>`:      "[for a] …",
		fmt.Sprintf(`<message to="%s">x</message>`, strings.Repeat("n", 200)): "[for " + strings.Repeat("n", 100) + "…] x",
	} {
		if got := RunLog(in); got != want {
			t.Errorf("RunLog(%.80q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzRunLog(f *testing.F) {
	f.Add("a <message to=\"x\">b</message> <internal>c</internal>")
	f.Add("```\n<message to=\"x\">\n```")
	f.Add("<message to=\"a\"><message to=\"b\">\x00 </invoke>")
	f.Fuzz(func(t *testing.T, text string) {
		got := RunLog(text)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > maxRunLog || strings.TrimSpace(got) != got || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("RunLog(%q) = %q", text, got)
		}
	})
}

// What a script has found may not fill the whole conversation.
func TestScriptOutputIsBounded(t *testing.T) {
	t.Parallel()
	r := row(2, mailbox.KindTask, family, `{"prompt":"do it","scriptOutput":"`+strings.Repeat("é", 1<<19)+`"}`)
	got := Render([]mailbox.InRow{r}, testEnv())
	if len(got) > maxScriptOutput+1000 || !strings.Contains(got, "é…\n\nInstructions:\ndo it</task>") {
		t.Errorf("%d bytes: …%s", len(got), got[max(0, len(got)-100):])
	}
}
