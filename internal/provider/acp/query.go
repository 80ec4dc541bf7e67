package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

// query is one agent process. Everything below mu is under it.
type query struct {
	p      *Provider
	log    *slog.Logger
	in     provider.QueryInput
	child  *child.Process
	events *child.Queue
	gone   chan struct{} // the process has ended and why is known

	aborting sync.Once

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when turn or session change
	session  string        // "" until it is open
	told     bool          // the instructions were given
	inputs   []provider.Input
	turn     *turn // nil while none runs
	ended    bool  // End
	aborted  bool
	err      *provider.QueryError
	answers  map[int64]func(message)
	requests int64
	watch    *time.Timer // opening the session, silence, idleness, or the exit after the end
	due      time.Time   // when the watch was last meant to run out
	alive    *time.Timer // while a tool runs

	lastChunk time.Time // owned by the reader
}

// turn is the running turn.
type turn struct {
	text      string            // the newest message of the agent that is complete
	open      string            // the message that is being said
	message   string            // its id, where the agent gives one
	tools     map[string]string // call id → name, in flight
	cancelled bool
	silent    bool // it was cancelled because nothing was heard of it
}

func (p *Provider) start(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	q := &query{
		p: p, log: p.opt.Log, in: in, changed: make(chan struct{}), gone: make(chan struct{}), answers: map[int64]func(message){}, inputs: []provider.Input{in.Input},
	}
	q.events = child.NewQueue()
	q.mu.Lock()
	defer q.mu.Unlock()
	c, err := child.Start(child.Options{
		Program: p.opt.Command[0], Args: p.opt.Command[1:], Dir: in.Cwd, Env: p.environment(), Log: p.opt.Log, OnLine: q.read,
	})
	if err != nil {
		q.events.Close()
		for range q.events.Events() {
		}
		return nil, &provider.QueryError{Op: "start the agent", Class: provider.ClassOther, Retryable: true, Hint: "program " + p.opt.Command[0], Err: err}
	}
	q.child = c
	q.log = q.log.With(obs.KeyPID, c.PID())
	q.due = time.Now().Add(p.opt.InitWait)
	q.watch = time.AfterFunc(p.opt.InitWait, q.ring)
	q.alive = time.AfterFunc(p.opt.KeepAlive, q.keepAlive)
	q.alive.Stop()
	q.call("initialize", initializeParams{Protocol: protocol}, q.initialized)
	stop := context.AfterFunc(ctx, q.Abort)
	go func() {
		<-c.Gone()
		stop()
		q.finished()
		close(q.gone)
		q.events.Close()
	}()
	return q, nil
}

// call sends a request; answer is called by the reader, without mu. mu is held.
func (q *query) call(method string, params any, answer func(message)) {
	q.requests++
	q.answers[q.requests] = answer
	if err := q.child.Send(request{version, q.requests, method, params}); err != nil {
		q.log.Error("acp: a request could not be sent", obs.KeyMethod, method, obs.Error(err)) // only what JSON cannot say
	}
}

