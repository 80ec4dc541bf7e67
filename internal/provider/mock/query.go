package mock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// query plays the exchanges of one conversation, one after the other, in one goroutine.
type query struct {
	p    *Provider
	used lineSet

	ctx    context.Context
	abort  context.CancelFunc
	events chan provider.Event
	done   chan struct{} // closed when the player has ended
	wake   chan struct{} // capacity 1: something was pushed or ended

	mu        sync.Mutex
	waiting   []provider.Input
	ended     bool
	interrupt context.CancelFunc // of the running exchange; nil between exchanges
	err       error
}

func start(ctx context.Context, p *Provider, used lineSet, first provider.Input) *query {
	q := &query{
		p: p, used: used, waiting: []provider.Input{first},
		events: make(chan provider.Event), done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	q.ctx, q.abort = context.WithCancel(ctx)
	go q.run()
	return q
}

func (q *query) Push(_ context.Context, in provider.Input) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended || q.ctx.Err() != nil {
		return provider.ErrEnded
	}
	q.waiting = append(q.waiting, in)
	q.ring()
	return nil
}

func (q *query) Interrupt(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.interrupt != nil {
		q.interrupt()
	}
	return nil
}

func (q *query) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.ring()
}

// Abort does not wait for the reader: what it has not read by now is dropped.
func (q *query) Abort() {
	q.abort()
	<-q.done
}

func (q *query) Events() <-chan provider.Event { return q.events }

func (q *query) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (q *query) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take removes the oldest waiting input; ended says that none will come.
func (q *query) take() (in provider.Input, ok, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return in, false, q.ended
	}
	in, q.waiting = q.waiting[0], q.waiting[1:]
	return in, true, false
}

func (q *query) emit(e provider.Event) {
	select {
	case q.events <- e:
	case <-q.ctx.Done():
	}
}

func (q *query) step(e provider.Event) {
	q.emit(provider.Event{Kind: provider.Activity})
	q.emit(e)
}

func (q *query) run() {
	defer close(q.done)
	defer close(q.events)
	defer q.abort()
	q.step(provider.Event{Kind: provider.Init, Continuation: q.used.continuation()})
	for q.ctx.Err() == nil {
		in, ok, ended := q.take()
		if !ok {
			if ended {
				return
			}
			select {
			case <-q.wake:
			case <-q.ctx.Done():
			}
			continue
		}
		q.exchange(in)
	}
}

// running says what Interrupt stops; nil before a result is told, since the turn is then over for its reader.
func (q *query) running(cancel context.CancelFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.interrupt = cancel
}

func (q *query) exchange(in provider.Input) {
	ctx, cancel := context.WithCancel(q.ctx)
	defer cancel()
	q.running(cancel)
	defer q.running(nil)
	if q.p.caps.Receipts {
		q.step(provider.Event{Kind: provider.Taken, InputID: in.ID})
	}
	// read again each time: whoever edits the script need not restart the agent
	script, err := ReadScript(q.p.opt.Script)
	if err != nil {
		q.running(nil)
		q.step(provider.Event{Kind: provider.Result, IsError: true, Class: provider.ClassOther, Message: badScript(err).Error(), Usage: &provider.Usage{}})
		return
	}
	l, ok := script.pick(q.used, in.Text)
	if !ok {
		text := echo(in.Text)
		if text != "" {
			q.step(provider.Event{Kind: provider.Text, Text: text})
		}
		q.running(nil)
		q.step(provider.Event{Kind: provider.Result, Text: text, Usage: &provider.Usage{}})
		return
	}
	(&play{q: q, ctx: ctx, cancel: cancel, line: l}).run()
}

// play is one line of the script being played.
type play struct {
	q        *query
	ctx      context.Context
	cancel   context.CancelFunc
	line     line
	streamed strings.Builder // texts since the last result
	last     string
	failure  *event // an error event with nothing after it
	open     bool   // something happened since the last result
	results  int
}

