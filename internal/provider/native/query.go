package native

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/memory"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/mcpclient"
	"nanoclaw/internal/provider/native/tool"
	"nanoclaw/internal/provider/native/wire"
	"nanoclaw/internal/slash"
)

var (
	errInterrupted = errors.New("the turn was interrupted")
	errAborted     = errors.New("the conversation was aborted")
)

// throttle bounds the signs of life of a stream.
const throttle = time.Second

// query is one conversation. One goroutine (run) owns what is not under mu.
type query struct {
	p      *Provider
	in     provider.QueryInput
	log    *slog.Logger
	wire   wire.Wire
	conv   *history.Conversation
	box    *tool.Box
	mcp    *mcpclient.Set
	skills []memory.Skill
	system []string
	tokens int64 // about how many the conversation has
	window int64

	ctx    context.Context
	abort  context.CancelCauseFunc
	events *queue
	done   chan struct{} // everything it started is gone
	wake   chan struct{} // capacity 1: something was pushed or ended

	mu      sync.Mutex
	waiting []provider.Input
	ended   bool
	stop    context.CancelCauseFunc // of the running turn; nil between turns
	early   bool                    // an interrupt came before the waiting turn began
	last    time.Time               // of the newest sign of life
}

func (p *Provider) start(ctx context.Context, in provider.QueryInput, conv *history.Conversation) *query {
	q := &query{
		p: p, in: in, log: p.opt.Log, conv: conv, wire: p.opt.Wire(), box: p.box(in, conv),
		events: newQueue(), done: make(chan struct{}), wake: make(chan struct{}, 1), waiting: []provider.Input{in.Input},
	}
	q.ctx, q.abort = context.WithCancelCause(ctx)
	go q.run()
	return q
}

// Push never blocks.
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

// Interrupt does not wait for the end of the turn. Without a turn, running or waiting, it does nothing.
func (q *query) Interrupt(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stop != nil:
		q.stop(errInterrupted)
	case len(q.waiting) > 0:
		q.early = true
	}
	return nil
}

func (q *query) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.ring()
}

func (q *query) Abort() {
	q.abort(errAborted)
	<-q.done
}

func (q *query) Events() <-chan provider.Event { return q.events.out }

// Err is nil: whatever goes wrong in a turn is its result, and the conversation goes on.
func (q *query) Err() error { return nil }

func (q *query) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run plays one turn after the other until nothing is left to do.
func (q *query) run() {
	defer func() {
		q.abort(errAborted) // no more input
		if q.mcp != nil {
			q.mcp.Close()
		}
		q.box.Close()
		if err := q.conv.Close(); err != nil {
			q.log.Warn("the conversation could not be closed", obs.Error(err))
		}
		close(q.done)
		q.events.close()
	}()
	q.emit(provider.Event{Kind: provider.Init, Continuation: q.conv.ID()})
	q.prepare()
	for q.ctx.Err() == nil {
		in, ok, ended := q.take()
		if ok {
			q.exchange(in)
			continue
		}
		if ended {
			return
		}
		if text := q.box.Ended(); text != "" { // a turn that nobody asked for
			q.exchange(provider.Input{Text: "[" + text + "]"})
			continue
		}
		select {
		case <-q.wake:
		case <-q.box.Changed():
		case <-q.ctx.Done():
		}
	}
}

// prepare reads what the folder says and connects to the tool servers.
func (q *query) prepare() {
	q.tidy()
	places := q.p.places(q.in)
	q.skills = places.Skills()
	q.system = []string{systemPrompt(q.in.Cwd, q.p.dirs(q.in), places.Instructions(), q.skills), q.in.Instructions}
	q.window = q.p.opt.Window
	if q.window <= 0 {
		q.window = q.wire.Window(q.ctx, q.p.opt.Model)
	}
	for _, m := range q.conv.Messages() {
		q.tokens += estimate(m)
	}
	q.mcp = mcpclient.Connect(q.ctx, q.in.MCP, mcpclient.Options{
		Client: q.p.opt.HTTP, Environ: q.box.Environ, Cwd: q.in.Cwd, Output: q.conv.Output, Wait: q.p.opt.MCPWait, Log: q.log,
	})
}

// keepOutputs is how long the whole output of a command can be read.
const keepOutputs = 7 * 24 * time.Hour

// tidy removes old outputs.
func (q *query) tidy() {
	entries, err := os.ReadDir(q.conv.Output())
	if err != nil {
		return // there are none
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keepOutputs {
			_ = os.Remove(filepath.Join(q.conv.Output(), e.Name())) // the next time finds it again
		}
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

// takeMore removes what may join the running turn: all up to a command, which has a turn of its own.
func (q *query) takeMore() []provider.Input {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.IndexFunc(q.waiting, func(in provider.Input) bool { return command(in) != "" })
	if n < 0 {
		n = len(q.waiting)
	}
	more := slices.Clone(q.waiting[:n])
	q.waiting = q.waiting[n:]
	return more
}

// command is the word of an input that is a command of this provider; "" for a text.
func command(in provider.Input) string {
	c, ok := slash.Find(in.Text)
	if !ok || c.Word != slash.Compact && c.Word != slash.Context {
		return ""
	}
	return c.Word
}

// emit tells of something, after a sign of life.
func (q *query) emit(e provider.Event) {
	q.events.put(provider.Event{Kind: provider.Activity}, e)
}

// alive gives a sign of life, not more than one a second.
func (q *query) alive() {
	now := time.Now()
	q.mu.Lock()
	due := now.Sub(q.last) >= throttle
	if due {
		q.last = now
	}
	q.mu.Unlock()
	if due {
		q.events.put(provider.Event{Kind: provider.Activity})
	}
}

// beat gives signs of life until the returned function is called.
func (q *query) beat() (stop func()) {
	t := time.NewTicker(q.p.opt.Pulse)
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-t.C:
				q.events.put(provider.Event{Kind: provider.Activity})
			case <-over:
				return
			}
		}
	}()
	return func() { t.Stop(); close(over); <-gone }
}

// begin opens a turn; over closes it for Interrupt before its result is told.
func (q *query) begin() (ctx context.Context, over func()) {
	ctx, cancel := context.WithCancelCause(q.ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stop = cancel
	if q.early {
		q.early = false
		cancel(errInterrupted)
	}
	return ctx, func() {
		q.mu.Lock()
		q.stop = nil
		q.mu.Unlock()
		cancel(nil)
	}
}
