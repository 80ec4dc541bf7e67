package runner

import (
	"context"
	"fmt"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/runner/block"
	"nanoclaw/internal/runner/turn"
)

// gate decides which blocks leave: named, closed, to a destination the session has, and not said before. It returns their
// rows, which the caller must write; they count as sent from now on.
func (r *Runner) gate(ctx context.Context, ex *turn.Exchange, items []block.Item) ([]mailbox.OutRow, error) {
	var rows []mailbox.OutRow
	for _, item := range items {
		if item.Fate != block.Deliver {
			if ex.LoseItem(item) {
				r.log.Info("a block did not leave", obs.KeyExchange, ex.ID(), obs.KeyDestination, item.To, obs.KeyReason, string(item.Fate))
			}
			continue
		}
		row, err := r.block(ctx, ex, item)
		if err != nil {
			return nil, err
		}
		if row != nil {
			ex.Left(*row, false)
			rows = append(rows, *row)
		}
	}
	return rows, nil
}

// block is the row of a block, or nil if it may not leave.
func (r *Runner) block(ctx context.Context, ex *turn.Exchange, item block.Item) (*mailbox.OutRow, error) {
	if ex.Task() {
		if !ex.RepeatsText(item.Body) { // else a tool has sent it
			ex.Lose(turn.Lost{To: item.To, Why: turn.TaskBlock, Body: item.Body})
		}
		return nil, nil
	}
	d, ok, err := r.opt.Mailbox.Destination(ctx, item.To)
	if err != nil {
		return nil, fmt.Errorf("look destination up: %w", err)
	}
	if !ok {
		r.log.Warn("a block names a destination that does not exist", obs.KeyExchange, ex.ID(), obs.KeyDestination, item.To)
		ex.Lose(turn.Lost{To: item.To, Why: turn.UnknownDestination, Body: item.Body})
		return nil, nil
	}
	row, err := r.address(ctx, ex, d)
	if err != nil {
		return nil, err
	}
	if ex.Repeats(row.Address, item.Body, item.Segment) {
		r.log.Info("a repeated block is not sent again", obs.KeyExchange, ex.ID(), obs.KeyDestination, item.To)
		return nil, nil
	}
	row.Segment = item.Segment
	if row.Content, err = mailbox.EncodeContent(mailbox.ChatOut{Text: item.Body}); err != nil {
		return nil, err
	}
	if len(row.Content) > mailbox.MaxContent {
		ex.Lose(turn.Lost{To: item.To, Why: turn.TooLarge})
		return nil, nil
	}
	return &row, nil
}

// address is a chat row to a destination: with thread and id of the message of the exchange that came from there, else of the
// newest one of that chat. Agents have no threads. ex may be nil.
func (r *Runner) address(ctx context.Context, ex *turn.Exchange, d mailbox.Destination) (mailbox.OutRow, error) {
	row := mailbox.OutRow{Kind: mailbox.KindChat, Address: d.Address()}
	var answered mailbox.InRow
	found := false
	if ex != nil {
		row.Exchange = ex.ID()
		answered, found = ex.AnsweredFrom(row.Address)
	}
	if !found {
		var err error
		if answered, found, err = r.opt.Mailbox.LatestFrom(ctx, row.Address); err != nil {
			return row, fmt.Errorf("look newest message up: %w", err)
		}
	}
	if found {
		row.InReplyTo = answered.ID
		if d.Type != mailbox.DestinationAgent {
			row.ThreadID = answered.ThreadID
		}
	}
	return row, nil
}

// write makes rows durable and wakes the host.
func (r *Runner) write(ctx context.Context, rows []mailbox.OutRow) error {
	if len(rows) == 0 {
		return nil
	}
	var err error
	if len(rows) == 1 {
		_, err = r.opt.Mailbox.Write(ctx, rows[0])
	} else {
		_, err = r.opt.Mailbox.Finish(ctx, mailbox.Finish{Out: rows})
	}
	if err != nil {
		return fmt.Errorf("write blocks: %w", err)
	}
	crashpoint.Hit("runner.block")
	r.opt.Bell.Ring()
	return nil
}

// known are the names of all destinations.
func (r *Runner) known(ctx context.Context) ([]string, error) {
	all, err := r.opt.Mailbox.Destinations(ctx)
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	names := make([]string, 0, len(all))
	for _, d := range all {
		names = append(names, d.Name)
	}
	return names, nil
}