func (q *query) initialized(m message) {
	var r initializeResult
	if m.Error == nil {
		if err := json.Unmarshal(m.Result, &r); err != nil {
			m.Error = &rpcError{Message: "the answer cannot be read"}
		}
	}
	switch {
	case m.Error != nil:
		q.fail(&provider.QueryError{Op: "set up the agent", Class: provider.ClassOther, Retryable: true, Err: errors.New(q.redact(m.Error.Message))})
		return
	case r.Protocol != protocol:
		q.fail(&provider.QueryError{Op: "set up the agent", Class: provider.ClassOther, Err: fmt.Errorf("it speaks version %d of the protocol, this driver %d", r.Protocol, protocol)})
		return
	case q.in.Continuation != "" && !r.Capabilities.Load:
		q.fail(&provider.QueryError{Op: "resume the conversation", Class: provider.ClassInvalidSession, Retryable: true, Err: errors.New("the agent cannot load a session")})
		return
	}
	servers, err := q.servers(r.Capabilities.MCP.HTTP)
	if err != nil {
		q.fail(&provider.QueryError{Op: "set up the tool servers", Class: provider.ClassOther, Err: err})
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	params := sessionParams{SessionID: q.in.Continuation, Cwd: q.in.Cwd, Servers: servers}
	method := "session/new"
	if params.SessionID != "" {
		method = "session/load"
	}
	q.call(method, params, q.opened)
}

// servers are the tool servers as the agent takes them. A server with rules about its tools is left out: the protocol has none.
func (q *query) servers(http bool) ([]mcpServer, error) {
	out := []mcpServer{}
	for _, s := range q.in.MCP {
		if (s.URL == "") == (s.Command == "") || s.Name == "" {
			return nil, fmt.Errorf("tool server %q needs a name, and either a URL or a command", s.Name)
		}
		if len(s.Only)+len(s.Without) > 0 {
			q.log.Warn("acp: a tool server with rules about its tools is left out, the protocol has none", obs.KeyName, s.Name)
			continue
		}
		if s.URL != "" && !http {
			if s.Name == container.ReservedMCPServer { // without our own tools no turn may run (spec/bugs.md MCP-2)
				return nil, errors.New("the agent takes no tool server over HTTP, so it cannot reach its own tools")
			}
			q.log.Warn("acp: the agent takes no tool server over HTTP", obs.KeyName, s.Name)
			continue
		}
		v := mcpServer{Name: s.Name}
		if s.URL != "" {
			v.Type, v.URL, v.Headers = "http", s.URL, list(s.Headers)
		} else {
			args := append([]string{}, s.Args...)
			v.Command, v.Args, v.Env = s.Command, &args, list(s.Env)
		}
		out = append(out, v)
	}
	return out, nil
}

// opened is the answer to session/new and session/load.
func (q *query) opened(m message) {
	var r sessionOnly
	_ = json.Unmarshal(m.Result, &r) // that to a load names none
	if q.in.Continuation != "" {
		r.SessionID = q.in.Continuation
	}
	switch {
	case m.Error != nil && m.Error.Code == authRequired:
		q.fail(&provider.QueryError{Op: "open the session", Class: provider.ClassAuth, Hint: "the agent asks for a log-in", Err: errors.New(q.redact(m.Error.Message))})
		return
	case m.Error != nil && q.in.Continuation != "":
		q.fail(&provider.QueryError{Op: "resume the conversation", Class: provider.ClassInvalidSession, Retryable: true, Err: errors.New(q.redact(m.Error.Message))})
		return
	case m.Error != nil:
		q.fail(&provider.QueryError{Op: "open the session", Class: provider.ClassOther, Retryable: true, Err: errors.New(q.redact(m.Error.Message))})
		return
	case r.SessionID == "":
		q.fail(&provider.QueryError{Op: "open the session", Class: provider.ClassOther, Retryable: true, Err: errors.New("the answer names no session")})
		return
	}
	q.events.Put(provider.Event{Kind: provider.Init, Continuation: r.SessionID})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.session = r.SessionID
	q.flush()
	q.arm()
	q.notify()
}

// flush sends the next input if no turn runs, and closes the agent's input when nothing is left after End; mu is held.
func (q *query) flush() {
	if q.session == "" || q.aborted || q.err != nil || q.turn != nil {
		return
	}
	if len(q.inputs) == 0 {
		if q.ended {
			q.child.CloseInput()
		}
		return
	}
	prompt := []content{{"text", plain(q.inputs[0].Text)}}
	if text := q.in.Instructions; text != "" && !q.told {
		prompt = append([]content{{"text", "<instructions>\n" + text + "\n</instructions>"}}, prompt...)
	}
	q.told, q.inputs = true, q.inputs[1:]
	t := &turn{tools: map[string]string{}}
	q.turn = t
	q.call("session/prompt", promptParams{q.session, prompt}, func(m message) { q.complete(t, m) })
	q.notify()
}

// plain is a text that no agent takes for a command of its own: agents know one by the slash it begins with.
func plain(text string) string {
	if strings.HasPrefix(strings.TrimSpace(text), "/") {
		return "Message: " + text
	}
	return text
}

// notify wakes those who wait for a change; mu is held.
func (q *query) notify() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Push adds a prompt, which waits for the turns before it.
func (q *query) Push(_ context.Context, in provider.Input) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.child.Exited():
		return provider.ErrEnded
	default:
	}
	if q.ended || q.aborted || q.err != nil {
		return provider.ErrEnded
	}
	q.inputs = append(q.inputs, in)
	q.flush()
	q.arm()
	return nil
}

