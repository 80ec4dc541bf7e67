package providertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"nanoclaw/internal/provider"
)

func interrupt(s *session) {
	r := s.start("", "", "wait", Step{Text: "Starting.", Tool: "block", Args: `{}`}, Step{Text: "never"})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	if err := r.Interrupt(s.ctx); err != nil {
		s.Fatalf("Interrupt: %v", err)
	}
	events, result := r.until(provider.Result)
	if !result.Interrupted || result.IsError || texts(events) != "" {
		s.Errorf("after the interrupt: %+v", events)
	}
	s.signal(s.tools.Canceled)
	if len(of(provider.ToolStart, r.seen)) != len(of(provider.ToolEnd, r.seen)) {
		s.Errorf("the tool did not end: %+v", r.seen)
	}
	r.push("on", "still there?", Step{Text: "Yes."})
	if events, result = r.until(provider.Result); result.Text != "Yes." || result.IsError || texts(events) != "Yes." {
		s.Errorf("after going on: %+v", events)
	}
	if s.sub.Received != nil && !s.sub.Received("still there?") {
		s.Error("the model did not get the next input")
	}
}

func interruptIdle(s *session) {
	r := s.start("", "", "one", Step{Text: "first"})
	r.until(provider.Result)
	if err := r.Interrupt(s.ctx); err != nil {
		s.Errorf("Interrupt: %v", err)
	}
	r.push("on", "two", Step{Text: "second"})
	if _, result := r.until(provider.Result); result.Interrupted || result.Text != "second" {
		s.Errorf("the turn after an idle interrupt: %+v", result)
	}
}

func resume(s *session) {
	r := s.start("", "You are Andy. Destinations: family.", "remember the word heron", Step{Text: "I will."})
	r.until(provider.Result)
	if s.sub.System != nil && !strings.Contains(s.sub.System(), "Destinations: family.") {
		s.Error("the instructions are not in the system prompt")
	}
	continuation := r.continuation()
	r.End()
	r.rest()

	s.p = s.sub.New(s.T, s.tools)
	r = s.start(continuation, "You are Andy. Destinations: family, office.", "which word?", Step{Text: "Heron."})
	events, result := r.until(provider.Result)
	if result.Text != "Heron." || result.IsError {
		s.Errorf("the resumed turn: %+v", events)
	}
	if s.sub.System != nil {
		if got := s.sub.System(); !strings.Contains(got, "Destinations: family, office.") || strings.Contains(got, "Destinations: family.") {
			s.Error("a resume does not see the current instructions")
		}
	}
	if s.sub.Received != nil && !s.sub.Received("remember the word heron") {
		s.Error("the conversation was not resumed")
	}
}

func stale(s *session) {
	if s.sub.Stale == "" {
		s.Skip("no continuation can be stale")
	}
	for _, continuation := range []string{s.sub.Stale, "no continuation of ours"} {
		q, err := s.p.Query(s.ctx, s.input(continuation, "", "hello", Step{Text: "hi"}))
		if err == nil {
			for e := range q.Events() {
				if e.Kind == provider.Result || e.Kind == provider.Text {
					s.Errorf("%q: %+v", continuation, e)
				}
			}
			err = q.Err()
		}
		if !s.p.IsSessionInvalid(err) {
			s.Errorf("%q: %v", continuation, err)
		}
	}
	for _, err := range []error{nil, errors.New("no network"), &provider.QueryError{Class: provider.ClassNetwork}, &provider.QueryError{Class: provider.ClassAuth}} {
		if s.p.IsSessionInvalid(err) {
			s.Errorf("%v would drop the conversation", err)
		}
	}
	// and a fresh one works
	if _, result := s.start("", "", "hello", Step{Text: "hi"}).until(provider.Result); result.Text != "hi" {
		s.Errorf("a fresh conversation: %+v", result)
	}
}

func statuses(s *session) {
	if !s.sub.Statuses {
		s.Skip("no API with statuses")
	}
	r := s.start("", "", "hello", Step{Text: "hi"})
	r.until(provider.Result)
	for _, c := range []struct {
		status int
		class  provider.Class
		retry  bool
	}{
		{400, provider.ClassOther, false}, {401, provider.ClassAuth, false}, {429, provider.ClassRateLimit, true},
		{500, provider.ClassOther, true}, {529, provider.ClassOverloaded, true},
	} {
		r.push(fmt.Sprint(c.status), "fail", Step{Status: c.status})
		events, result := r.until(provider.Result)
		if !result.IsError || result.Class != c.class || result.Retryable != c.retry || result.Text != "" || result.Message == "" {
			s.Errorf("%d: %+v", c.status, result)
		}
		if got := texts(events); got != "" {
			s.Errorf("%d: said as if by the model: %q", c.status, got)
		}
		if strings.Contains(result.Notice, "{") || strings.Contains(result.Notice, strconv.Itoa(c.status)) {
			s.Errorf("%d: a diagnostic for a person: %q", c.status, result.Notice)
		}
	}
}

