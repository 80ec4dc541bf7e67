package providertest

import (
	"strings"

	"nanoclaw/internal/provider"
)

// commands: each that is listed gives exactly one result, with its output, and says nothing in the model's place. It works as the
// first input of a conversation too.
func commands(s *session) {
	list := s.p.Caps().Commands
	if len(list) == 0 {
		s.Skip("runs no commands")
	}
	q, err := s.p.Query(s.ctx, provider.QueryInput{Input: provider.Input{ID: "first", Text: list[0]}, Cwd: s.sub.Cwd, MCP: []provider.MCPServer{s.tools.Server()}})
	if err != nil {
		s.Fatal(err)
	}
	first := &running{session: s, Query: q}
	first.output(list[0])
	first.End()
	if rest := first.rest(); len(of(provider.Result, rest)) != 0 {
		s.Errorf("one more result: %+v", rest)
	}

	r := s.start("", "", "hello", Step{Text: "hi"})
	r.until(provider.Result)
	for _, word := range list {
		if !strings.HasPrefix(word, "/") || strings.ContainsAny(word, " \t\n") || word != strings.ToLower(word) {
			s.Errorf("%q is no word of a command", word)
		}
		if err := r.Push(s.ctx, provider.Input{ID: word, Text: word}); err != nil {
			s.Fatal(err)
		}
		r.output(word)
	}
	// the conversation goes on, and each result belonged to its command
	r.push("on", "and now?", Step{Text: "still here"})
	if events, result := r.until(provider.Result); result.Text != "still here" || texts(events) != "still here" || result.IsError {
		s.Errorf("after the commands: %+v", events)
	}
	r.End()
	if rest := r.rest(); len(of(provider.Result, rest)) != 0 {
		s.Errorf("one more result: %+v", rest)
	}
}

func (r *running) output(word string) {
	r.Helper()
	events, result := r.until(provider.Result)
	if result.IsError || result.Interrupted || strings.TrimSpace(result.Text) == "" {
		r.Errorf("%s: %+v", word, result)
	}
	if got := texts(events); got != "" {
		r.Errorf("%s: its output as words of the model: %q", word, got)
	}
}

// commandWaits: a command that is pushed while a turn runs is no text of that turn, and what is pushed behind it comes after it.
func commandWaits(s *session) {
	list := s.p.Caps().Commands
	if len(list) == 0 {
		s.Skip("runs no commands")
	}
	word := list[len(list)-1]
	r := s.start("", "", "wait", Step{Text: "Waiting.", Tool: "block", Args: `{}`}, Step{Text: "Awake."})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	if err := r.Push(s.ctx, provider.Input{ID: "command", Text: word}); err != nil {
		s.Fatal(err)
	}
	r.push("behind", "and then?", Step{Text: "Then this."})
	r.End()
	s.tools.Release()
	if _, result := r.until(provider.Result); result.Text != "Awake." {
		s.Errorf("the running turn: %+v", result)
	}
	r.output(word)
	if _, result := r.until(provider.Result); result.Text != "Then this." {
		s.Errorf("the turn behind the command: %+v", result)
	}
	r.rest()
	r.receipt(r.seen, "command")
	r.receipt(r.seen, "behind")
	if err := r.Err(); err != nil {
		s.Errorf("Err: %v", err)
	}
}

// noCommand: a text with a slash that is none of Caps.Commands goes to the model, whatever else the provider knows.
func noCommand(s *session) {
	for _, text := range []string{"/model opus", "/etc/hosts is where?", "/"} {
		r := s.start("", "", text, Step{Text: "I read it."})
		events, result := r.until(provider.Result)
		if result.Text != "I read it." || texts(events) != "I read it." {
			s.Errorf("%q: %+v", text, result)
		}
		if s.sub.Received != nil && !s.sub.Received(text) {
			s.Errorf("the model did not get %q", text)
		}
		r.Abort()
	}
}
