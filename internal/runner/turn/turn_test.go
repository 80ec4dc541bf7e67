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
		Claimed: {Prompt: Waiting, Fail: Failed, Stop: Stopped, Release: Released},
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
			e = running(mailbox.InRow{ID: "m", Seq: 2, Kind: mailbox.KindTask, Trigger: true, Address: here})
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
