package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/turn"
)

// prefixInput is the prefix of the ids of prompts.
const prefixInput = "in"

// query is an open conversation with the provider. It stays open between turns.
type query struct {
	provider.Query
	cancel context.CancelFunc
	// opens: receipts were seen for prompts that opened a turn, so a turn without one is nobody's.
	opens bool
	known []mailbox.Destination // as the model was told them
}

// ask hands the prompt of a claimed exchange to the provider while nothing else is under way. An empty text is made from the
// rows. Whatever happens, the exchange is in one of the loop's lists afterwards, or has ended.
func (r *Runner) ask(ctx context.Context, ex *turn.Exchange, text string) error {
	err := r.hand(ctx, ex, text)
	if err != nil && ex.State() == turn.Claimed {
		r.backlog = append(r.backlog, retry{exchange: ex})
	}
	return err
}

func (r *Runner) hand(ctx context.Context, ex *turn.Exchange, text string) error {
	if err := r.chooseDriver(ctx); err != nil {
		return err
	}
	if err := r.rotate(ctx); err != nil {
		return err
	}
	in, err := r.prompt(ctx, ex, text)
	if err != nil {
		return err
	}
	opened := false
	if r.q != nil {
		if err := r.q.Push(ctx, in); err != nil {
			if !errors.Is(err, provider.ErrEnded) {
				r.log.Warn("the open query took no input; a new one is started", obs.Error(err))
			}
			if err := r.drop(); err != nil {
				return err
			}
		}
	}
	if r.q == nil {
		qi, err := r.queryInput(ctx, in)
		if err != nil {
			return err
		}
		known, err := r.opt.Mailbox.Destinations(ctx)
		if err != nil {
			return fmt.Errorf("read destinations: %w", err)
		}
		if err := r.open(ctx, qi, known); err != nil {
			return r.setback(ctx, ex, r.diagnose(err, true), nil)
		}
		opened = true
	}
	crashpoint.Hit("runner.prompted")
	if err := ex.Step(turn.Prompt); err != nil {
		return err
	}
	now := r.opt.Now()
	r.beat(now)
	r.board.asked(now)
	r.waiting = append(r.waiting, asked{ex, in.ID})
	if opened || !r.receiptsOpen() {
		return r.beginNext()
	}
	return nil
}

// prompt is what the provider is given for an exchange: a command, the text, or else what the rows make. Into an open
// conversation goes first what has changed about the destinations (spec/runner.md W25).
func (r *Runner) prompt(ctx context.Context, ex *turn.Exchange, text string) (provider.Input, error) {
	in := provider.Input{ID: id.New(prefixInput), Text: text}
	if in.Text == "" {
		in.Text = ex.Command()
	}
	if in.Text == "" {
		p, err := r.opt.Words.Prompt(ctx, ex.Rows(), ex.Sent())
		if err != nil {
			return in, fmt.Errorf("make prompt: %w", err)
		}
		in.Text, in.Attachments = p.Text, p.Attachments
	}
	if r.q == nil || ex.Command() != "" {
		return in, nil
	}
	now, err := r.opt.Mailbox.Destinations(ctx)
	if err != nil {
		return in, fmt.Errorf("read destinations: %w", err)
	}
	if !slices.Equal(now, r.q.known) {
		if moved := r.opt.Words.Moved(r.q.known, now); moved != "" {
			in.Text = moved + "\n\n" + in.Text
		}
		r.q.known = now
	}
	return in, nil
}

// rotatePatience bounds the look at the transcript and its archiving.
const rotatePatience = 30 * time.Second

// rotate gives up a conversation that has become too long or too old, as the provider sees it. It is called between turns.
func (r *Runner) rotate(ctx context.Context) error {
	rotator, ok := r.driver().Provider.(provider.Rotator)
	if !ok || r.continuation == "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, rotatePatience)
	reason, err := rotator.Rotate(limited, r.continuation, r.opt.Cwd)
	cancel()
	if err != nil {
		r.log.Warn("the conversation could not be looked at; it goes on", obs.Error(err))
		return nil
	}
	if reason == "" {
		return nil
	}
	r.log.Info("a new conversation is begun", obs.KeyReason, reason)
	if err := r.opt.Mailbox.DeleteState(ctx, r.stateKey()); err != nil {
		return fmt.Errorf("forget the conversation: %w", err)
	}
	r.continuation, r.stored = "", ""
	return r.drop()
}

