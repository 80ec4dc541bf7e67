package claude

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"nanoclaw/internal/provider"
)

// query is one CLI process. The reader goroutine (read) owns the fields of the turn; the rest is under mu.
type query struct {
	p       *Provider
	log     *slog.Logger
	setup   initializeRequest
	resumed string // the continuation it was started with
	mark    string
	cmd     *exec.Cmd
	stdin   *writer
	events  *queue
	stderr  tail          // owned by its reader until the process is gone
	exited  chan struct{} // the CLI has exited
	gone    chan struct{} // and everything it started, and its output is read

	aborting sync.Once

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced when running, began or ready change
	ready       bool          // the first request is answered
	held        []provider.Input
	inputs      map[string]provider.Input // by uuid: what the CLI has not taken yet
	running     bool                      // a turn runs or waits to
	began       bool                      // the CLI has announced the running turn
	interrupted bool                      // the running turn was interrupted by us
	silent      bool                      // ... because nothing was heard of it
	ended       bool                      // End
	aborted     bool
	err         *provider.QueryError
	tools       map[string]string // use id → name, in flight
	answers     map[string]chan error
	requests    int
	known       []processID
	watch       *time.Timer // silence, or the answer to the first request
	command     bool        // the running turn was opened by a slash command

	turn turn
}

// turn is what the reader knows of the running turn.
type turn struct {
	continuation string
	spoke        bool // the model said something
	synthetic    bool // the CLI said something in its place
	limit        *provider.Event
	cost         float64 // of the process, up to the last result
	lastDelta    time.Time
}

// started sends the first request and holds the first prompt until it is answered.
func (q *query) started(first provider.Input) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held, q.running = []provider.Input{first}, true
	q.watch = time.AfterFunc(q.p.opt.InitWait, q.silence)
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
	q.ready = true
	q.notify()
	for _, in := range q.held {
		q.write(in)
	}
	q.held = nil
	if q.ended {
		q.stdin.finish()
	}
}

// notify wakes those who wait for a change; mu is held.
func (q *query) notify() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// write sends a prompt; mu is held.
func (q *query) write(in provider.Input) {
	id := newUUID()
	q.inputs[id] = in
	q.running = true
	_ = q.stdin.send(userLine{Type: "user", Message: userMessage{Role: "user", Content: in.Text}, UUID: id}) // strings always encode
	q.armLocked()
}

func (q *query) Push(_ context.Context, in provider.Input) error {
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
	if !q.ready {
		q.held = append(q.held, in)
		return nil
	}
	q.write(in)
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
		q.stdin.finish()
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

func (q *query) Events() <-chan provider.Event { return q.events.out }

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
	if err := q.stdin.send(controlRequest{Type: "control_request", RequestID: id, Request: request}); err != nil {
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
		q.watch.Reset(q.p.opt.Silence)
	case !q.running && q.ended:
		q.watch.Reset(q.p.opt.EndWait)
	default:
		q.watch.Stop()
	}
}

// silence is called when the watch runs out.
func (q *query) silence() {
	q.mu.Lock()
	ready, running, twice := q.ready, q.running, q.silent
	done := q.aborted || q.err != nil || ready && running && len(q.tools) > 0
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
		go q.terminate(false)
	}
}

// finished is called once, when the process and all it started are gone.
func (q *query) finished(exit error) {
	q.endTools()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watch.Stop()
	done := q.aborted || q.ended && (!q.running || exit == nil)
	if !done && q.err == nil {
		q.err = q.exitError(exit)
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
