package claude

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

// input is the CLI's end that a query writes to: a child.Process.
type input interface {
	Send(v any) error
	CloseInput()
}

// query is one CLI process. The reader goroutine (read) owns the fields of the turn; the rest is under mu.
type query struct {
	p       *Provider
	log     *slog.Logger
	setup   initializeRequest
	rules   rules
	resumed string // the continuation it was started with
	cwd     string
	child   *child.Process
	stdin   input
	events  *child.Queue
	exited  <-chan struct{} // the CLI has exited
	gone    chan struct{}   // and everything it started, its output is read, and all work on it is done

	aborting sync.Once
	work     sync.WaitGroup // answers that take their time

	mu          sync.Mutex
	changed     chan struct{}     // closed and replaced when running, began or ready change
	ready       bool              // the first request is answered
	held        []prompt          // what may not be written yet
	inputs      map[string]prompt // by uuid: what the CLI has not taken yet
	commanding  bool              // a command was written and has no result yet
	running     bool              // a turn runs or waits to
	began       bool              // the CLI has announced the running turn
	interrupted bool              // the running turn was interrupted by us
	silent      bool              // ... because nothing was heard of it
	ended       bool              // End
	aborted     bool
	err         *provider.QueryError
	tools       map[string]string // use id → name, in flight
	answers     map[string]chan error
	requests    int
	watch       *time.Timer // silence, the answer to the first request, idleness, or the exit after the end
	due         time.Time   // when the watch was last meant to run out
	alive       *time.Timer // while a tool runs or the conversation is compacted
	command     bool        // the running turn was opened by a slash command
	compacts    bool        // the conversation is being summarised
	background  int         // tasks that outlive their turn

	turn turn
}

// turn is what the reader knows of the running turn.
type turn struct {
	continuation string
	model        string   // that answered last
	spoke        bool     // the model said something
	synthetic    bool     // the CLI said something in its place
	output       []string // of a command
	compacted    bool
	compactError string
	limit        *provider.Event
	cost         float64 // of the process, up to the last result
	turns        int     // that have ended
	over         bool    // the query fails: nothing of the CLI counts any more
	lastDelta    time.Time
}

// started sends the first request and holds the first prompt until it is answered; mu is held.
func (q *query) started(first prompt) {
	q.held, q.running = []prompt{first}, true
	q.due = time.Now().Add(q.p.opt.InitWait)
	q.watch = time.AfterFunc(q.p.opt.InitWait, q.silence)
	q.alive = time.AfterFunc(q.p.opt.KeepAlive, q.keepAlive)
	q.alive.Stop()
	answer := q.controlLocked(q.setup)
	go func() {
		select {
		case err := <-answer:
			q.initialized(err)
		case <-q.exited:
		}
	}()
}

func (q *query) initialized(err error) {
	if err != nil {
		q.fail(&provider.QueryError{Op: "set up the claude CLI", Class: provider.ClassOther, Retryable: true, Err: err})
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready, q.running = true, false
	q.flush()
	q.notify()
}

// flush writes the prompts that may be written now, and closes the input behind the last; mu is held. The CLI runs a command only
// if it opens a turn, so a command waits for the running turn, and what stands behind it for its result.
func (q *query) flush() {
	for len(q.held) > 0 && !q.commanding && (q.held[0].command == "" || !q.running) {
		q.write(q.held[0])
		q.held = q.held[1:]
	}
	if q.ended && len(q.held) == 0 {
		q.stdin.CloseInput()
	}
}

// notify wakes those who wait for a change; mu is held.
func (q *query) notify() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// write sends a prompt; mu is held.
func (q *query) write(p prompt) {
	id := newUUID()
	_ = q.stdin.Send(userLine{Type: "user", Message: userMessage{Role: "user", Content: p.content()}, UUID: id}) // strings always encode
	q.commanding = p.command != ""
	p.media = nil
	q.inputs[id] = p
	q.running = true
	q.armLocked()
}

// Push reads the attachments before it returns.
func (q *query) Push(_ context.Context, in provider.Input) error {
	p := q.prepare(in)
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.exited:
		return provider.ErrEnded
	default:
	}
	if q.ended || q.aborted || q.err != nil {
		return provider.ErrEnded
	}
	q.held = append(q.held, p)
	if q.ready {
		q.flush()
	}
	return nil
}

// Interrupt waits for the CLI to accept, not for the end of the turn. Without a running turn it does nothing.
func (q *query) Interrupt(ctx context.Context) error {
	// before the turn is announced an interrupt would be spent on nothing and the turn would run
	for {
		q.mu.Lock()
		running, began, changed := q.running, q.began, q.changed
		q.mu.Unlock()
		if !running {
			return nil
		}
		if began {
			break
		}
		select {
		case <-changed:
		case <-q.exited:
			return provider.ErrEnded
		case <-ctx.Done():
			return fmt.Errorf("interrupt the turn: %w", context.Cause(ctx))
		}
	}
	answer, err := q.control(subtypeOnly{"interrupt"})
	if err != nil {
		return fmt.Errorf("interrupt the turn: %w", err)
	}
	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("interrupt the turn: %w", err)
		}
		return nil
	case <-q.exited:
		return provider.ErrEnded
	case <-ctx.Done():
		return fmt.Errorf("interrupt the turn: %w", context.Cause(ctx))
	}
}

