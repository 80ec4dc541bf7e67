package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

func (r *Runner) loop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if err := r.advance(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		if r.ahead != nil {
			ev := *r.ahead
			r.ahead = nil
			if err := r.handle(ctx, ev); err != nil {
				return err
			}
			continue
		}
		if r.opt.Once && r.looked && !r.blind && r.idle() && len(r.gated) == 0 {
			return nil
		}
		wait := timer.C
		if at := r.deadline(); at.IsZero() {
			wait = nil
		} else {
			timer.Reset(at.Sub(r.opt.Now()))
		}
		if err := r.hear(ctx, wait); err != nil {
			return err
		}
	}
}

// hear waits for the next thing that happens.
func (r *Runner) hear(ctx context.Context, wait <-chan time.Time) error {
	var events <-chan provider.Event
	if r.q != nil {
		events = r.q.Events()
	}
	select {
	case <-ctx.Done():
	case ev, ok := <-events:
		if !ok {
			return r.ended(ctx)
		}
		return r.handle(ctx, ev)
	case e := <-r.errands:
		return r.serve(ctx, e)
	case s := <-r.scripts:
		return r.scriptEnded(ctx, s)
	case <-r.opt.Bell.Rung():
		r.look = true
	case <-r.opt.Bell.Changed():
		r.poll = poll{at: r.opt.Now(), pause: pollFirst}
	case <-wait:
		return r.tick(ctx)
	}
	return nil
}

// deadline is the earliest moment at which something is to be done without anything happening; zero: never.
func (r *Runner) deadline() time.Time {
	var at time.Time
	add := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	add(r.due)
	if !r.opt.Bell.Connected() {
		if r.poll.at.IsZero() {
			r.poll.at = r.opt.Now().Add(r.poll.pause)
		}
		add(r.poll.at)
	}
	if len(r.backlog) > 0 && r.running == nil && len(r.waiting) == 0 {
		add(r.backlog[0].at)
	}
	add(r.stop.deadline)
	add(r.board.deadline(r.busy()))
	return at
}

// tick does what is due by the clock.
func (r *Runner) tick(ctx context.Context) error {
	now := r.opt.Now()
	reached := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	if reached(r.due) {
		r.due, r.look = time.Time{}, true
	}
	if reached(r.poll.at) {
		r.poll.at, r.look = time.Time{}, true
		r.poll.pause = min(2*r.poll.pause, pollLast)
	}
	if reached(r.stop.deadline) {
		if err := r.forceStop(ctx); err != nil {
			return err
		}
	}
	return r.boardTick(ctx, now)
}

// advance starts what can be started: a retry, or the rows that are due.
func (r *Runner) advance(ctx context.Context) error {
	for ctx.Err() == nil {
		if r.running == nil && len(r.waiting) == 0 && len(r.backlog) > 0 && !r.opt.Now().Before(r.backlog[0].at) {
			next := r.backlog[0]
			r.backlog = r.backlog[1:]
			if err := r.ask(ctx, next.exchange, next.text); err != nil {
				return err
			}
			r.look = true // for what came meanwhile
			continue
		}
		if !r.look {
			return nil
		}
		r.look = false
		if err := r.fetch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fetch looks at the inbox. A mailbox that is busy or cannot be read is looked at again after a pause.
func (r *Runner) fetch(ctx context.Context) error {
	batch, err := r.opt.Mailbox.Fetch(ctx, r.opt.Limit)
	if err == nil {
		r.corrupt, r.blind = 0, false
		r.due = batch.Next
		err = r.take(ctx, batch)
		if !r.looked {
			r.looked = true
			if r.opt.Looked != nil {
				r.opt.Looked()
			}
		}
		return err
	}
	return r.unreadable(ctx, err)
}

// unreadable deals with a failed look at the inbox.
func (r *Runner) unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	switch {
	case errors.Is(err, mailbox.ErrCorrupt):
		if r.corrupt++; r.corrupt >= corruptLimit {
			return fmt.Errorf("the inbox could not be read %d times in a row: %w", r.corrupt, err)
		}
	case errors.Is(err, mailbox.ErrBusy):
	default:
		return err
	}
	r.log.Warn("the inbox cannot be read at the moment", obs.Error(err), obs.KeyCount, r.corrupt)
	r.blind = true
	r.due = r.opt.Now().Add(r.poll.pause)
	r.poll.pause = min(2*r.poll.pause, pollLast)
	return nil
}
