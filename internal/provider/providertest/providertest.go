// Package providertest is the conformance suite of provider.Provider: an implementation is supported when it passes.
//
// The suite says what the model does as a list of steps; the subject turns them into a prompt that makes its model do so, or puts
// them into a script beside it. With internal/testkit/modelserver that is a few lines:
//
//	func TestConformance(t *testing.T) {
//		providertest.Run(t, func(t *testing.T) *providertest.Subject {
//			api := …                                  // one scripted model for each test
//			return &providertest.Subject{
//				Cwd:    t.TempDir(),
//				New:    func(t *testing.T, tools *providertest.Tools) provider.Provider { … },
//				Prompt: func(t *testing.T, text string, steps ...providertest.Step) string { … },
//				…                                      // what else can be seen; each nil or zero field skips its tests
//			}
//		})
//	}
//
// Tests of an ability are skipped when Caps, or a field of Subject, says that it is not there. A provider in the runner's
// process calls Tools.Call; others reach the tools at Tools.Server, which every QueryInput of the suite names.
package providertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"nanoclaw/internal/provider"
)

// Step is what the model does before it looks at the next input: says something, then calls a tool.
type Step struct {
	Text   string
	Tool   string // a tool of Tools: add or block
	Args   string // its arguments, JSON
	Shell  string // a shell command, with Subject.Shell
	Repeat int    // Text is said that often in one go, with Subject.Long
	Take   bool   // a pushed input is taken after this step
	Status int    // the model's API answers with this HTTP status, with Subject.Statuses
	Silent bool   // the model's API accepts the request and says nothing any more, with Subject.Watchdog
}

// Subject is an implementation under test, with one home, one agent folder and one model.
type Subject struct {
	// New makes the provider as a new process of the runner would.
	New func(t *testing.T, tools *Tools) provider.Provider
	// Prompt makes a prompt for the steps. It holds text.
	Prompt func(t *testing.T, text string, steps ...Step) string
	Cwd    string
	// System is the system prompt of the newest request to the model; nil if there is none to look at.
	System func() string
	// Received reports whether the model has got a request that contains text; nil if that cannot be seen.
	Received func(text string) bool
	// Wait returns when the model has got a request after that many answers of its own; nil if that cannot be seen.
	Wait     func(ctx context.Context, answers int) error
	Stale    string // a continuation of the right form that does not exist
	Statuses bool   // the model has an API with HTTP statuses
	Shell    bool   // the model can run shell commands
	Program  bool   // the agent is a program of its own, the parent of the shells
	Long     bool   // the model can repeat a text

	// Block is how long a tool blocks in the test that it is waited for; default 3 s.
	Block time.Duration
	// Quiet is the longest time without Activity while a tool runs, as New makes the provider; zero: not tested. Users get 30 s or
	// less, a subject makes it short.
	Quiet time.Duration
	// Watchdog is New for a provider that takes a model for dead after that much silence (a few seconds); nil: not tested.
	Watchdog func(t *testing.T, tools *Tools, silence time.Duration) provider.Provider
	// Silence is how long that is; zero: 3 s. A program that takes seconds for a step on a busy machine needs more.
	Silence time.Duration
	// Spontaneous makes a prompt after which the model says first and ends its turn, and later says second in a turn that
	// nobody asked for; nil: there are none.
	Spontaneous func(t *testing.T, text, first, second string) string
	// Shown are the media types of the attachments in the newest message of a person, as the model got it; nil if that cannot
	// be seen.
	Shown func() []string
	// Recodes maps the type of a picture to that which the provider turns it into.
	Recodes map[string]string
}

// Limit is how long one test may take on a slow machine.
const Limit = 4 * time.Minute

