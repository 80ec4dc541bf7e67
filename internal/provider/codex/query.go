package codex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
	"nanoclaw/internal/provider/picture"
)

// compact is the one command of the app-server that makes sense in a chat.
const compact = "/compact"

// input is a prompt on its way: held, sent, then taken and gone from the list.
type input struct {
	provider.Input
	key     string // our name for it in the protocol
	command bool
	parts   []userInput
	sent    bool
	turn    string // the turn it was given to; "" until the answer says so
}

// query is one CLI process. Everything below mu is under it.
type query struct {
	p       *Provider
	log     *slog.Logger
	servers map[string]mcpServer
	resumed string // the continuation it was started with
	child   *child.Process
	events  *child.Queue
	gone    chan struct{} // the process has ended and why is known

	aborting sync.Once

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when turn or thread change
	thread   string        // "" until it is open
	inputs   []*input      // not yet taken, in order
	turn     *turn         // nil while none runs
	past     string        // the turn that ended last
	ended    bool          // End
	aborted  bool
	err      *provider.QueryError
	answers  map[int64]func(message)
	requests int64
	names    int
	watch    *time.Timer // opening the thread, silence, idleness, or the exit after the end
	due      time.Time   // when the watch was last meant to run out
	alive    *time.Timer // while a tool runs
	limit    time.Time   // when a used-up allowance comes back

	lastDelta time.Time // owned by the reader
}

// turn is the running turn.
type turn struct {
	id      string // "" until the CLI has announced it
	command bool
	text    string // the newest message of the model
	tools   map[string]string
	usage   provider.Usage
	silent  bool // it was interrupted because nothing was heard of it
}

