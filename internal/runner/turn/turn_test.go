package turn

import (
	"os"
	"strings"
	"testing"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/runner/block"
)

func states() []State {
	return []State{Claimed, Waiting, Running, Done, Failed, Stopped, Joined, Released}
}

func events() []Event {
	return []Event{Prompt, Begin, Nudge, Again, Complete, Fail, Stop, Join, Release}
}

// want is the table of legal transitions, written down a second time and by state.
func want() map[State]map[Event]State {
	return map[State]map[Event]State{
		Claimed: {Prompt: Waiting, Complete: Done, Fail: Failed, Stop: Stopped, Release: Released},
		Waiting: {Begin: Running, Join: Joined, Again: Claimed, Release: Released},
		Running: {Nudge: Waiting, Again: Claimed, Complete: Done, Fail: Failed, Stop: Stopped, Release: Released},
	}
}

func TestEveryTransition(t *testing.T) {
	t.Parallel()
	for _, s := range states() {
		if s.Final() != (want()[s] == nil) {
			t.Errorf("%s: final is %v", s, s.Final())
		}
		for _, on := range events() {
			e := New("ex-1", []mailbox.InRow{{ID: "m"}}, nil)
			e.state = s
			err := e.Step(on)
			to, legal := want()[s][on]
			switch {
			case legal && (err != nil || e.State() != to):
				t.Errorf("%s on %s: %s, %v; want %s", s, on, e.State(), err, to)
			case !legal && (err == nil || e.State() != s):
				t.Errorf("%s on %s must be refused and change nothing: %s, %v", s, on, e.State(), err)
			}
		}
	}
}

// Every state that is not final can be left for a final one, and each state can be reached.
func TestNoDeadEnds(t *testing.T) {
	t.Parallel()
	reach := map[State]map[State]bool{}
	for _, s := range states() {
		reach[s] = map[State]bool{s: true}
	}
	for range states() {
		for _, r := range Rules() {
			for s := range reach {
				if reach[s][r.From] {
					reach[s][r.To] = true
				}
			}
		}
	}
	for _, s := range states() {
		if !reach[Claimed][s] {
			t.Errorf("%s cannot be reached", s)
		}
		if !s.Final() && (!reach[s][Done] || !reach[s][Released]) {
			t.Errorf("%s has no way out", s)
		}
	}
}

func TestDiagramNamesEverything(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("state.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Rules() {
		for _, word := range []string{string(r.From), string(r.To), string(r.On)} {
			if !strings.Contains(strings.ToLower(string(page)), word) {
				t.Errorf("state.md does not show %q of %+v", word, r)
			}
		}
	}
}

func human(id string, seq int64, a mailbox.Address) mailbox.InRow {
	return mailbox.InRow{ID: id, Seq: seq, Kind: mailbox.KindChat, Trigger: true, Address: a}
}

var here = mailbox.Address{ChannelType: "cli", PlatformID: "me", ThreadID: "t"}

func running(rows ...mailbox.InRow) *Exchange {
	e := New("ex-1", rows, nil)
	e.state = Running
	return e
}

