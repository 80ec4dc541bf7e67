package chatui

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"nanoclaw/internal/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a model with what it sent and acknowledged.
type desk struct {
	*testing.T
	m     *Model
	said  []control.Say
	chose []control.Answer
	acked []int64
	now   time.Time
	seq   int64
}

func newDesk(t *testing.T, width, height int) *desk {
	d := &desk{T: t, now: time.Unix(1_800_000_000, 0)}
	d.m = New(Config{Agent: "Nano",
		Send:   func(s control.Say) { d.said = append(d.said, s) },
		Answer: func(a control.Answer) { d.chose = append(d.chose, a) },
		Ack:    func(n int64) { d.acked = append(d.acked, n) },
		Now:    func() time.Time { return d.now }})
	d.do(tea.WindowSizeMsg{Width: width, Height: height})
	return d
}

// do gives the model a message; quit reports whether it asked to end.
func (d *desk) do(msg tea.Msg) (quit bool) {
	d.Helper()
	_, cmd := d.m.Update(msg)
	if k, ok := msg.(tea.KeyPressMsg); !ok || cmd == nil || k.Mod&tea.ModCtrl == 0 && k.Code != tea.KeyEnter {
		return false
	}
	if d.m.ticking && d.m.work.Working {
		return false // the command is the clock
	}
	_, quit = cmd().(tea.QuitMsg)
	return quit
}

func (d *desk) typed(s string) {
	d.Helper()
	for _, r := range s {
		d.do(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
}

func (d *desk) enter() bool { return d.do(tea.KeyPressMsg{Code: tea.KeyEnter}) }
func (d *desk) ctrl(r rune) bool {
	return d.do(tea.KeyPressMsg{Code: r, Mod: tea.ModCtrl})
}

func (d *desk) event(e control.Event) {
	d.Helper()
	if e.Kind != control.EventWorking && e.Kind != control.EventHello && e.Kind != control.EventLost {
		d.seq++
		e.Seq = d.seq
	}
	d.do(EventMsg(e))
}

func (d *desk) agent(id, text string) {
	d.Helper()
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorAgent, ID: id, Text: text})
}

// screen is the view without colour; it must fit the terminal.
func (d *desk) screen() string {
	d.Helper()
	s := ansi.Strip(d.m.View().Content)
	lines := strings.Split(s, "\n")
	if len(lines) > d.m.height {
		d.Errorf("the screen has %d rows of %d:\n%s", len(lines), d.m.height, s)
	}
	for _, l := range lines {
		if w := ansi.StringWidth(l); w > d.m.width {
			d.Errorf("a row has %d cells of %d: %q", w, d.m.width, l)
		}
	}
	return s
}

func (d *desk) shows(parts ...string) {
	d.Helper()
	s := d.screen()
	for _, p := range parts {
		if !strings.Contains(s, p) {
			d.Errorf("the screen does not show %q:\n%s", p, s)
		}
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 20)
	d.shows("ready")
	d.typed("hello")
	if d.enter() {
		t.Fatal("Enter ended the program")
	}
	if len(d.said) != 1 || d.said[0].Text != "hello" || d.said[0].ID == "" {
		t.Fatalf("sent: %+v", d.said)
	}
	d.shows("you · sending", "hello", "waiting for Nano")
	d.do(SentMsg{ID: d.said[0].ID})
	d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorUser, ID: d.said[0].ID, Text: "hello"})
	if n := strings.Count(d.screen(), "hello"); n != 1 {
		t.Errorf("the message is shown %d times:\n%s", n, d.screen())
	}
	d.event(control.Event{Kind: control.EventWorking, Work: &control.Work{Working: true, Tool: "Bash", Queued: 2, Since: control.At(d.now.Add(-65 * time.Second))}})
	d.shows("working · tool Bash · 1 min 05 s · 2 queued")
	d.agent("a1", "hi there")
	d.event(control.Event{Kind: control.EventEdit, Author: control.AuthorAgent, ID: "e1", Target: "a1", Text: "hi you"})
	d.event(control.Event{Kind: control.EventReaction, Target: "a1", Emoji: "👍"})
	d.event(control.Event{Kind: control.EventSettled, Target: d.said[0].ID, State: control.StateAnswered})
	d.event(control.Event{Kind: control.EventWorking, Work: &control.Work{}})
	d.shows("Nano · edited", "hi you", "👍", "ready")
	if strings.Contains(d.screen(), "hi there") {
		t.Error("the text before the edit is still shown")
	}
	if got := d.acked[len(d.acked)-1]; got != d.seq {
		t.Errorf("acknowledged %v, want up to %d", d.acked, d.seq)
	}
	d.do(EventMsg(control.Event{Seq: 2, Kind: control.EventMessage, Author: control.AuthorAgent, ID: "a1", Text: "old again"}))
	if strings.Contains(d.screen(), "old again") {
		t.Error("an entry seen before was shown again")
	}
}

