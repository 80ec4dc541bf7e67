package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/turn"
)

// take deals with a batch: broken rows fail alone, answers go to who waits for them, /stop and other commands are obeyed, tasks
// with a script wait for it, and the rest is asked or, while a turn runs, pushed.
func (r *Runner) take(ctx context.Context, batch sqlite.Batch) error {
	if len(batch.Broken) > 0 {
		for _, b := range batch.Broken {
			r.log.Warn("a row cannot be read and is failed", obs.KeyMessage, b.ID, obs.KeyReason, b.Reason)
		}
		if _, err := r.opt.Mailbox.Finish(ctx, mailbox.Finish{Failed: batch.Broken}); err != nil {
			return fmt.Errorf("fail broken rows: %w", err)
		}
		r.opt.Bell.Ring()
		r.look = true
	}
	if err := r.answers(ctx, batch.System); err != nil {
		return err
	}
	if len(batch.Rows) == 0 {
		return nil
	}
	r.poll = poll{pause: pollFirst}
	rows, err := r.obey(ctx, batch.Rows)
	if err != nil {
		return err
	}
	if rows, err = r.gateTasks(ctx, rows); err != nil {
		return err
	}
	full := len(batch.Rows) >= r.opt.Limit
	if rows, err = r.command(ctx, rows); err != nil || !wakes(rows) {
		return err
	}
	if r.idle() {
		crashpoint.Hit("runner.fetched")
		return r.start(ctx, rows)
	}
	if r.mayPush(rows) {
		return r.followUp(ctx, rows)
	}
	if full { // a command may stand behind the batch
		behind, err := r.opt.Mailbox.Fetch(ctx, max(r.opt.Limit, commandScan))
		if err != nil {
			return r.unreadable(ctx, fmt.Errorf("look for commands: %w", err))
		}
		if rows, err = r.obey(ctx, behind.Rows); err != nil {
			return err
		}
		_, err = r.command(ctx, rows)
		return err
	}
	return nil // looked at again when the running exchange ends
}

func wakes(rows []mailbox.InRow) bool {
	for _, row := range rows {
		if row.Trigger {
			return true
		}
	}
	return false
}

// mayPush reports whether rows may go into the running query now. Without receipts nobody could say which exchange a pushed
// row belongs to; an exchange that is run again keeps to itself.
func (r *Runner) mayPush(rows []mailbox.InRow) bool {
	return r.caps.MidTurnInput && r.caps.Receipts && r.q != nil && (r.running != nil || len(r.waiting) > 0) &&
		r.stop.exchange == nil && len(r.waiting) < maxWaiting && rows[0].Exchange == "" && !r.commanded()
}

// commanded reports whether the query runs a command, or is about to: its turn answers nothing else.
func (r *Runner) commanded() bool {
	return r.running != nil && r.running.Command() != "" || slices.ContainsFunc(r.waiting, func(a asked) bool { return a.exchange.Command() != "" })
}

// start opens an exchange over rows while nothing is under way.
func (r *Runner) start(ctx context.Context, rows []mailbox.InRow) error {
	ex, err := r.claim(ctx, rows)
	if err != nil {
		return err
	}
	return r.ask(ctx, ex, "")
}

// claim makes rows this incarnation's, durably, before any prompt is sent.
func (r *Runner) claim(ctx context.Context, rows []mailbox.InRow) (*turn.Exchange, error) {
	ex := r.exchange(id.New(id.PrefixExchange), rows, nil)
	if again := rows[0].Exchange; again != "" {
		var err error
		if ex, err = r.revive(ctx, again, rows); err != nil {
			return nil, err
		}
		r.log.Info("an exchange is run again", obs.KeyExchange, again, obs.KeyCount, len(ex.Sent()))
	}
	if err := r.opt.Mailbox.Claim(ctx, ex.ID(), ex.IDs()); err != nil {
		return nil, fmt.Errorf("claim rows: %w", err)
	}
	crashpoint.Hit("runner.claimed")
	return ex, nil
}

// revive is an exchange that an earlier incarnation has begun: with what it has sent, by itself or under the ids of those it has
// joined, and whether it has had its nudge.
func (r *Runner) revive(ctx context.Context, exchange string, rows []mailbox.InRow) (*turn.Exchange, error) {
	value, _, err := r.opt.Mailbox.StateValue(ctx, joinedKey(exchange))
	if err != nil {
		return nil, fmt.Errorf("read what the exchange has joined: %w", err)
	}
	joined := strings.Fields(value)
	var sent []mailbox.OutRow
	for _, origin := range append([]string{exchange}, joined...) {
		rows, err := r.opt.Mailbox.Sent(ctx, origin)
		if err != nil {
			return nil, fmt.Errorf("read what the exchange has sent: %w", err)
		}
		sent = append(sent, rows...)
	}
	ex := r.exchange(exchange, rows, sent)
	ex.SetJoined(joined)
	_, nudged, err := r.opt.Mailbox.StateValue(ctx, nudgedKey(exchange))
	if err != nil {
		return nil, fmt.Errorf("read whether the exchange was nudged: %w", err)
	}
	if nudged {
		ex.Remember()
	}
	return ex, nil
}

// followUp pushes rows into the running query. They become part of the running exchange when a receipt says that the model has
// got them within its turn, else they open the next one.
func (r *Runner) followUp(ctx context.Context, rows []mailbox.InRow) error {
	ex, err := r.claim(ctx, rows)
	if err != nil {
		return err
	}
	in, err := r.prompt(ctx, ex, "")
	if err != nil {
		r.backlog = append(r.backlog, retry{exchange: ex})
		return err
	}
	if err := r.q.Push(ctx, in); err != nil {
		if !errors.Is(err, provider.ErrEnded) {
			r.log.Warn("a follow-up was not taken over", obs.Error(err))
		}
		if err := r.opt.Mailbox.Release(ctx, ex.IDs()); err != nil {
			return fmt.Errorf("release claims: %w", err)
		}
		return ex.Step(turn.Release) // looked at again when the running exchange ends
	}
	r.board.queue(len(r.waiting)+1, r.opt.Now())
	r.waiting = append(r.waiting, asked{ex, in.ID})
	r.look = true // there may be more than one batch
	return ex.Step(turn.Prompt)
}