func (p *play) run() {
	for _, e := range p.line.events {
		if p.ctx.Err() != nil {
			break
		}
		p.q.running(p.cancel)
		p.event(e)
	}
	switch {
	case p.q.ctx.Err() != nil: // nobody waits for a result
	case p.ctx.Err() != nil:
		p.result(provider.Event{Interrupted: true})
	case p.failure != nil:
		p.result(provider.Event{IsError: true, Message: p.failure.Message, Class: provider.ClassOther, Retryable: p.failure.Retryable})
	case p.open || p.results == 0:
		p.result(provider.Event{Text: p.last})
	}
}

func (p *play) event(e event) {
	if e.Type != "error" && e.Type != "activity" && e.Type != "sleep" {
		p.failure = nil
	}
	switch e.Type {
	case "text":
		p.text(e.Text)
	case "tool":
		p.open = true
		p.tool(e)
	case "sleep":
		t := time.NewTimer(time.Duration(e.MS) * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
		case <-p.ctx.Done():
		}
	case "activity":
		p.q.emit(provider.Event{Kind: provider.Activity})
	case "error":
		p.open, p.failure = true, &e
		p.q.step(provider.Event{Kind: provider.Error, Message: e.Message, Class: provider.ClassOther, Retryable: e.Retryable})
	case "exit":
		p.exit(e.Code)
	case "take":
		p.take()
	case "result":
		if e.IsError {
			msg := e.Message
			if msg == "" {
				msg = e.Text
			}
			p.result(provider.Event{IsError: true, Message: msg, Class: provider.ClassOther, Retryable: e.Retryable})
			return
		}
		if e.Text != "" && e.Text != p.last && !strings.HasSuffix(p.streamed.String(), e.Text) {
			p.text(e.Text)
		}
		p.result(provider.Event{Text: e.Text})
	}
}

func (p *play) text(s string) {
	p.open, p.last = true, s
	p.streamed.WriteString(s)
	p.q.step(provider.Event{Kind: provider.Text, Text: s})
}

// result ends the turn. The continuation that no longer offers this line goes before it.
func (p *play) result(e provider.Event) {
	p.q.running(nil)
	p.q.used.add(p.line.number)
	p.q.emit(provider.Event{Kind: provider.Init, Continuation: p.q.used.continuation()})
	e.Kind, e.Usage = provider.Result, &provider.Usage{}
	p.q.step(e)
	p.streamed.Reset()
	p.last, p.open, p.failure = "", false, nil
	p.results++
}

func (p *play) tool(e event) {
	q := p.q
	q.step(provider.Event{Kind: provider.ToolStart, Tool: e.Name})
	_, err := "", errors.New("no tools here")
	if call := q.p.opt.CallTool; call != nil {
		q.busy(func() { _, err = call(p.ctx, e.Name, e.Args) })
	}
	q.step(provider.Event{Kind: provider.ToolEnd, Tool: e.Name})
	if err != nil {
		q.p.opt.Log.Info("mock: tool error", obs.KeyTool, e.Name, obs.Error(err))
		q.emit(provider.Event{Kind: provider.Progress, Message: "tool " + e.Name + " failed: " + err.Error()})
	}
}

// busy tells that the query lives while something else works.
func (q *query) busy(work func()) {
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		t := time.NewTicker(q.p.opt.KeepAlive)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				q.emit(provider.Event{Kind: provider.Activity})
			case <-done:
				return
			}
		}
	})
	work()
	close(done)
	wait.Wait()
}

func (p *play) take() {
	q := p.q
	for p.ctx.Err() == nil {
		in, ok, ended := q.take()
		if ok {
			q.step(provider.Event{Kind: provider.Taken, InputID: in.ID})
			return
		}
		if ended {
			return
		}
		select {
		case <-q.wake:
		case <-p.ctx.Done():
		}
	}
}

// exit ends the process. An Exit that returns ends the query as the loss of its process would.
func (p *play) exit(code int) {
	q := p.q
	q.p.rememberExit(p.line.number)
	q.emit(provider.Event{Kind: provider.Activity}) // taken only when the reader is done with what came before
	q.p.opt.Exit(code)
	q.mu.Lock()
	q.err = &provider.QueryError{Op: "play the script", Class: provider.ClassOther, Retryable: true, Err: errors.New("the script ended the process")}
	q.mu.Unlock()
	q.abort()
}
