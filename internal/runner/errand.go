package runner

import (
	"context"
	"errors"

	"nanoclaw/internal/mailbox"
)

// errand is something that a tool wants of the loop: the loop does it, behind all that the provider has said before.
type errand struct {
	ctx  context.Context
	do   func(ctx context.Context) error
	undo func()     // if it is not done; may be nil
	done chan error // capacity 1
}

// refusal is an error for the model alone: nothing was done, and the loop goes on.
type refusal struct{ error }

func (e *refusal) Unwrap() error { return e.error }

func refuse(err error) error { return &refusal{err} }

var (
	errGone    = errors.New("the runner is stopping; nothing was done")
	errStopped = errors.New("the turn is being stopped; nothing was done")
)

// run has the loop do something and returns when it is done. It may be called from any goroutine. When it returns an error of
// ctx, the loop may still do it.
func (r *Runner) run(ctx context.Context, do func(context.Context) error, undo func()) error {
	e := &errand{ctx: ctx, do: do, undo: undo, done: make(chan error, 1)}
	select {
	case r.errands <- e:
	case <-r.gone:
		e.drop()
		return errGone
	case <-ctx.Done():
		e.drop()
		return ctx.Err()
	}
	select {
	case err := <-e.done:
		return err
	case <-r.gone:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *errand) drop() {
	if e.undo != nil {
		e.undo()
	}
}

func (e *errand) refuse(err error) {
	e.drop()
	e.done <- refuse(err)
}

// serve does an errand. A failure of the mailbox is told to the tool and ends the loop.
func (r *Runner) serve(ctx context.Context, e *errand) error {
	if err := r.catchUp(ctx); err != nil {
		e.refuse(errGone)
		return err
	}
	if e.ctx.Err() != nil {
		e.drop()
		return nil
	}
	err := e.do(ctx)
	if err != nil {
		e.drop()
	}
	e.done <- err
	if r.opt.Rested != nil && r.idle() {
		r.opt.Rested()
	}
	var no *refusal
	if err == nil || errors.As(err, &no) || errors.Is(err, mailbox.ErrInvalid) {
		return nil
	}
	return err
}

// catchUp handles what the provider has said already: text before a tool call leaves before what the tool sends.
func (r *Runner) catchUp(ctx context.Context) error {
	if r.ahead != nil {
		ev := *r.ahead
		r.ahead = nil
		if err := r.handle(ctx, ev); err != nil {
			return err
		}
	}
	for r.q != nil {
		next := r.peek()
		if next == nil {
			return nil
		}
		if err := r.handle(ctx, *next); err != nil {
			return err
		}
	}
	return nil
}