func (q *query) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	q.ended = true
	if q.ready {
		q.flush()
	}
	q.armLocked()
}

// Abort also ends a query whose CLI does not react; see terminate.
func (q *query) Abort() {
	q.aborting.Do(func() {
		q.mu.Lock()
		q.aborted = true
		q.watch.Stop()
		q.mu.Unlock()
		q.terminate(true)
	})
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

// control sends a request; its answer, or the refusal, comes on the channel.
func (q *query) control(request any) (<-chan error, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.exited:
		return nil, provider.ErrEnded
	default:
	}
	if r, ok := request.(subtypeOnly); ok && r.Subtype == "interrupt" {
		q.interrupted = true
	}
	return q.controlLocked(request), nil
}

func (q *query) controlLocked(request any) <-chan error {
	q.requests++
	id := "req_" + strconv.Itoa(q.requests)
	answer := make(chan error, 1)
	q.answers[id] = answer
	if err := q.stdin.Send(controlRequest{Type: "control_request", RequestID: id, Request: request}); err != nil {
		answer <- err
	}
	return answer
}

// armLocked sets the watch that fits the state: silence of a running turn, or a finished CLI that does not exit.
func (q *query) armLocked() {
	switch {
	case q.aborted || q.err != nil:
		q.watch.Stop()
	case !q.ready:
		// the limit of the first answer goes on
	case q.running && len(q.tools) == 0:
		q.arm(q.p.opt.Silence)
	case !q.running && q.ended:
		q.arm(q.p.opt.EndWait)
	case !q.running && q.p.opt.IdleClose > 0 && q.background == 0:
		q.arm(q.p.opt.IdleClose)
	default:
		q.watch.Stop()
	}
}

func (q *query) arm(d time.Duration) {
	q.due = time.Now().Add(d)
	q.watch.Reset(d)
}

// keepAlive tells that work goes on of which the CLI may say nothing for long: the process is there.
func (q *query) keepAlive() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.aborted && q.err == nil && (len(q.tools) > 0 || q.compacts) {
		q.alive.Reset(q.p.opt.KeepAlive)
		q.events.Put(provider.Event{Kind: provider.Activity})
	}
}

// silence is called when the watch runs out.
func (q *query) silence() {
	q.mu.Lock()
	ready, running, twice := q.ready, q.running, q.silent
	// it may have been put off while it ran out
	done := q.aborted || q.err != nil || ready && running && len(q.tools) > 0 || time.Now().Before(q.due)
	if !done && ready && !running && !q.ended {
		if q.p.opt.IdleClose <= 0 || q.background > 0 {
			q.mu.Unlock()
			return
		}
		q.log.Info("claude: the idle CLI is closed")
		q.ended, done = true, true
		q.flush()
		q.armLocked()
	}
	if !done && ready && running && !twice {
		q.silent = true
	}
	q.mu.Unlock()
	switch {
	case done:
	case !ready:
		q.fail(&provider.QueryError{Op: "start the claude CLI", Class: provider.ClassOther, Retryable: true, Err: fmt.Errorf("no answer within %s", q.p.opt.InitWait)})
	case !running: // after End: the work is done, the process stays
		q.log.Warn("claude: the CLI does not exit after its last turn")
		go q.terminate(false)
	case !twice:
		q.log.Warn("claude: the CLI is silent, interrupting the turn")
		if _, err := q.control(subtypeOnly{"interrupt"}); err == nil && !q.wait(q.p.opt.InterruptWait, func() bool { return !q.silent }) {
			q.fail(silentError(q.p.opt.Silence))
		}
	}
}

func silentError(limit time.Duration) *provider.QueryError {
	return &provider.QueryError{Op: "run the turn", Class: provider.ClassNetwork, Retryable: true, Err: fmt.Errorf("nothing was heard of it for %s", limit)}
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
		go q.terminate(true)
	}
}

// finished is called once, when the process and all it started are gone.
func (q *query) finished() {
	_, exit := q.child.Exit()
	q.endTools()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watch.Stop()
	q.alive.Stop()
	done := q.aborted || q.ended && len(q.held) == 0 && (!q.running || exit == nil)
	if !done && q.err == nil {
		q.err = q.exitError()
	}
	if q.aborted {
		q.err = nil
	}
	q.running = false
}

var errNoRandom = errors.New("no random bytes")

func newUUID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(errNoRandom) // crypto/rand promises never to fail
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