func TestEndsOfMessages(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 30)
	for _, c := range []struct{ state, reason, want string }{
		{control.StateFailed, "no credit", "failed: no credit"},
		{control.StateDead, "gone", "dead: gone"},
		{control.StateSilent, "", "(no answer, on purpose)"},
	} {
		d.typed("x")
		d.enter()
		id := d.said[len(d.said)-1].ID
		d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorUser, ID: id, Text: "x"})
		d.event(control.Event{Kind: control.EventSettled, Target: id, State: c.state, Reason: c.reason})
		d.shows(c.want, "ready")
	}
	for i, noticeFirst := range []bool{true, false} { // a failure that the agent tells itself is told once
		d.typed("z")
		d.enter()
		id, text := d.said[len(d.said)-1].ID, fmt.Sprintf("I could not %d.", i)
		d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorUser, ID: id, Text: "z"})
		events := []control.Event{
			{Kind: control.EventMessage, Author: control.AuthorAgent, ID: text, Text: text, Notice: true},
			{Kind: control.EventSettled, Target: id, State: control.StateFailed, Reason: text},
		}
		if !noticeFirst {
			slices.Reverse(events)
		}
		for _, e := range events {
			d.event(e)
		}
		if n := strings.Count(d.screen(), text); n != 1 {
			t.Errorf("the reason is shown %d times:\n%s", n, d.screen())
		}
	}
	d.typed("y")
	d.enter()
	d.do(SentMsg{ID: d.said[len(d.said)-1].ID, Err: errors.New("too large")})
	d.shows("not sent: too large", "ready")
}

func TestCtrlCStopsTheTurnFirstAndTheProgramSecond(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 20)
	d.typed("long job")
	d.enter()
	d.event(control.Event{Kind: control.EventWorking, Work: &control.Work{Working: true}})
	if d.ctrl('c') {
		t.Fatal("the first Ctrl-C left the program")
	}
	if last := d.said[len(d.said)-1]; last.Text != StopText {
		t.Fatalf("the first Ctrl-C sent %+v", last)
	}
	d.shows("stopping · Ctrl-C again leaves", "── stop ──")
	for _, s := range d.said {
		d.event(control.Event{Kind: control.EventMessage, Author: control.AuthorUser, ID: s.ID, Text: s.Text})
		d.event(control.Event{Kind: control.EventSettled, Target: s.ID, State: control.StateSilent})
	}
	d.event(control.Event{Kind: control.EventWorking, Work: &control.Work{}})
	d.shows("ready", "(stopped)")
	if screen := d.screen(); strings.Contains(screen, StopText) || strings.Contains(screen, "on purpose") {
		t.Errorf("a stop looks like a message:\n%s", screen)
	}
	n := len(d.said)
	if !d.ctrl('c') || len(d.said) != n {
		t.Error("Ctrl-C with nothing running did not just leave")
	}

	d = newDesk(t, 80, 20)
	d.typed("job")
	d.enter()
	d.ctrl('c')
	if !d.ctrl('c') {
		t.Error("the second Ctrl-C did not leave")
	}
}