// Run runs the suite; subject is called once for each test. only names the tests to run; without any, all are.
func Run(t *testing.T, subject func(t *testing.T) *Subject, only ...string) {
	tests := []struct {
		name string
		run  func(*session)
	}{
		{"one turn", oneTurn},
		{"two turns in one query", twoTurns},
		{"pushed before the first answer", pushedEarly},
		{"tool", tool},
		{"unknown tool", unknownTool},
		{"pushed input is taken within the turn", midTurn},
		{"interrupt and go on", interrupt},
		{"interrupt without a turn", interruptIdle},
		{"resume in a new process with other instructions", resume},
		{"stale continuation", stale},
		{"errors of the API", statuses},
		{"the query goes on after an error", afterError},
		{"a tool that blocks", blocking},
		{"abort in a tool", abort},
		{"abort leaves no process", abortShell},
		{"PRV-7 killed in a tool", killed},
		{"an answer of 5 MB", longAnswer},
		{"cancelled context aborts", cancelled},
		{"end finishes what is queued", endQueued},
		{"nothing is taken after the end", afterEnd},
		{"slow reader", slowReader},
		{"commands", commands},
		{"a command waits for the running turn", commandWaits},
		{"a text that looks like a command", noCommand},
		{"attachments", attachments},
		{"attachments that cannot be shown", badAttachments},
		{"activity while a tool runs", activity},
		{"watchdog", watchdog},
		{"a tool is no silence", toolIsNoSilence},
		{"a turn nobody asked for", spontaneous},
	}
	for _, test := range tests {
		if len(only) > 0 && !slices.Contains(only, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sub := subject(t)
			ctx, cancel := context.WithTimeout(t.Context(), Limit)
			t.Cleanup(cancel)
			s := &session{T: t, ctx: ctx, sub: sub, tools: newTools(t)}
			s.p = sub.New(t, s.tools)
			test.run(s)
		})
	}
}

// session is one test's view of the subject.
type session struct {
	*testing.T
	ctx   context.Context
	sub   *Subject
	tools *Tools
	p     provider.Provider
}

func (s *session) start(continuation, instructions, text string, steps ...Step) *running {
	s.Helper()
	q, err := s.p.Query(s.ctx, s.input(continuation, instructions, text, steps...))
	if err != nil {
		s.Fatalf("Query: %v", err)
	}
	r := &running{session: s, Query: q}
	s.Cleanup(func() {
		r.Abort()
		for range r.Events() { // the reader must drain
		}
	})
	return r
}

func (s *session) input(continuation, instructions, text string, steps ...Step) provider.QueryInput {
	return provider.QueryInput{
		Input: provider.Input{ID: "first", Text: s.sub.Prompt(s.T, text, steps...)}, Continuation: continuation,
		Cwd: s.sub.Cwd, Instructions: instructions, MCP: []provider.MCPServer{s.tools.Server()},
	}
}

// running is a query with what was read of it so far.
type running struct {
	*session
	provider.Query
	seen   []provider.Event
	closed bool
}

// next reads one event; ok is false once they are closed.
func (r *running) next() (provider.Event, bool) {
	r.Helper()
	select {
	case e, ok := <-r.Events():
		if !ok {
			r.closed = true
			return e, false
		}
		r.seen = append(r.seen, e)
		return e, true
	case <-r.ctx.Done():
		r.Fatalf("no event within %s; seen: %+v", Limit, r.seen)
		return provider.Event{}, false
	}
}

// until reads up to and with the next event of a kind and returns all it read.
func (r *running) until(kind provider.Kind) (events []provider.Event, last provider.Event) {
	r.Helper()
	from := len(r.seen)
	for {
		e, ok := r.next()
		if !ok {
			r.Fatalf("the events ended before %s: %v; seen: %+v", kind, r.Err(), r.seen[from:])
		}
		if e.Kind == kind {
			return r.seen[from:], e
		}
	}
}

// rest reads to the end.
func (r *running) rest() []provider.Event {
	r.Helper()
	from := len(r.seen)
	for !r.closed {
		r.next()
	}
	return r.seen[from:]
}

func (r *running) push(id, text string, steps ...Step) {
	r.Helper()
	if err := r.Push(r.ctx, provider.Input{ID: id, Text: r.sub.Prompt(r.T, text, steps...)}); err != nil {
		r.Fatalf("Push: %v", err)
	}
}

func (r *running) continuation() string {
	for i := len(r.seen) - 1; i >= 0; i-- {
		if r.seen[i].Kind == provider.Init {
			return r.seen[i].Continuation
		}
	}
	return ""
}

func of(kind provider.Kind, events []provider.Event) []provider.Event {
	var out []provider.Event
	for _, e := range events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

func texts(events []provider.Event) string {
	var all string
	for _, e := range of(provider.Text, events) {
		all += e.Text
	}
	return all
}