func TestJudge(t *testing.T) {
	t.Parallel()
	open := Lost{To: "x", Why: NotClosed, Body: "text"}
	unknown := Lost{To: "y", Why: UnknownDestination, Body: "text"}
	tests := []struct {
		name           string
		nudged, spoke  bool
		nobody         bool
		lost           []Lost
		bare           string
		nudge, back    bool
		rescue, scrtch bool
	}{
		{name: "silence"},
		{name: "bare", bare: "b", nudge: true},
		{name: "bare after words", bare: "b", spoke: true, scrtch: true},
		{name: "lost after words", lost: []Lost{unknown}, spoke: true, nudge: true},
		{name: "unclosed", lost: []Lost{open}, nudge: true},
		{name: "nudged: silence", nudged: true},
		{name: "nudged: bare", nudged: true, bare: "b", back: true},
		{name: "nudged: bare, nobody", nudged: true, bare: "b", nobody: true, scrtch: true},
		{name: "nudged: bare after words", nudged: true, bare: "b", spoke: true, scrtch: true},
		{name: "nudged: one open", nudged: true, lost: []Lost{open, unknown}, rescue: true},
		{name: "nudged: one open and bare", nudged: true, lost: []Lost{open}, bare: "b", rescue: true, scrtch: true},
		{name: "nudged: two open", nudged: true, lost: []Lost{open, open}},
		{name: "nudged: two open and bare", nudged: true, lost: []Lost{open, open}, bare: "b", back: true},
		{name: "nudged: one open and empty", nudged: true, lost: []Lost{{To: "x", Why: NotClosed}}},
		{name: "nudged: unknown again", nudged: true, lost: []Lost{unknown}},
	}
	for _, tt := range tests {
		e := running(human("m", 2, here))
		if tt.nobody {
			e = running(mailbox.InRow{ID: "m", Seq: 2, Kind: mailbox.KindWebhook, Trigger: true, Address: here})
		}
		e.nudged = tt.nudged
		if tt.spoke {
			e.Left(mailbox.OutRow{Kind: mailbox.KindChat, Content: []byte(`{"text":"x"}`)}, false)
		}
		for _, l := range tt.lost {
			e.Lose(l)
		}
		v := e.Judge(tt.bare)
		if v.Nudge != tt.nudge || v.Fallback != tt.back || (v.Rescue != nil) != tt.rescue || v.Scratch != tt.scrtch {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}

// spec/runner.md section 4.7, rows 7 to 10.
func TestJudgeTask(t *testing.T) {
	t.Parallel()
	task := mailbox.InRow{ID: "t", Seq: 2, Kind: mailbox.KindTask, SeriesID: "series-1", Trigger: true}
	lost := Lost{To: "x", Why: TaskBlock, Body: "text"}
	for _, tt := range []struct {
		name           string
		nudged, logged bool
		lost           []Lost
		nudge, log     bool
	}{
		{name: "text", log: true},
		{name: "block", lost: []Lost{lost}, nudge: true, log: true},
		{name: "nudged", nudged: true, logged: true},
		{name: "nudged: block again", nudged: true, logged: true, lost: []Lost{lost}},
		{name: "logged before a crash", logged: true, lost: []Lost{lost}, nudge: true},
	} {
		e := running(task)
		e.nudged, e.logged = tt.nudged, tt.logged
		for _, l := range tt.lost {
			e.Lose(l)
		}
		v := e.Judge("bare")
		if v.Nudge != tt.nudge || v.Log != tt.log || v.Fallback || v.Rescue != nil || v.Scratch {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}

// An exchange is a task's run by its rows, and no longer when a person's message was taken into it.
func TestTaskRun(t *testing.T) {
	t.Parallel()
	task := mailbox.InRow{ID: "t", Seq: 2, Kind: mailbox.KindTask, SeriesID: "series-1", Trigger: true}
	echo := mailbox.InRow{ID: "e", Seq: 4, Kind: mailbox.KindChat, Address: mailbox.Address{ChannelType: mailbox.ChannelEcho}}
	for _, tt := range []struct {
		name string
		rows []mailbox.InRow
		want bool
	}{
		{"task", []mailbox.InRow{task}, true},
		{"task and echo", []mailbox.InRow{task, echo}, true},
		{"echo", []mailbox.InRow{echo}, false},
		{"task and chat", []mailbox.InRow{task, human("m", 6, here)}, false},
		{"nobody asked", nil, false},
	} {
		if got := New("ex", tt.rows, nil).Task(); got != tt.want {
			t.Errorf("%s: task %v", tt.name, got)
		}
	}
	e := running(task)
	if e.Series() != "series-1" {
		t.Errorf("series %q", e.Series())
	}
	e.Absorb(New("ex-2", []mailbox.InRow{human("m", 6, here)}, nil))
	if e.Task() {
		t.Error("a person waits, and the exchange is still a task's run")
	}
}

// W12: words to another agent are no answer to the person who waits.
func TestW12WordsToAnAgentAreNoAnswer(t *testing.T) {
	t.Parallel()
	agent := mailbox.OutRow{Kind: mailbox.KindChat, Address: mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: "ag"}, Content: []byte(`{"text":"x"}`)}
	e := running(human("m", 2, here))
	e.Left(agent, true)
	if v := e.Judge("I have asked."); !v.Nudge {
		t.Errorf("a person waits: %+v", v)
	}
	e = running(mailbox.InRow{ID: "w", Seq: 2, Kind: mailbox.KindWebhook, Trigger: true})
	e.Left(agent, true)
	if v := e.Judge("I have asked."); v.Nudge {
		t.Errorf("nobody waits: %+v", v)
	}
	for _, operation := range []string{"edit", "reaction"} {
		e = running(human("m", 2, here))
		e.Left(mailbox.OutRow{Kind: mailbox.KindChat, Address: here, Content: []byte(`{"operation":"` + operation + `","messageId":"1"}`)}, true)
		if v := e.Judge("Done."); !v.Nudge {
			t.Errorf("%s counts as an answer", operation)
		}
	}
	for _, content := range []string{`{"type":"card","card":{}}`, `{"type":"ask_question","questionId":"q"}`, `{"files":["a"]}`} {
		e = running(human("m", 2, here))
		e.Left(mailbox.OutRow{Kind: mailbox.KindChat, Address: here, Content: []byte(content)}, true)
		if v := e.Judge("Done."); v.Nudge {
			t.Errorf("%s does not count as an answer", content)
		}
	}
}

func TestRouting(t *testing.T) {
	t.Parallel()
	agent := mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: "ag"}
	echo := mailbox.Address{ChannelType: mailbox.ChannelEcho, PlatformID: "me"}
	other := mailbox.Address{ChannelType: "cli", PlatformID: "other"}
	context := human("c", 20, other)
	context.Trigger = false
	e := running(human("m1", 2, other), human("m2", 4, here), human("a", 6, agent), human("e", 8, echo),
		mailbox.InRow{ID: "t", Seq: 10, Kind: mailbox.KindTask, Trigger: true, Address: other}, context)
	if r, ok := e.Asker(); !ok || r.ID != "m2" {
		t.Errorf("asker %+v", r)
	}
	if r, ok := e.AnsweredFrom(mailbox.Address{ChannelType: "cli", PlatformID: "other"}); !ok || r.ID != "t" {
		t.Errorf("answered %+v", r)
	}
	if _, ok := e.AnsweredFrom(mailbox.Address{ChannelType: "cli", PlatformID: "nobody"}); ok {
		t.Error("answered nobody")
	}
	var ids []string
	for _, r := range e.Waiters() {
		ids = append(ids, r.ID)
	}
	if got := strings.Join(ids, " "); got != "a m2 m1" {
		t.Errorf("waiters %s", got)
	}
	if _, ok := running(context).Asker(); ok {
		t.Error("a context row asks nothing")
	}
}

func out(exchange string, segment int, text string) mailbox.OutRow {
	content, _ := mailbox.EncodeContent(mailbox.ChatOut{Text: text})
	return mailbox.OutRow{Kind: mailbox.KindChat, Address: here, Content: content, Exchange: exchange, Segment: segment}
}

func TestRepeats(t *testing.T) {
	t.Parallel()
	e := running(human("m", 2, here))
	e.Left(out("ex-1", 2, "hi"), false)
	e.Left(out("ex-1", 0, "tool"), true)
	notice := out("ex-1", 0, "sorry")
	notice.Content = []byte(`{"text":"sorry","notice":true}`)
	e.Left(notice, false)
	file := out("ex-1", 0, "")
	file.Content = []byte(`{"text":"caption","files":["a"]}`)
	e.Left(file, true)
	thread := here
	thread.ThreadID = "other"
	for _, tt := range []struct {
		to      mailbox.Address
		text    string
		segment int
		want    bool
	}{
		{here, "hi", 2, false}, {here, "hi", 3, true}, {here, "hi", 1, false}, {thread, "hi", 3, false}, {here, "hi!", 3, false},
		{here, "tool", 1, true}, {here, "sorry", 9, false}, {here, "caption", 9, false},
	} {
		if got := e.Repeats(tt.to, tt.text, tt.segment); got != tt.want {
			t.Errorf("%q in segment %d to %s: %v", tt.text, tt.segment, tt.to.ThreadID, got)
		}
	}
	if _, ok := e.RepeatsEarlier(here, "tool"); ok {
		t.Error("a tool may repeat itself")
	}
	if err := e.Step(Again); err != nil {
		t.Fatal(err)
	}
	if row, ok := e.RepeatsEarlier(here, "tool"); !ok || row.Exchange != "ex-1" {
		t.Error("not after a retry")
	}
	if !e.Repeats(here, "hi", 1) {
		t.Error("a block of an earlier attempt")
	}
	if n := len(e.Sent()); n != 3 { // a notice is no answer
		t.Errorf("%d rows were sent", n)
	}
}

func TestAbsorb(t *testing.T) {
	t.Parallel()
	e := running(human("m1", 2, here), human("m3", 6, here))
	o := New("ex-2", []mailbox.InRow{human("m2", 4, here)}, []mailbox.OutRow{out("ex-2", 1, "said")})
	o.nudged = true
	e.Absorb(o)
	if got := strings.Join(e.IDs(), " "); got != "m1 m2 m3" {
		t.Errorf("rows %s", got)
	}
	if !e.Nudged() || !e.Repeats(here, "said", 1) {
		t.Error("nudge or words forgotten")
	}
}

func TestRetryForgetsTheUnfinishedAnswer(t *testing.T) {
	t.Parallel()
	e := running(human("m", 2, here))
	e.Write(`bare <message to="x">open`)
	e.Lose(Lost{To: "y", Why: UnknownDestination})
	if err := e.Step(Again); err != nil {
		t.Fatal(err)
	}
	if e.Heard() || len(e.Lost()) != 0 {
		t.Error("remembered")
	}
	items := e.Write(`<message to="x">closed</message>`)
	if len(items) != 1 || items[0].Body != "closed" || items[0].Fate != block.Deliver {
		t.Errorf("items %+v", items)
	}
	if !e.Fresh() || e.Fresh() {
		t.Error("one new conversation per exchange")
	}
	if e.Attempt() != 1 || e.Attempt() != 2 {
		t.Error("attempts")
	}
}
