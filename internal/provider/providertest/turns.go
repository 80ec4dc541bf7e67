package providertest

import (
	"errors"
	"strings"

	"nanoclaw/internal/provider"
)

const hello = `<message to="family">Hello — 你好.</message>`

func oneTurn(s *session) {
	r := s.start("", "", "greet", Step{Text: hello})
	events, result := r.until(provider.Result)
	if got := texts(events); got != hello {
		s.Errorf("texts before the result: %q", got)
	}
	if result.Text != hello || result.IsError || result.Interrupted || result.Usage == nil {
		s.Errorf("result: %+v", result)
	}
	if r.continuation() == "" {
		s.Error("no continuation before the result")
	}
	// every event is preceded by activity, with nothing but the translations of the same one between
	if events[0].Kind != provider.Activity {
		s.Errorf("the first event is %s", events[0].Kind)
	}
	if len(of(provider.Activity, events)) < 2 {
		s.Error("no activity for the events")
	}
	r.End()
	if late := r.rest(); len(of(provider.Result, late)) != 0 || texts(late) != "" {
		s.Errorf("after the end: %+v", late)
	}
	if err := r.Err(); err != nil {
		s.Errorf("Err after End: %v", err)
	}
}

func twoTurns(s *session) {
	r := s.start("", "", "one", Step{Text: "first"})
	if _, result := r.until(provider.Result); result.Text != "first" {
		s.Errorf("result: %+v", result)
	}
	r.push("second", "two", Step{Text: "second"})
	events, result := r.until(provider.Result)
	if result.Text != "second" || texts(events) != "second" {
		s.Errorf("second turn: %q, result %+v", texts(events), result)
	}
	r.receipt(events, "second")
}

// receipt checks that the input was reported as taken, once, among the events.
func (r *running) receipt(events []provider.Event, id string) {
	r.Helper()
	if !r.p.Caps().Receipts {
		return
	}
	n := 0
	for _, e := range of(provider.Taken, events) {
		if e.InputID == id {
			n++
		}
	}
	if n != 1 {
		r.Errorf("input %s was taken %d times", id, n)
	}
}

// An input that comes before the first answer belongs to a result, in its turn or in one of its own.
func pushedEarly(s *session) {
	r := s.start("", "", "one", Step{Text: "first"})
	r.push("second", "two", Step{Text: "second"})
	r.End()
	all := r.rest()
	if got := texts(all); !strings.Contains(got, "second") {
		s.Errorf("texts: %q", got)
	}
	r.receipt(all, "second")
	if err := r.Err(); err != nil {
		s.Errorf("Err: %v", err)
	}
}

func tool(s *session) {
	r := s.start("", "", "add", Step{Text: "Adding.", Tool: "add", Args: `{"a":2,"b":3}`}, Step{Text: "Five."})
	events, result := r.until(provider.Result)
	var order []string
	for _, e := range events {
		switch e.Kind {
		case provider.Text, provider.ToolStart, provider.ToolEnd:
			order = append(order, string(e.Kind)+" "+e.Text)
			if e.Kind != provider.Text && !strings.HasSuffix(e.Tool, "add") {
				s.Errorf("tool event: %+v", e)
			}
		}
	}
	if got, want := strings.Join(order, "|"), "text Adding.|tool_start |tool_end |text Five."; got != want {
		s.Errorf("order %s, want %s", got, want)
	}
	if result.Text != "Five." || result.IsError {
		s.Errorf("result: %+v", result)
	}
	if s.sub.Received != nil && !s.sub.Received(`{"sum":5}`) {
		s.Error("the model did not get the tool's result")
	}
}

func unknownTool(s *session) {
	r := s.start("", "", "strange", Step{Tool: "no_such_tool", Args: `{}`}, Step{Text: "It failed."})
	events, result := r.until(provider.Result)
	if result.IsError || texts(events) != "It failed." {
		s.Errorf("a tool error ended the turn: %+v", events)
	}
	if a, b := len(of(provider.ToolStart, events)), len(of(provider.ToolEnd, events)); a != b {
		s.Errorf("%d starts, %d ends", a, b)
	}
}

