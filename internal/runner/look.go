package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/turn"
)

// stopWord is the command that stops the running turn.
const stopWord = "/stop"

// take deals with a batch: broken rows fail alone, /stop is obeyed, the rest is asked or, while a turn runs, pushed.
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
	if len(batch.Rows) == 0 {
		return nil
	}
	r.poll = poll{pause: pollFirst}
	rows, err := r.obey(ctx, batch.Rows)
	if err != nil || !wakes(rows) {
		return err
	}
	if r.idle() {
		crashpoint.Hit("runner.fetched")
		return r.start(ctx, rows)
	}
	if r.mayPush(rows) {
		return r.followUp(ctx, rows)
	}
	if len(rows) >= r.opt.Limit { // a /stop may stand behind the batch
		behind, err := r.opt.Mailbox.Fetch(ctx, max(r.opt.Limit, stopScan))
		if err != nil {
			return fmt.Errorf("look for stop: %w", err)
		}
		_, err = r.obey(ctx, behind.Rows)
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

// obey completes /stop rows at once and ends what they stop: the running turn, else the exchange that waits for a retry, else
// what the same chat asked before it in this batch. It returns the other rows.
func (r *Runner) obey(ctx context.Context, rows []mailbox.InRow) ([]mailbox.InRow, error) {
	var done []string
	var stop mailbox.InRow
	for _, row := range rows {
		if isStop(row) {
			done, stop = append(done, row.ID), row
		}
	}
	if done == nil {
		return rows, nil
	}
	idle := r.idle()
	var rest []mailbox.InRow
	for _, row := range rows {
		switch {
		case isStop(row):
		case idle && row.Seq < stop.Seq && row.Address == stop.Address && row.Trigger:
			done = append(done, row.ID)
		default:
			rest = append(rest, row)
		}
	}
	r.log.Info("stopped by a person", obs.KeyCount, len(done))
	if _, err := r.opt.Mailbox.Finish(ctx, mailbox.Finish{Completed: done}); err != nil {
		return nil, fmt.Errorf("complete stop: %w", err)
	}
	r.opt.Bell.Ring()
	r.look = true // rows that the taken ones kept out of the batch
	return rest, r.halt(ctx)
}

// isStop reports whether a row is the command to stop: that word alone, from a person.
func isStop(row mailbox.InRow) bool {
	if row.Kind != mailbox.KindChat && row.Kind != mailbox.KindChatSDK || !row.Trigger ||
		row.ChannelType == mailbox.ChannelAgent || row.ChannelType == mailbox.ChannelEcho {
		return false
	}
	var c struct {
		Text json.RawMessage `json:"text"`
	}
	var text string
	if json.Unmarshal(row.Content, &c) != nil || json.Unmarshal(c.Text, &text) != nil {
		return false
	}
	return strings.EqualFold(strings.TrimSpace(text), stopWord)
}

// mayPush reports whether rows may go into the running query now. Without receipts nobody could say which exchange a pushed
// row belongs to; an exchange that is run again keeps to itself.
func (r *Runner) mayPush(rows []mailbox.InRow) bool {
	return r.caps.MidTurnInput && r.caps.Receipts && r.q != nil && (r.running != nil || len(r.waiting) > 0) &&
		r.stop.exchange == nil && len(r.waiting) < maxWaiting && rows[0].Exchange == ""
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
	exchange := rows[0].Exchange
	var sent []mailbox.OutRow
	if exchange == "" {
		exchange = id.New(id.PrefixExchange)
	} else {
		var err error
		if sent, err = r.opt.Mailbox.Sent(ctx, exchange); err != nil {
			return nil, fmt.Errorf("read what the exchange has sent: %w", err)
		}
		r.log.Info("an exchange is run again", obs.KeyExchange, exchange, obs.KeyCount, len(sent))
	}
	ex := turn.New(exchange, rows, sent)
	if err := r.opt.Mailbox.Claim(ctx, exchange, ex.IDs()); err != nil {
		return nil, fmt.Errorf("claim rows: %w", err)
	}
	crashpoint.Hit("runner.claimed")
	return ex, nil
}

// followUp pushes rows into the running query. They become part of the running exchange when a receipt says that the model has
// got them within its turn, else they open the next one.
func (r *Runner) followUp(ctx context.Context, rows []mailbox.InRow) error {
	ex, err := r.claim(ctx, rows)
	if err != nil {
		return err
	}
	text, err := r.opt.Words.Prompt(ctx, rows, nil)
	if err != nil {
		r.backlog = append(r.backlog, retry{exchange: ex})
		return fmt.Errorf("make prompt: %w", err)
	}
	in := provider.Input{ID: id.New(prefixInput), Text: text}
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
