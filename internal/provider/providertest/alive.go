package providertest

import (
	"errors"
	"time"

	"nanoclaw/internal/provider"
)

// activity: whoever watches the events knows that a tool still runs.
func activity(s *session) {
	if s.sub.Quiet == 0 {
		s.Skip("no limit is given")
	}
	r := s.start("", "", "wait", Step{Tool: "block", Args: `{}`}, Step{Text: "Awake."})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	last, end := time.Now(), time.Now().Add(3*s.sub.Quiet)
	for n := 0; time.Now().Before(end); {
		select {
		case e := <-r.Events():
			if e.Kind != provider.Activity {
				s.Errorf("while the tool runs: %+v", e)
			}
			last = time.Now()
			if n++; n > 1000 {
				s.Fatal("activity without a pause")
			}
		case <-time.After(time.Until(last.Add(s.sub.Quiet))):
			s.Fatalf("nothing for %s while a tool runs", s.sub.Quiet)
		}
	}
	s.tools.Release()
	if _, result := r.until(provider.Result); result.Text != "Awake." {
		s.Errorf("result: %+v", result)
	}
	r.End()
	r.rest()
}

const silence = 3 * time.Second

// silence is how long a model may say nothing.
func (s *Subject) silence() time.Duration {
	if s.Silence > 0 {
		return s.Silence
	}
	return silence
}

// watchdog: a model that says nothing any more ends its turn with an error that is worth a retry, and the conversation goes on.
func watchdog(s *session) {
	if s.sub.Watchdog == nil {
		s.Skip("has no watchdog")
	}
	s.p = s.sub.Watchdog(s.T, s.tools, s.sub.silence())
	r := s.start("", "", "remember the word heron", Step{Text: "I will."})
	r.until(provider.Result)
	continuation := r.continuation()
	r.push("mute", "say something", Step{Silent: true})
	started, told := time.Now(), false
	for !told {
		e, ok := r.next()
		switch {
		case !ok: // the query may end instead
			told = true
			var failed *provider.QueryError
			if err := r.Err(); !errors.As(err, &failed) || !failed.Retryable || s.p.IsSessionInvalid(err) {
				s.Errorf("Err: %v", err)
			}
		case e.Kind == provider.Result:
			told = true
			if !e.IsError || !e.Retryable || e.Interrupted || e.Text != "" || e.Message == "" {
				s.Errorf("result: %+v", e)
			}
		}
	}
	if took := time.Since(started); took < s.sub.silence()/2 {
		s.Errorf("given up after %s", took)
	}
	r.Abort()
	r = s.start(continuation, "", "which word?", Step{Text: "Heron."})
	if _, result := r.until(provider.Result); result.Text != "Heron." {
		s.Errorf("after the silence: %+v", result)
	}
	if s.sub.Received != nil && !s.sub.Received("remember the word heron") {
		s.Error("the conversation was lost")
	}
	r.End()
	r.rest()
}

func toolIsNoSilence(s *session) {
	if s.sub.Watchdog == nil {
		s.Skip("has no watchdog")
	}
	s.p = s.sub.Watchdog(s.T, s.tools, s.sub.silence())
	r := s.start("", "", "wait", Step{Tool: "block", Args: `{}`}, Step{Text: "Awake."})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	timer := time.AfterFunc(2*s.sub.silence(), s.tools.Release)
	defer timer.Stop()
	if _, result := r.until(provider.Result); result.Text != "Awake." || result.IsError {
		s.Errorf("result: %+v", result)
	}
	r.End()
	r.rest()
}

// spontaneous: results are never counted against prompts.
func spontaneous(s *session) {
	if s.sub.Spontaneous == nil {
		s.Skip("begins no turn by itself")
	}
	q, err := s.p.Query(s.ctx, provider.QueryInput{
		Input: provider.Input{ID: "first", Text: s.sub.Spontaneous(s.T, "start it", "It runs.", "It is done.")}, Cwd: s.sub.Cwd,
		MCP: []provider.MCPServer{s.tools.Server()},
	})
	if err != nil {
		s.Fatal(err)
	}
	r := &running{session: s, Query: q}
	s.Cleanup(r.Abort)
	if _, result := r.until(provider.Result); result.Text != "It runs." || result.IsError {
		s.Errorf("result: %+v", result)
	}
	events, result := r.until(provider.Result)
	if result.Text != "It is done." || texts(events) != "It is done." || result.IsError {
		s.Errorf("the turn nobody asked for: %+v", events)
	}
	if taken := of(provider.Taken, events); len(taken) != 0 {
		s.Errorf("it took a prompt: %+v", taken)
	}
	r.push("on", "and now?", Step{Text: "Nothing more."})
	if _, result := r.until(provider.Result); result.Text != "Nothing more." {
		s.Errorf("result: %+v", result)
	}
	r.End()
	r.rest()
}
