package claude

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

// goneWait is for what goes on when the CLI and all that it started have ended: an archive that is being written.
const goneWait = 3 * time.Second

// start spawns the CLI and what reads it.
func (p *Provider) start(ctx context.Context, in provider.QueryInput, setup initializeRequest) (provider.Query, error) {
	q := &query{
		p: p, log: p.opt.Log, setup: setup, resumed: in.Continuation, cwd: in.Cwd,
		changed: make(chan struct{}), gone: make(chan struct{}), events: child.NewQueue(),
		rules: newRules(in.MCP), inputs: map[string]prompt{}, tools: map[string]string{}, answers: map[string]chan error{},
	}
	first := q.prepare(in.Input)
	q.mu.Lock() // the reader waits for it
	defer q.mu.Unlock()
	c, err := child.Start(child.Options{
		Program: p.opt.Program, Args: p.arguments(in, q.rules), Dir: in.Cwd, Env: p.environment(), Log: p.opt.Log,
		OnLine: q.read, CloseWait: p.opt.CloseWait, TermWait: p.opt.TermWait,
	})
	if err != nil {
		q.events.Close()
		for range q.events.Events() {
		}
		return nil, &provider.QueryError{Op: "start the claude CLI", Class: provider.ClassOther, Retryable: true, Hint: "program " + p.opt.Program, Err: err}
	}
	q.child, q.stdin, q.exited = c, c, c.Exited()
	q.log = q.log.With(obs.KeyPID, c.PID())
	q.started(first)
	stop := context.AfterFunc(ctx, q.Abort)
	go func() {
		<-c.Gone()
		q.work.Wait()
		stop()
		q.finished()
		close(q.gone)
		q.events.Close()
	}()
	return q, nil
}

// terminate interrupts the turn, if asked to, so that its tools are cancelled, and ends the process. It returns when the process and
// all that it started are gone, or after a last limit.
func (q *query) terminate(interrupt bool) {
	q.child.Remember()
	q.mu.Lock()
	began := q.running && q.began
	q.mu.Unlock()
	idle := true
	if interrupt && began {
		if _, err := q.control(subtypeOnly{"interrupt"}); err == nil {
			idle = q.wait(q.p.opt.InterruptWait, func() bool { return !q.running })
		}
	}
	q.child.End(!idle)
	t := time.NewTimer(goneWait)
	defer t.Stop()
	select {
	case <-q.gone:
	case <-t.C:
	}
}

// wait returns true once the condition holds (checked under the lock) or the process has exited.
func (q *query) wait(limit time.Duration, condition func() bool) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		q.mu.Lock()
		ok, changed := condition(), q.changed
		q.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-q.exited:
			return true
		case <-t.C:
			return false
		}
	}
}

// exitError says why the CLI ended before its work was done.
func (q *query) exitError() *provider.QueryError {
	text, exit := q.child.Exit()
	text = q.redact(text)
	out := &provider.QueryError{Op: "run the claude CLI", Class: provider.ClassOther, Retryable: true, Err: errors.New("it ended before its work was done")}
	if exit != nil {
		out.Err = fmt.Errorf("%w: %w", out.Err, exit)
	}
	if text != "" {
		out.Err = fmt.Errorf("%w: %s", out.Err, text)
	}
	switch {
	case q.resumed != "" && strings.Contains(text, noConversation+q.resumed):
		out.Op, out.Class = "resume the conversation", provider.ClassInvalidSession
	case strings.Contains(text, "unknown option"):
		out.Retryable, out.Hint = false, "the driver needs claude "+OldestTested+" or newer"
	case strings.Contains(text, "cannot be used with root"):
		out.Retryable, out.Hint = false, "the sandbox must not run as root"
	case strings.Contains(text, "Not logged in"), strings.Contains(text, "Please run /login"):
		out.Class, out.Retryable, out.Hint = provider.ClassAuth, false, "give the host a key"
	}
	return out
}

// redact removes every value that could be a secret from a text for people.
func (q *query) redact(text string) string {
	for k, v := range q.p.opt.Env {
		if len(v) >= 6 && secretName.MatchString(k) {
			text = strings.ReplaceAll(text, v, "[secret]")
		}
	}
	for _, s := range q.setup.MCPServers {
		for _, v := range s.Headers {
			_, bare, found := strings.Cut(v, " ") // "Bearer …"
			if text = strings.ReplaceAll(text, v, "[secret]"); found && len(bare) >= 6 {
				text = strings.ReplaceAll(text, bare, "[secret]")
			}
		}
		for k, v := range s.Env {
			if len(v) >= 6 && secretName.MatchString(k) {
				text = strings.ReplaceAll(text, v, "[secret]")
			}
		}
	}
	return text
}