func TestLeaving(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 20)
	d.typed("half")
	if d.ctrl('d') {
		t.Error("Ctrl-D threw away what was typed")
	}
	d = newDesk(t, 80, 20)
	if !d.ctrl('d') {
		t.Error("Ctrl-D on an empty input did not leave")
	}
	d.typed("/quit")
	if !d.enter() || len(d.said) != 0 {
		t.Error("/quit did not leave, or was sent")
	}
	d = newDesk(t, 80, 20)
	d.typed("  ")
	if d.enter() || len(d.said) != 0 {
		t.Error("a blank message was sent")
	}
}

func TestMultiLineInputAndRecall(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 60, 20)
	d.typed("one")
	d.do(tea.KeyPressMsg{Code: tea.KeyEnter, Mod: tea.ModAlt})
	d.typed("two")
	d.do(tea.KeyPressMsg{Code: tea.KeyEnter, Mod: tea.ModShift})
	d.typed("three")
	d.ctrl('j')
	d.typed("四")
	d.shows("one", "two", "three", "四")
	d.enter()
	if want := "one\ntwo\nthree\n四"; len(d.said) != 1 || d.said[0].Text != want {
		t.Fatalf("sent %q, want %q", d.said, want)
	}
	d.typed("second")
	d.enter()
	d.do(tea.KeyPressMsg{Code: tea.KeyUp})
	if got := d.m.input.Value(); got != "second" {
		t.Errorf("one up recalls %q", got)
	}
	d.do(tea.KeyPressMsg{Code: tea.KeyDown})
	if got := d.m.input.Value(); got != "" {
		t.Errorf("down again shows %q", got)
	}
	for range 40 {
		d.ctrl('j')
		d.typed("x")
	}
	d.screen() // the input must not push the rest off the screen
}

func TestWidthsOfWideCharacters(t *testing.T) {
	t.Parallel()
	for _, width := range []int{4, 7, 33, 80} {
		for _, text := range []string{
			strings.Repeat("漢字かな交じり文", 20), strings.Repeat("한국어 문장 ", 20), strings.Repeat("👩🏽‍💻👨‍👩‍👧‍👦🇩🇪", 15), strings.Repeat("é", 90),
			strings.Repeat("x", 300), "mixed 漢字 and words " + strings.Repeat("word ", 40), "tab\there\nline\n\nend",
		} {
			d := newDesk(t, width, 12)
			d.agent("a", text)
			d.screen()
			d.typed(string([]rune(text)[:16]))
			d.screen()
			d.event(control.Event{Kind: control.EventWorking, Work: &control.Work{Working: true, Tool: "工具" + text}})
			d.screen()
		}
	}
	// Nothing of a wide text may be lost by wrapping.
	const text = "漢字かな交じり文と👩🏽‍💻を折り返す"
	if got := strings.Join(wrap(text, 5), ""); got != text {
		t.Errorf("wrapping changed %q into %q", text, got)
	}
	d := newDesk(t, 40, 10)
	d.typed("漢字")
	if c := d.m.View().Cursor; c == nil || c.X != 2+4 {
		t.Errorf("the cursor stands at %+v, want column 6 behind two wide characters", c)
	}
}

func TestScrollingKeepsItsPlace(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 40, 10)
	for i := range 60 {
		d.agent(string(rune('A'+i)), "line "+strings.Repeat("w", i%7))
	}
	d.agent("last", "the newest")
	d.shows("the newest")
	d.do(tea.KeyPressMsg{Code: tea.KeyPgUp})
	before := strings.Split(d.screen(), "\n")[0]
	d.agent("more", "arrives meanwhile")
	if after := strings.Split(d.screen(), "\n")[0]; after != before {
		t.Errorf("a new message moved what is being read from %q to %q", before, after)
	}
	d.shows("PgDn for newer")
	for range 5 {
		d.do(tea.KeyPressMsg{Code: tea.KeyPgDown})
	}
	d.shows("arrives meanwhile")
	d.do(tea.WindowSizeMsg{Width: 20, Height: 6})
	d.shows("arrives")
	d.do(tea.WindowSizeMsg{Width: 1, Height: 1})
	_ = d.m.View() // must not fail, whatever the terminal says
}

func TestHostAwayAndBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 12)
	d.event(control.Event{Kind: control.EventWorking, Work: &control.Work{Working: true}})
	d.event(control.Event{Kind: control.EventLost, Reason: "gone"})
	d.shows("the host is away, connecting again")
	d.event(control.Event{Kind: control.EventHello, Hello: &control.Hello{}})
	d.shows("ready")
}

