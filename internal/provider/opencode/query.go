package opencode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
	"nanoclaw/internal/provider/picture"
)

// input is a prompt on its way: held, posted, then taken and gone from the list.
type input struct {
	provider.Input
	id      string // of the message that it became
	parts   []part
	command bool
	posted  bool
	stored  chan struct{} // closed when the program has it
}

// query is one process. Everything below mu is under it.
type query struct {
	p            *Provider
	log          *slog.Logger
	settings     config
	instructions string
	resumed      string // the continuation it was started with
	server       *server
	child        *child.Process
	events       *child.Queue
	worker       *worker
	ctx          context.Context // of requests: ends with the process
	cancel       context.CancelFunc
	listening    chan struct{} // the program answers
	connected    chan struct{} // its events come
	gone         chan struct{} // the process has ended and why is known
	work         sync.WaitGroup

	aborting sync.Once
	listens  sync.Once
	connects sync.Once

	mu        sync.Mutex
	changed   chan struct{}   // closed and replaced when turn or session change
	session   string          // "" until it is open
	inputs    []*input        // not yet taken, in order
	turn      *turn           // nil while none runs
	past      map[string]bool // the answers of the turn before
	recovers  bool            // prompts that lie there unanswered are being taken back
	ended     bool            // End
	aborted   bool
	err       *provider.QueryError
	lastID    int64
	watch     *time.Timer // opening the session, silence or idleness
	due       time.Time   // when the watch was last meant to run out
	alive     *time.Timer // while a tool runs
	lastDelta time.Time   // owned by the reader
}

// turn is the running turn.
type turn struct {
	command  bool   // it summarises the conversation
	compact  bool   // that is done
	order    string // the message that asks for a summary, until there is one
	busy     bool   // the program says that it works
	began    bool   // the model was asked
	aborting bool   // it was asked to end
	silent   bool   // because nothing was heard of it
	giveUp   *failure
	resets   time.Time // with giveUp
	failure  *failure
	text     string            // the newest of the model
	last     string            // the newest answer
	answers  map[string]answer // by message id
	tools    map[string]string // part id → name, in flight
	parts    map[string]bool   // those that were reported
	usage    provider.Usage
}

type answer struct{ closed, summary bool }

func newTurn() *turn {
	return &turn{answers: map[string]answer{}, tools: map[string]string{}, parts: map[string]bool{}}
}