func midTurn(s *session) {
	r := s.start("", "", "wait", Step{Text: "Waiting.", Tool: "block", Args: `{}`, Take: true}, Step{Text: "I saw it."})
	if !s.p.Caps().MidTurnInput || !s.p.Caps().Receipts {
		s.Skip("takes no input within a turn")
	}
	before, _ := r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	r.push("late", "and buy milk")
	s.tools.Release()
	events, result := r.until(provider.Result)
	r.receipt(events, "late")
	if result.Text != "I saw it." {
		s.Errorf("result: %+v", result)
	}
	if got := texts(append(before, events...)); got != "Waiting.I saw it." {
		s.Errorf("texts: %q", got)
	}
	if s.sub.Received != nil && !s.sub.Received("and buy milk") {
		s.Error("the model did not get the pushed input")
	}
	// it was part of that turn: nothing is left
	r.End()
	if rest := r.rest(); len(of(provider.Result, rest)) != 0 {
		s.Errorf("one more result: %+v", rest)
	}
}

func (s *session) signal(c <-chan struct{}) {
	s.Helper()
	select {
	case <-c:
	case <-s.ctx.Done():
		s.Fatal("the tool was not called")
	}
}

func endQueued(s *session) {
	r := s.start("", "", "add", Step{Text: "Adding.", Tool: "add", Args: `{"a":1,"b":1}`}, Step{Text: "Two."})
	r.End()
	all := r.rest()
	if got := texts(all); got != "Adding.Two." || len(of(provider.Result, all)) != 1 {
		s.Errorf("after an early end: %+v", all)
	}
	if err := r.Err(); err != nil {
		s.Errorf("Err: %v", err)
	}
}

func afterEnd(s *session) {
	r := s.start("", "", "one", Step{Text: "first"})
	r.End()
	r.End()
	if err := r.Push(s.ctx, provider.Input{ID: "x", Text: "x"}); !errors.Is(err, provider.ErrEnded) {
		s.Errorf("Push after End: %v", err)
	}
	r.rest()
	if err := r.Push(s.ctx, provider.Input{ID: "y", Text: "y"}); !errors.Is(err, provider.ErrEnded) {
		s.Errorf("Push after the last event: %v", err)
	}
	r.Abort()
}

// A reader that does not read must not stop the tools, nor lose an event.
func slowReader(s *session) {
	steps := make([]Step, 0, 6)
	for range 5 {
		steps = append(steps, Step{Text: "again ", Tool: "add", Args: `{"a":1,"b":1}`})
	}
	r := s.start("", "", "many", append(steps, Step{Text: "over"})...)
	if _, start := r.until(provider.ToolStart); start.Tool == "" {
		s.Error("a tool without a name")
	}
	if s.sub.Wait != nil { // the model comes to its last step while nobody reads
		if err := s.sub.Wait(s.ctx, 5); err != nil {
			s.Error(err)
		}
	}
	r.until(provider.Result)
	if got := texts(r.seen); got != strings.Repeat("again ", 5)+"over" {
		s.Errorf("texts: %q", got)
	}
}

// longAnswer: an answer that is a line of 5 MB for most programs arrives whole, and the conversation goes on after it.
func longAnswer(s *session) {
	if !s.sub.Long {
		s.Skip("no answer can be long")
	}
	const word, times = "heron ", 5 << 20 / 6
	r := s.start("", "", "much", Step{Text: word, Repeat: times}, Step{Text: "never"})
	events, result := r.until(provider.Result)
	want := strings.Repeat(word, times)
	if got := texts(events); strings.TrimSpace(got) != strings.TrimSpace(want) || strings.TrimSpace(result.Text) != strings.TrimSpace(want) || result.IsError {
		s.Errorf("%d bytes of text, a result of %d bytes, error %t %s", len(got), len(result.Text), result.IsError, result.Message)
	}
	r.push("on", "and now?", Step{Text: "Still here."})
	if _, result := r.until(provider.Result); result.Text != "Still here." || result.IsError {
		s.Errorf("after it: %+v", result)
	}
	r.End()
	r.rest()
}