func TestUnreadIsMarkedAndHistoryIsAcknowledged(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 80, 20)
	msg := func(seq int64, author, text string) control.Event {
		return control.Event{Seq: seq, Kind: control.EventMessage, Author: author, ID: text, Text: text}
	}
	d.m.Load(control.History{Cursor: 2, Last: 4, Events: []control.Event{
		msg(1, control.AuthorUser, "question"), msg(2, control.AuthorAgent, "seen"), msg(3, control.AuthorAgent, "unseen"), msg(4, control.AuthorAgent, "too"),
	}})
	s := d.screen()
	seen, line, unseen := strings.Index(s, "  seen"), strings.Index(s, "new while you were away"), strings.Index(s, "unseen")
	if seen < 0 || seen > line || line > unseen || strings.Count(s, "new while") != 1 {
		t.Errorf("the mark stands wrong:\n%s", s)
	}
	if got := d.acked[len(d.acked)-1]; got != 4 {
		t.Errorf("acknowledged up to %d", got)
	}
}

func TestAgentsWordsCannotDriveTheTerminal(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b]0;title\x07b\x1b[2Jc\u009b31md\u202ee\x00f\r\ng\bh"
	want := "a]0;titleb[2Jc31mdef\ngh"
	if got := Plain(evil); got != want {
		t.Errorf("Plain gives %q, want %q", got, want)
	}
	d := newDesk(t, 80, 30)
	d.agent("a", evil)
	d.event(control.Event{Kind: control.EventEdit, Target: "a", Text: evil})
	d.event(control.Event{Kind: control.EventReaction, Target: "a", Emoji: evil})
	d.event(control.Event{Kind: control.EventWorking, Work: &control.Work{Working: true, Tool: evil}})
	for _, bad := range []string{"\x1b]", "\x1b[2J", "\u009b", "\u202e", "\x00", "\x07"} {
		if strings.Contains(d.m.View().Content, bad) {
			t.Errorf("%q reached the terminal", bad)
		}
	}
}

func FuzzPlainAndWrap(f *testing.F) {
	f.Add("plain", 10)
	f.Add("\x1b[31mred\x1b[0m", 3)
	f.Add("漢字\t👩🏽‍💻\r\n", 2)
	f.Fuzz(func(t *testing.T, s string, width int) {
		width = 2 + (width%200+200)%200
		p := Plain(s)
		if strings.ContainsFunc(p, func(r rune) bool { return r != '\n' && unsafeRune(r) }) {
			t.Fatalf("Plain(%q) = %q", s, p)
		}
		for _, l := range wrap(p, width) {
			if w := ansi.StringWidth(l); w > width {
				t.Errorf("a line of %d cells for %d: %q", w, width, l)
			}
		}
	})
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"", 10, ""}, {"short", 10, "short"}, {"two words", 5, "two|words"}, {"one two three", 8, "one two|three"},
		{"abcdefghij", 4, "abcd|efgh|ij"}, {"漢字かな", 5, "漢字|かな"}, {"ab 漢字", 5, "ab 漢|字"}, {"a\n\nb", 5, "a||b"},
		{" 00000", 5, "|00000"}, {"      x", 3, "   |  |x"}, {"x 👩🏽‍💻👩🏽‍💻", 4, "x 👩🏽‍💻|👩🏽‍💻"},
	} {
		got := strings.Join(wrap(c.in, c.width), "|")
		squeeze := strings.NewReplacer(" ", "", "|", "", "\n", "").Replace
		if squeeze(got) != squeeze(c.in) {
			t.Errorf("wrap(%q, %d) lost something: %q", c.in, c.width, got)
		}
		if c.want != "" && !strings.HasPrefix(c.in, "  ") && got != c.want {
			t.Errorf("wrap(%q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
	start := time.Now()
	if n := len(wrap(strings.Repeat("word 漢 ", 200_000), 80)); n < 10_000 {
		t.Errorf("%d lines", n)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("wrapping 1.8 MB took %v", d)
	}
}