func afterError(s *session) {
	if !s.sub.Statuses {
		s.Skip("no API with statuses")
	}
	r := s.start("", "", "fail", Step{Status: 500})
	if _, result := r.until(provider.Result); !result.IsError {
		s.Errorf("result: %+v", result)
	}
	r.push("next", "again", Step{Text: "back"})
	if _, result := r.until(provider.Result); result.IsError || result.Text != "back" {
		s.Errorf("after the error: %+v", result)
	}
	r.End()
	r.rest()
	if err := r.Err(); err != nil {
		s.Errorf("Err: %v", err)
	}
}

// A tool that blocks for long is waited for.
func blocking(s *session) {
	block := s.sub.Block
	if block == 0 {
		block = 3 * time.Second
	}
	r := s.start("", "", "wait", Step{Tool: "block", Args: `{}`}, Step{Text: "Awake."})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	timer := time.AfterFunc(block, s.tools.Release)
	defer timer.Stop()
	events, result := r.until(provider.Result)
	if result.Text != "Awake." || len(of(provider.ToolEnd, events)) != 1 {
		s.Errorf("after a long tool: %+v", events)
	}
}

func abort(s *session) {
	r := s.start("", "", "wait", Step{Text: "Starting.", Tool: "block", Args: `{}`}, Step{Text: "never"})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	done := make(chan struct{})
	go func() { defer close(done); r.Abort() }()
	r.Abort()
	rest := r.rest()
	<-done
	if texts(rest) != "" {
		s.Errorf("it went on: %+v", rest)
	}
	s.signal(s.tools.Canceled)
	if err := r.Err(); err != nil {
		s.Errorf("Err after Abort: %v", err)
	}
	if err := r.Push(s.ctx, provider.Input{ID: "x", Text: "x"}); !errors.Is(err, provider.ErrEnded) {
		s.Errorf("Push after Abort: %v", err)
	}
}

// abortShell: the shell has a session of its own and a child that ignores what it can.
func abortShell(s *session) {
	if !s.sub.Shell {
		s.Skip("runs no shell")
	}
	pipe := filepath.Join(s.TempDir(), "pids")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		s.Fatal(err)
	}
	command := fmt.Sprintf(`trap "" TERM HUP INT; setsid sh -c 'trap "" TERM HUP INT; echo $$ > %[1]s; while :; do sleep 60; done' & echo $$ > %[1]s; while :; do sleep 60; done`, pipe)
	r := s.start("", "", "work", Step{Text: "Working.", Shell: command}, Step{Text: "never"})
	r.until(provider.ToolStart)
	var pids []int
	for len(pids) < 2 {
		f, err := os.Open(pipe) // waits for a writer
		if err != nil {
			s.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			pid, err := strconv.Atoi(lines.Text())
			if err != nil {
				s.Fatal(err)
			}
			pids = append(pids, pid)
		}
		_ = f.Close()
	}
	start := time.Now()
	r.Abort()
	s.Logf("abort took %s", time.Since(start).Round(time.Millisecond))
	for _, pid := range pids {
		if !gone(s.T, pid) {
			s.Errorf("process %d is still there", pid)
		}
	}
	r.rest()
}

func cancelled(s *session) {
	ctx, cancel := context.WithCancel(s.ctx)
	q, err := s.p.Query(ctx, s.input("", "", "wait", Step{Tool: "block", Args: `{}`}, Step{Text: "never"}))
	if err != nil {
		s.Fatal(err)
	}
	r := &running{session: s, Query: q}
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	cancel()
	r.rest()
	s.signal(s.tools.Canceled)
	if err := r.Err(); err != nil {
		s.Errorf("Err after cancelling: %v", err)
	}
}

// killed: a program that dies between a tool call and its result leaves no process, and its conversation goes on in a new one
// (spec/bugs.md PRV-7).
func killed(s *session) {
	if !s.sub.Shell || !s.sub.Program {
		s.Skip("no program that a shell could kill")
	}
	file := filepath.Join(s.TempDir(), "pid")
	r := s.start("", "", "remember the word heron", Step{Text: "Working.", Shell: "echo $$ > " + file + "; kill -9 $PPID; while :; do sleep 60; done"}, Step{Text: "never"})
	all := r.rest()
	var failed *provider.QueryError
	if err := r.Err(); !errors.As(err, &failed) || !failed.Retryable || s.p.IsSessionInvalid(err) {
		s.Errorf("Err: %v", err)
	}
	if results := of(provider.Result, all); len(results) != 0 || texts(all) != "Working." {
		s.Errorf("events of a dead program: %+v", all)
	}
	if a, b := len(of(provider.ToolStart, all)), len(of(provider.ToolEnd, all)); a != b {
		s.Errorf("%d tools began, %d ended", a, b)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || !gone(s.T, pid) {
		s.Errorf("the shell %q is still there, %v", b, err)
	}
	r = s.start(r.continuation(), "", "which word?", Step{Text: "Heron."})
	if events, result := r.until(provider.Result); result.Text != "Heron." || result.IsError {
		s.Errorf("after it: %+v", events)
	}
	if s.sub.Received != nil && !s.sub.Received("remember the word heron") {
		s.Error("the conversation was lost")
	}
	r.End()
	r.rest()
}