func (p *Provider) start(ctx context.Context, in provider.QueryInput, servers map[string]mcpServer) (provider.Query, error) {
	q := &query{
		p: p, log: p.opt.Log, servers: servers, resumed: in.Continuation, changed: make(chan struct{}), gone: make(chan struct{}),
		answers: map[int64]func(message){},
	}
	first := q.prepare(in.Input)
	q.events = child.NewQueue()
	q.mu.Lock()
	defer q.mu.Unlock()
	c, err := child.Start(child.Options{
		Program: p.opt.Program, Args: p.arguments(), Dir: in.Cwd, Env: p.environment(), Log: p.opt.Log, OnLine: q.read,
	})
	if err != nil {
		q.events.Close()
		for range q.events.Events() {
		}
		return nil, &provider.QueryError{Op: "start codex", Class: provider.ClassOther, Retryable: true, Hint: "program " + p.opt.Program, Err: err}
	}
	q.child = c
	q.log = q.log.With(obs.KeyPID, c.PID())
	q.inputs = []*input{first}
	q.due = time.Now().Add(p.opt.InitWait)
	q.watch = time.AfterFunc(p.opt.InitWait, q.ring)
	q.alive = time.AfterFunc(p.opt.KeepAlive, q.keepAlive)
	q.alive.Stop()
	q.call("initialize", initializeParams{clientInfo{"nanoclaw", "NanoClaw", "1"}}, func(m message) {
		if m.Error != nil {
			q.fail(&provider.QueryError{Op: "set up codex", Class: provider.ClassOther, Retryable: true, Err: errors.New(q.redact(m.Error.Message))})
			return
		}
		_ = c.Send(notification{"initialized"})
		method := "thread/start"
		if in.Continuation != "" {
			method = "thread/resume"
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.call(method, p.thread(in, servers), q.opened)
	})
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

// prepare reads the attachments.
func (q *query) prepare(in provider.Input) *input {
	words := strings.Fields(in.Text)
	i := &input{Input: in, command: len(words) > 0 && strings.EqualFold(words[0], compact)}
	if !i.command {
		i.parts = []userInput{{Type: "text", Text: in.Text}}
		for _, p := range picture.Read(in.Attachments, q.log) {
			i.parts = append(i.parts, userInput{Type: "image", URL: p.URL()})
		}
	}
	return i
}

// call sends a request; answer is called by the reader, without mu. mu is held.
func (q *query) call(method string, params any, answer func(message)) {
	q.requests++
	q.answers[q.requests] = answer
	if err := q.child.Send(request{q.requests, method, params}); err != nil {
		q.log.Error("codex: a request could not be sent", obs.KeyMethod, method, obs.Error(err)) // only what JSON cannot say
	}
}

// opened is the answer to thread/start and thread/resume.
func (q *query) opened(m message) {
	if m.Error != nil {
		err := &provider.QueryError{Op: "open the thread", Class: provider.ClassOther, Retryable: true, Err: errors.New(q.redact(m.Error.Message))}
		if q.resumed != "" && gone.MatchString(m.Error.Message) {
			err.Op, err.Class = "resume the conversation", provider.ClassInvalidSession
		}
		q.fail(err)
		return
	}
	var r threadResult
	if err := json.Unmarshal(m.Result, &r); err != nil || r.Thread.ID == "" {
		q.fail(&provider.QueryError{Op: "open the thread", Class: provider.ClassOther, Retryable: true, Err: errors.New("the answer names no thread")})
		return
	}
	if v := r.Thread.CLIVersion; v != Tested && q.resumed == "" {
		q.log.Warn("codex: this version was not tested", obs.KeyVersion, v, obs.KeyTested, Tested)
	}
	q.events.Put(provider.Event{Kind: provider.Init, Continuation: r.Thread.ID})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.thread = r.Thread.ID
	q.flush()
	q.arm()
	q.notify()
}

// flush sends the inputs that may be sent now, and closes the CLI's input when nothing is left after End; mu is held. A command
// waits for the running turn, and what stands behind it for its end.
func (q *query) flush() {
	if q.thread == "" || q.aborted || q.err != nil {
		return
	}
	for _, i := range q.inputs {
		if i.sent {
			if i.command {
				return
			}
			continue
		}
		if q.turn != nil && q.turn.command || i.command && (q.turn != nil || q.inputs[0] != i) {
			return
		}
		q.send(i)
		if i.command {
			return
		}
	}
	if q.ended && len(q.inputs) == 0 && q.turn == nil {
		q.child.CloseInput()
	}
}

// send gives an input to the CLI, which puts it into the running turn or opens one; mu is held.
func (q *query) send(i *input) {
	if i.key == "" {
		q.names++
		i.key = fmt.Sprintf("input-%d", q.names)
	}
	i.sent, i.turn = true, ""
	answer := func(m message) { q.accepted(i, m) }
	if i.command {
		q.call("thread/compact/start", threadOnly{q.thread}, answer)
		return
	}
	q.call("turn/start", turnParams{ThreadID: q.thread, ClientID: i.key, Input: i.parts}, answer)
}

// accepted is the answer to an input that was sent.
func (q *query) accepted(i *input, m message) {
	var r turnResult
	_ = json.Unmarshal(m.Result, &r) // an answer without a turn is that to a command
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case m.Error == nil && r.Turn.ID != "" && r.Turn.ID == q.past:
		i.sent = false // for a turn that ended before it was looked at
	case m.Error == nil:
		i.turn = r.Turn.ID
		return
	case q.turn != nil: // it cannot be taken now
		i.sent = false
		return // after the turn
	default:
		q.drop(i)
		e := provider.Event{Kind: provider.Result, IsError: true, Class: provider.ClassOther, Message: q.redact(m.Error.Message), Usage: &provider.Usage{}}
		q.events.Put(e)
		q.notify()
	}
	q.flush()
	q.arm()
}

func (q *query) drop(gone *input) {
	for n, i := range q.inputs {
		if i == gone {
			q.inputs = append(q.inputs[:n:n], q.inputs[n+1:]...)
			return
		}
	}
}

// notify wakes those who wait for a change; mu is held.
func (q *query) notify() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Push reads the attachments before it returns.
func (q *query) Push(_ context.Context, in provider.Input) error {
	i := q.prepare(in)
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
	q.inputs = append(q.inputs, i)
	q.flush()
	q.arm()
	return nil
}

// Interrupt waits for the CLI to accept, not for the end of the turn. Without a running turn it does nothing.
func (q *query) Interrupt(ctx context.Context) error {
	for {
		q.mu.Lock()
		waiting, changed := len(q.inputs) > 0, q.changed
		if q.turn == nil && !waiting || q.aborted || q.err != nil {
			q.mu.Unlock()
			return nil
		}
		if q.turn != nil && q.turn.id != "" {
			accepted := q.interrupt()
			q.mu.Unlock()
			select {
			case <-accepted:
				return nil
			case <-q.child.Exited():
				return provider.ErrEnded
			case <-ctx.Done():
				return fmt.Errorf("interrupt the turn: %w", context.Cause(ctx))
			}
		}
		q.mu.Unlock()
		select {
		case <-changed:
		case <-q.child.Exited():
			return provider.ErrEnded
		case <-ctx.Done():
			return fmt.Errorf("interrupt the turn: %w", context.Cause(ctx))
		}
	}
}

// interrupt asks the CLI to end the running turn; mu is held. A refusal means that it has ended.
func (q *query) interrupt() <-chan struct{} {
	accepted := make(chan struct{})
	q.call("turn/interrupt", interruptParams{q.thread, q.turn.id}, func(message) { close(accepted) })
	return accepted
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

// Abort also ends a query whose CLI does not react.
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

const goneWait = time.Second

// terminate interrupts the turn, so that its tools are cancelled, and ends the process.
func (q *query) terminate() {
	q.child.Remember()
	q.mu.Lock()
	running := q.turn != nil && q.turn.id != ""
	if running {
		q.interrupt()
	}
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

// finished is called once, when the process and all it started are gone.
func (q *query) finished() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watch.Stop()
	q.alive.Stop()
	idle := q.turn == nil && len(q.inputs) == 0
	q.endTools()
	q.turn = nil
	switch {
	case q.aborted:
		q.err = nil
	case q.err == nil && !(q.ended && idle):
		q.err = q.exitError()
	}
}

// exitError says why the CLI ended before its work was done.
func (q *query) exitError() *provider.QueryError {
	text, exit := q.child.Exit()
	out := &provider.QueryError{Op: "run codex", Class: provider.ClassOther, Retryable: true, Err: errors.New("it ended before its work was done")}
	if exit != nil {
		out.Err = fmt.Errorf("%w: %w", out.Err, exit)
	}
	if text = q.redact(text); text != "" {
		out.Err = fmt.Errorf("%w: %s", out.Err, text)
	}
	if strings.Contains(text, "unexpected argument") || strings.Contains(text, "unknown feature") || strings.Contains(strings.ToLower(text), "unknown variant") {
		out.Retryable, out.Hint = false, "the driver was tested with codex "+Tested
	}
	return out
}