// Interrupt does not wait for the end of the turn. Without a running turn it does nothing.
func (q *query) Interrupt(ctx context.Context) error {
	for {
		q.mu.Lock()
		idle, changed := q.idle(), q.changed
		if idle || q.turn != nil || q.aborted || q.err != nil {
			q.cancel()
			q.mu.Unlock()
			return nil
		}
		q.mu.Unlock()
		select { // the session is not open yet
		case <-changed:
		case <-q.child.Exited():
			return provider.ErrEnded
		case <-ctx.Done():
			return fmt.Errorf("interrupt the turn: %w", context.Cause(ctx))
		}
	}
}

// cancel asks the agent to end the running turn, if there is one; mu is held.
func (q *query) cancel() {
	if q.turn == nil {
		return
	}
	q.turn.cancelled = true
	if err := q.child.Send(notification{version, "session/cancel", sessionOnly{q.session}}); err != nil {
		q.log.Error("acp: the turn could not be cancelled", obs.Error(err))
	}
}

func (q *query) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	q.ended = true
	q.flush()
	q.arm()
}

const goneWait = time.Second

// Abort also ends a query whose agent does not react.
func (q *query) Abort() {
	q.aborting.Do(func() {
		q.mu.Lock()
		q.aborted = true
		q.watch.Stop()
		q.mu.Unlock()
		q.terminate()
	})
	t := time.NewTimer(goneWait) // terminate has its own limits; this is for what follows
	defer t.Stop()
	select {
	case <-q.gone:
	case <-t.C:
	}
}

// terminate cancels the turn, so that its tools are cancelled, and ends the process.
func (q *query) terminate() {
	q.child.Remember()
	q.mu.Lock()
	running := q.turn != nil
	q.cancel()
	q.mu.Unlock()
	over := !running || q.wait(q.p.opt.InterruptWait, func() bool { return q.turn == nil })
	q.child.End(!over)
}

// wait returns true once the condition holds (checked under mu) or the process has exited.
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
		case <-q.child.Exited():
			return true
		case <-t.C:
			return false
		}
	}
}

func (q *query) Events() <-chan provider.Event { return q.events.Events() }

func (q *query) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		return nil
	}
	return q.err
}

// fail records why the query ends and ends it. The first reason stays.
func (q *query) fail(err *provider.QueryError) {
	q.mu.Lock()
	first := q.err == nil && !q.aborted
	if first {
		q.err = err
	}
	q.watch.Stop()
	q.mu.Unlock()
	if first {
		go q.terminate()
	}
}

// idle reports whether nothing is left to do; mu is held.
func (q *query) idle() bool { return q.turn == nil && len(q.inputs) == 0 }

// finished is called once, when the process and all it started are gone.
func (q *query) finished() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watch.Stop()
	q.alive.Stop()
	idle := q.idle()
	q.endTools()
	q.turn = nil
	switch {
	case q.aborted:
		q.err = nil
	case q.err == nil && !(q.ended && idle):
		text, exit := q.child.Exit()
		err := errors.New("it ended before its work was done")
		if exit != nil {
			err = fmt.Errorf("%w: %w", err, exit)
		}
		if text = q.redact(text); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		q.err = &provider.QueryError{Op: "run the agent", Class: provider.ClassOther, Retryable: true, Err: err}
	}
}