// queryInput is what a new query starts with: it resumes the last completed turn's conversation.
func (r *Runner) queryInput(ctx context.Context, in provider.Input) (provider.QueryInput, error) {
	qi := provider.QueryInput{Input: in, Continuation: r.continuation, Cwd: r.opt.Cwd, Dirs: r.opt.Dirs}
	var err error
	if qi.Instructions, err = r.opt.Words.Instructions(ctx); err != nil {
		return qi, fmt.Errorf("make instructions: %w", err)
	}
	if r.driver().MCP != nil {
		if qi.MCP, err = r.driver().MCP(ctx); err != nil {
			return qi, err
		}
	}
	return qi, nil
}

// open starts a query. An error is the provider's.
func (r *Runner) open(ctx context.Context, in provider.QueryInput, known []mailbox.Destination) error {
	started := time.Now()
	own, cancel := context.WithCancel(ctx)
	q, err := r.driver().Provider.Query(own, in)
	if err != nil {
		cancel()
		return err
	}
	r.q, r.seen = &query{Query: q, cancel: cancel, known: known}, ""
	r.log.Debug("query opened", obs.KeyProvider, r.driver().Provider.Name(), obs.KeyResumed, in.Continuation != "", obs.Elapsed(started))
	return nil
}

// receiptsOpen reports whether a turn of this query begins with a receipt for sure.
func (r *Runner) receiptsOpen() bool { return r.caps.Receipts && r.q != nil && r.q.opens }

// beginNext makes the oldest waiting exchange the running one.
func (r *Runner) beginNext() error { return r.beginAt(0) }

func (r *Runner) beginAt(i int) error {
	w := r.waiting[i]
	r.waiting = append(r.waiting[:i:i], r.waiting[i+1:]...)
	r.board.queue(len(r.waiting), r.opt.Now())
	r.running, r.input = w.exchange, w.input
	r.adopt()
	return w.exchange.Step(turn.Begin)
}

// begin returns the exchange that the provider works on. If none runs, its next turn has just begun: that of the oldest
// waiting prompt, or one nobody asked for. Results are never counted against prompts.
func (r *Runner) begin() (*turn.Exchange, error) {
	if r.running != nil {
		return r.running, nil
	}
	if len(r.waiting) > 0 && !r.receiptsOpen() {
		err := r.beginNext()
		return r.running, err
	}
	r.running, r.input = r.exchange(id.New(id.PrefixExchange), nil, nil), ""
	r.adopt()
	r.board.work(r.opt.Now())
	r.log.Info("the provider began a turn nobody asked for", obs.KeyExchange, r.running.ID())
	return r.running, nil
}

// adopt gives the running exchange what tools wrote since the last result, before its first event was seen.
func (r *Runner) adopt() {
	for _, row := range r.loose {
		r.running.Left(row, true)
	}
	r.loose = nil
}

// drop ends the open query at once and waits until everything it started is gone. Exchanges that wait in it are asked again.
func (r *Runner) drop() error {
	q := r.q
	if q == nil {
		return nil
	}
	r.q, r.ahead, r.loose = nil, nil, nil
	r.turnOver()
	aborted := make(chan struct{})
	go func() {
		q.Abort()
		close(aborted)
	}()
	patience := time.NewTimer(abortPatience)
	defer patience.Stop()
	events, done := q.Events(), aborted
	for events != nil || done != nil {
		select {
		case _, ok := <-events:
			if !ok {
				events = nil
			}
		case <-done:
			done = nil
		case e := <-r.errands:
			e.refuse(errStopped)
		case <-patience.C:
			r.log.Error("the provider does not end; it is left alone", obs.KeyProvider, r.driver().Provider.Name())
			events, done = nil, nil
		}
	}
	q.cancel()
	r.board.toolEnded(r.opt.Now(), "")
	if r.opt.Ended != nil {
		r.opt.Ended()
	}
	waiting := r.waiting
	r.waiting = nil
	r.board.queue(0, r.opt.Now())
	for _, w := range waiting {
		if err := r.later(w.exchange); err != nil {
			return err
		}
	}
	return nil
}
