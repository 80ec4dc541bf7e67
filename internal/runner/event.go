package runner

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/turn"
)

// handle deals with one event of the provider.
func (r *Runner) handle(ctx context.Context, ev provider.Event) error {
	now := r.opt.Now()
	r.beat(now)
	switch ev.Kind {
	case provider.Text:
		return r.text(ctx, ev.Text)
	case provider.ToolStart, provider.ToolEnd:
		if ev.Kind == provider.ToolEnd && r.running == nil { // of a call that a turn has left behind: it begins none
			r.board.toolEnded(now, ev.Tool)
			return nil
		}
		ex, err := r.begin()
		if err != nil {
			return err
		}
		if ev.Kind == provider.ToolStart {
			r.board.toolStarted(now, ev.Tool, ev.Timeout)
			r.noteTool(ex, ev.Tool, now)
		} else {
			r.board.toolEnded(now, ev.Tool)
		}
		rows, err := r.gate(ctx, ex, ex.Segment())
		if err != nil {
			return err
		}
		return r.write(ctx, rows)
	case provider.Taken:
		return r.taken(ctx, ev.InputID)
	case provider.Result:
		ex, err := r.begin()
		if err != nil {
			return err
		}
		return r.result(ctx, ex, ev, nil)
	}
	r.aside(ev)
	return nil
}

// aside deals with events that change nothing about the exchange. It reports whether ev is one.
func (r *Runner) aside(ev provider.Event) bool {
	switch ev.Kind {
	case provider.Activity:
	case provider.Init:
		r.seen = ev.Continuation
	case provider.Error:
		r.log.Warn("the provider reports an error", slog.String(obs.KeyError, ev.Message), slog.String(obs.KeyClass, string(ev.Class)), slog.Bool(obs.KeyRetryable, ev.Retryable))
	case provider.Progress:
		r.log.Debug("progress", slog.String(obs.KeyWhat, ev.Message))
	case provider.Compacted:
		r.log.Info("the conversation was summarised", obs.KeyProvider, r.driver().Provider.Name())
	default:
		return false
	}
	return true
}

// text gives the model's words to the gate. What it lets out is written at once; only if the result is there already, the
// rows go into the transaction that ends the exchange.
func (r *Runner) text(ctx context.Context, text string) error {
	ex, err := r.begin()
	if err != nil || !r.caps.MidTurnText || ex.Command() != "" {
		return err
	}
	rows, err := r.gate(ctx, ex, ex.Write(text))
	if err != nil || len(rows) == 0 {
		return err
	}
	if next := r.peek(); next != nil {
		if next.Kind == provider.Result {
			return r.result(ctx, ex, *next, rows)
		}
		r.ahead = next
	}
	return r.write(ctx, rows)
}

// peek returns the next event that is about the exchange if the provider has it ready, else nil. It does not block.
func (r *Runner) peek() *provider.Event {
	const yields = 3 // for a provider that sends without a buffer
	for n := 0; n <= yields; {
		select {
		case ev, ok := <-r.q.Events():
			if !ok {
				return nil // found closed again by the loop
			}
			if !r.aside(ev) {
				return &ev
			}
			n = 0
		default:
			n++
			runtime.Gosched()
		}
	}
	return nil
}

// taken deals with a receipt: the prompt opens a turn, or it belongs to the running one from now on.
func (r *Runner) taken(ctx context.Context, input string) error {
	if input == r.input && r.running != nil {
		r.q.opens = true
		return nil
	}
	for i, w := range r.waiting {
		if w.input != input {
			continue
		}
		switch {
		case r.running != nil:
			return r.join(ctx, i)
		case i == 0 || r.q.opens:
			r.q.opens = true
			return r.beginAt(i)
		}
		// Prompts are opened in order: the oldest one's turn began without a receipt, and this one was taken into it.
		if err := r.beginNext(); err != nil {
			return err
		}
		return r.join(ctx, i-1)
	}
	return nil
}

// join moves what a waiting prompt stands for into the running exchange: its rows are claimed for that exchange, are answered
// and acked with it.
func (r *Runner) join(ctx context.Context, i int) error {
	w := r.waiting[i]
	r.waiting = append(r.waiting[:i:i], r.waiting[i+1:]...)
	r.board.queue(len(r.waiting), r.opt.Now())
	// What the other has had is noted for this one first: a crash in between must not lead to a second nudge or a repeated message.
	marks := map[string]string{}
	unnoted := r.running.Nudged() && len(r.running.Rows()) == 0 // nobody asked for it, so there was nothing to run again
	if unnoted || w.exchange.Nudged() && !r.running.Nudged() {
		marks[nudgedKey(r.running.ID())] = "1"
	}
	if origins := w.exchange.Origins(); len(origins) > 0 {
		marks[joinedKey(r.running.ID())] = strings.Join(append(origins, r.running.Joined()...), " ")
	}
	if len(marks) > 0 {
		if _, err := r.opt.Mailbox.Finish(ctx, mailbox.Finish{State: marks}); err != nil {
			return fmt.Errorf("note what is joined: %w", err)
		}
	}
	if ids := w.exchange.IDs(); len(ids) > 0 {
		if err := r.opt.Mailbox.Claim(ctx, r.running.ID(), ids); err != nil {
			return fmt.Errorf("claim follow-ups for the running exchange: %w", err)
		}
	}
	if forget := notesOf(w.exchange); len(forget) > 0 {
		if _, err := r.opt.Mailbox.Finish(ctx, mailbox.Finish{Forget: forget}); err != nil {
			return fmt.Errorf("forget what was joined: %w", err)
		}
	}
	r.running.Absorb(w.exchange)
	r.log.Debug("a follow-up was taken", obs.KeyExchange, r.running.ID(), obs.KeyCount, len(w.exchange.Rows()))
	return w.exchange.Step(turn.Join)
}

// ended deals with a query whose events have ended.
func (r *Runner) ended(ctx context.Context) error {
	err := r.q.Err()
	ex, lost := r.running, len(r.waiting) > 0 && r.running == nil
	r.running, r.input = nil, ""
	stopped := r.stop.exchange
	r.stop = stopping{}
	waiting := r.waiting
	r.waiting = nil
	if dropErr := r.drop(); dropErr != nil {
		return dropErr
	}
	if ctx.Err() != nil {
		r.running, r.waiting = ex, waiting // released by close
		return nil
	}
	s := r.diagnose(err, false)
	switch {
	case ex != nil && ex == stopped:
		if err := r.finish(ctx, ex, turn.Stop, mailbox.Finish{}); err != nil {
			return err
		}
	case ex != nil:
		r.log.Warn("the provider ended in the middle of a turn", obs.Error(err), obs.KeyExchange, ex.ID())
		if err := r.setback(ctx, ex, s, nil); err != nil {
			return err
		}
	case err != nil:
		r.log.Warn("the provider ended between turns", obs.Error(err))
	}
	for i, w := range waiting {
		if lost && i == 0 { // it was about to begin, and must not crash the provider for ever
			if err := r.setback(ctx, w.exchange, s, nil); err != nil {
				return err
			}
			continue
		}
		if err := r.later(w.exchange); err != nil {
			return err
		}
	}
	return nil
}

// later puts an exchange that is with the provider no more at the end of the backlog.
func (r *Runner) later(ex *turn.Exchange) error {
	r.backlog = append(r.backlog, retry{exchange: ex})
	return ex.Step(turn.Again)
}
