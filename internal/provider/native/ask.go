package native

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/wire"
)

const (
	maxBackoff = 30 * time.Second
	// maxAfter is the longest wait that an API may ask for within a turn; a longer one is the runner's matter.
	maxAfter = 60 * time.Second
)

// ask sends one request and repeats it while that may help. model changes to the fallback when it is overloaded for longer. said is
// called with each finished block of text; nil keeps it quiet.
func (q *query) ask(ctx context.Context, model *string, r wire.Request, said func(string)) (wire.Answer, error) {
	defer q.beat()()
	for try := 1; ; try++ {
		r.Model = *model
		a, err := q.wire.Send(ctx, r, func(e wire.Event) {
			if e.Text == "" {
				q.alive()
			} else if said != nil {
				said(e.Text)
			}
		})
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return a, context.Cause(ctx)
		}
		var e *wire.Error
		if !errors.As(err, &e) {
			e = &wire.Error{Class: provider.ClassOther, Message: err.Error(), Err: err}
		}
		if e.Retryable && usable(a) { // what was said is said: the model goes on from there
			q.failing(e, try)
			a.Stop = wire.Broken
			return a, nil
		}
		if !e.Retryable || e.After > maxAfter || try >= q.p.opt.Tries {
			if !q.fallback(model, e) {
				return a, e
			}
			try = 0
			continue
		}
		q.failing(e, try)
		if err := pause(ctx, q.backoff(try, e.After)); err != nil {
			return wire.Answer{}, err
		}
	}
}

// usable reports whether an answer that broke off has whole blocks that the model can go on from.
func usable(a wire.Answer) bool {
	for _, b := range a.Blocks {
		if b.Kind == history.Text || b.Kind == history.Call {
			return true
		}
	}
	return false
}

// fallback changes to the other model where that may help, and says so (spec/bugs.md PRV-4).
func (q *query) fallback(model *string, e *wire.Error) bool {
	next := q.p.opt.Fallback
	if next == "" || *model == next || e.Class != provider.ClassOverloaded && e.Class != provider.ClassRateLimit {
		return false
	}
	q.log.Warn("another model answers, since the first one is overloaded", slog.String(obs.KeyModel, next), slog.String(obs.KeyInstead, *model))
	q.emit(provider.Event{Kind: provider.Progress, Message: "the model " + next + " answers in place of " + *model})
	*model = next
	return true
}

// failing tells of a failure that the turn may survive.
func (q *query) failing(e *wire.Error, try int) {
	q.log.Info("the model's API failed; it is asked again", obs.Error(e), obs.KeyCount, try)
	q.emit(provider.Event{Kind: provider.Error, Message: e.Error(), Class: e.Class, Retryable: true})
}

// backoff doubles with each try and is spread, so that many agents do not come back at once.
func (q *query) backoff(try int, after time.Duration) time.Duration {
	d := min(q.p.opt.Backoff<<min(try-1, 20), maxBackoff)
	d = d/2 + rand.N(d/2+1)
	return max(d, after)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failed fills an error result.
func failed(e *provider.Event, err error) {
	e.IsError, e.Message, e.Class = true, err.Error(), provider.ClassOther
	var w *wire.Error
	if !errors.As(err, &w) {
		return
	}
	e.Class, e.Retryable, e.ResetsAt = w.Class, w.Retryable, w.ResetsAt
	switch w.Class {
	case provider.ClassAuth:
		e.Notice = "The model's provider did not accept the key. The owner must check it."
	case provider.ClassQuota:
		e.Notice = "The account at the model's provider has no credit left."
	case provider.ClassRateLimit:
		e.Notice = "The limit at the model's provider is reached."
	case provider.ClassOverloaded:
		e.Notice = "The model's provider is overloaded."
	case provider.ClassContext:
		e.Notice = "This conversation has grown too long for the model."
	case provider.ClassNetwork:
		e.Notice = "The model's provider could not be reached."
	}
	if errors.Is(err, errEndless) {
		e.Notice = "The agent repeated itself without coming to an end and was stopped."
	}
	if !w.ResetsAt.IsZero() {
		e.Notice += " It resets at " + w.ResetsAt.Format("15:04 MST on 2 January") + "."
	}
}