func (p *Provider) start(ctx context.Context, in provider.QueryInput, settings config) (provider.Query, error) {
	fail := func(err error) (provider.Query, error) {
		return nil, &provider.QueryError{Op: "start opencode", Class: provider.ClassOther, Retryable: true, Hint: "program " + p.opt.Program, Err: err}
	}
	server, err := newServer()
	if err != nil {
		return fail(err)
	}
	env, err := p.environment(settings, server.password)
	if err != nil {
		return fail(err)
	}
	q := &query{
		p: p, log: p.opt.Log, settings: settings, instructions: p.instructions(in), resumed: in.Continuation, server: server, worker: newWorker(),
		listening: make(chan struct{}), connected: make(chan struct{}), gone: make(chan struct{}), changed: make(chan struct{}),
	}
	q.inputs = []*input{q.prepare(in.Input)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.child, err = child.Start(child.Options{Program: p.opt.Program, Args: server.arguments(), Dir: in.Cwd, Env: env, Log: p.opt.Log, OnLine: q.output}); err != nil {
		return fail(err)
	}
	q.log = q.log.With(obs.KeyPID, q.child.PID())
	q.events = child.NewQueue()
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.due = time.Now().Add(p.opt.InitWait)
	q.watch = time.AfterFunc(p.opt.InitWait, q.ring)
	q.alive = time.AfterFunc(p.opt.KeepAlive, q.keepAlive)
	q.alive.Stop()
	q.work.Go(q.worker.run)
	q.work.Go(q.open)
	stop := context.AfterFunc(ctx, q.Abort)
	go func() {
		<-q.child.Exited()
		q.cancel()
		<-q.child.Gone()
		q.worker.stop()
		q.work.Wait()
		stop()
		server.close()
		q.finished()
		close(q.gone)
		q.events.Close()
	}()
	return q, nil
}

// output is a line that the program prints.
func (q *query) output(line []byte, _ bool) {
	if q.server.listening(line) {
		q.listens.Do(func() { close(q.listening) })
	}
}

// open waits for the program, listens to it and opens the session.
func (q *query) open() {
	select {
	case <-q.listening:
	case <-q.ctx.Done():
		return
	}
	q.work.Go(func() {
		err := q.server.events(q.ctx, q.read)
		if q.ctx.Err() == nil {
			q.fail(&provider.QueryError{Op: "listen to opencode", Class: provider.ClassOther, Retryable: true, Err: errors.Join(errors.New("its events have ended"), err)})
		}
	})
	select {
	case <-q.connected:
	case <-q.ctx.Done():
		return
	}
	session, err := q.openSession()
	if err != nil {
		q.fail(err)
		return
	}
	q.events.Put(provider.Event{Kind: provider.Init, Continuation: session})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.session = session
	q.flush()
	q.arm()
	q.notify()
}

func (q *query) openSession() (string, *provider.QueryError) {
	ctx, cancel := context.WithTimeout(q.ctx, q.p.opt.InitWait)
	defer cancel()
	fail := func(err error) (string, *provider.QueryError) {
		out := &provider.QueryError{Op: "open the session", Class: provider.ClassOther, Retryable: true, Err: errors.New(q.redact(err.Error()))}
		var s *statusError
		if q.resumed != "" && errors.As(err, &s) && s.status == http.StatusNotFound {
			out.Op, out.Class = "resume the conversation", provider.ClassInvalidSession
		}
		return "", out
	}
	var s sessionInfo
	var err error
	if q.resumed != "" {
		err = q.server.call(ctx, http.MethodGet, []string{"session", q.resumed}, nil, &s)
	} else {
		err = q.server.call(ctx, http.MethodPost, []string{"session"}, newSession{"NanoClaw"}, &s)
	}
	switch {
	case err != nil:
		return fail(err)
	case s.ID == "":
		return fail(errors.New("the answer names no session"))
	case s.Version != Tested && q.resumed == "":
		q.log.Warn("opencode: this version was not tested", obs.KeyVersion, s.Version, obs.KeyTested, Tested)
	}
	if len(q.settings.MCP) == 0 {
		return s.ID, nil
	}
	var servers map[string]mcpStatus
	if err := q.server.call(ctx, http.MethodGet, []string{"mcp"}, nil, &servers); err != nil {
		return fail(err)
	}
	for name := range q.settings.MCP {
		have := servers[name]
		if have.Status == "connected" {
			continue
		}
		q.log.Warn("opencode: a tool server is not there", obs.KeyName, name, obs.KeyStatus, have.Status, obs.KeyReason, q.redact(have.Error))
		if name == container.ReservedMCPServer { // without our own tools no turn may run (spec/bugs.md MCP-2)
			return "", &provider.QueryError{
				Op: "reach the tool server " + name, Class: provider.ClassOther, Retryable: true, Err: fmt.Errorf("it is %s, and without its tools no turn may run", have.Status),
			}
		}
	}
	return s.ID, nil
}

// prepare reads the attachments.
func (q *query) prepare(in provider.Input) *input {
	words := strings.Fields(in.Text)
	i := &input{Input: in, parts: []part{{Type: "text", Text: in.Text}}, stored: make(chan struct{})}
	if i.command = len(words) > 0 && strings.EqualFold(words[0], compact); i.command {
		return i
	}
	for _, p := range picture.Read(in.Attachments, q.log) {
		i.parts = append(i.parts, part{Type: "file", Mime: p.Type, Filename: p.Name, URL: p.URL()})
	}
	return i
}

// notify wakes those who wait for a change; mu is held.
func (q *query) notify() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// storeWait is how long Push waits for the program to store a prompt.
const storeWait = 3 * time.Second

// Push reads the attachments before it returns. Within a turn it waits a little for the program to have the prompt, so that the turn's next
// step sees it.
func (q *query) Push(ctx context.Context, in provider.Input) error {
	i := q.prepare(in)
	q.mu.Lock()
	select {
	case <-q.child.Exited():
		q.mu.Unlock()
		return provider.ErrEnded
	default:
	}
	if q.ended || q.aborted || q.err != nil {
		q.mu.Unlock()
		return provider.ErrEnded
	}
	q.inputs = append(q.inputs, i)
	q.flush()
	q.arm()
	within := i.posted && q.turn != nil && q.turn.began
	q.mu.Unlock()
	if within {
		t := time.NewTimer(storeWait)
		defer t.Stop()
		select {
		case <-i.stored:
		case <-t.C:
		case <-ctx.Done():
		case <-q.child.Exited():
		}
	}
	return nil
}

// Interrupt waits for the program to accept, not for the end of the turn. Without a running turn it does nothing.
func (q *query) Interrupt(ctx context.Context) error {
	for {
		q.mu.Lock()
		t, waiting, changed := q.turn, len(q.inputs) > 0, q.changed
		if t == nil && !waiting || q.aborted || q.err != nil {
			q.mu.Unlock()
			return nil
		}
		if t != nil && t.began {
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

// interrupt asks the program to end the running turn; mu is held.
func (q *query) interrupt() <-chan struct{} {
	q.turn.aborting = true
	accepted := make(chan struct{})
	if q.ctx.Err() != nil {
		close(accepted)
		return accepted
	}
	session := q.session
	q.work.Go(func() {
		defer close(accepted)
		ctx, cancel := context.WithTimeout(q.ctx, q.p.opt.InterruptWait)
		defer cancel()
		if err := q.server.call(ctx, http.MethodPost, []string{"session", session, "abort"}, nil, nil); err != nil && q.ctx.Err() == nil {
			q.log.Warn("opencode: the turn could not be interrupted", obs.Error(err))
		}
	})
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

const goneWait = time.Second

// Abort also ends a query whose program does not react.
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

// terminate interrupts the turn, so that its tools are cancelled, and ends the process.
func (q *query) terminate() {
	q.child.Remember()
	q.mu.Lock()
	running := q.turn != nil && q.turn.began
	if running {
		q.interrupt()
	}
	q.mu.Unlock()
	if running {
		q.wait(q.p.opt.InterruptWait, func() bool { return q.turn == nil })
	}
	q.child.End(true)
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
	first := q.err == nil && !q.aborted && !(q.ended && q.idle())
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
		q.err = &provider.QueryError{Op: "run opencode", Class: provider.ClassOther, Retryable: true, Err: err}
	}
}
