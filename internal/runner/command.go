package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/runner/turn"
	"nanoclaw/internal/slash"
)

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

func isStop(row mailbox.InRow) bool {
	c, ok := find(row)
	return ok && c.Word == slash.Stop
}

// find returns the command that a row is: one from a person, never from an agent, never context, never a copy.
func find(row mailbox.InRow, extra ...string) (slash.Command, bool) {
	if !row.Trigger || row.Kind != mailbox.KindChat && row.Kind != mailbox.KindChatSDK || !chat(row.Address) {
		return slash.Command{}, false
	}
	return slash.Find(textIn(row), extra...)
}

// textIn is the text of a chat row; empty if it has none.
func textIn(row mailbox.InRow) string {
	var c struct {
		Text json.RawMessage `json:"text"`
	}
	var text string
	if json.Unmarshal(row.Content, &c) != nil || json.Unmarshal(c.Text, &text) != nil {
		return ""
	}
	return text
}

// knownCommand finds a command that this runner or its provider can run. Any other text with a slash is an ordinary message
// (spec/runner.md W7).
func (r *Runner) knownCommand(row mailbox.InRow) (slash.Command, bool) {
	c, ok := find(row, r.caps.Commands...)
	if !ok || c.By == slash.ByNobody || c.By == slash.ByProvider && !slices.Contains(r.caps.Commands, c.Word) {
		return c, false
	}
	return c, true
}

// command obeys the commands of a batch, in order, and returns the rows that are to be asked now: those before the first command
// (spec/runner.md W8). A command that came with the rows before it waits until they are answered; one that came later
// does not: it stops the running turn if it must, and what that leaves unanswered is asked again behind it (spec/bugs.md RUN-16).
func (r *Runner) command(ctx context.Context, rows []mailbox.InRow) ([]mailbox.InRow, error) {
	for i := 0; i < len(rows); i++ {
		row := rows[i]
		c, ok := r.knownCommand(row)
		if !ok {
			continue
		}
		busy := r.running != nil || len(r.waiting) > 0
		if busy && row.Seq <= r.batch && row.Exchange == "" {
			return rows[:i], nil
		}
		if !busy && wakes(rows[:i]) && len(r.backlog) == 0 {
			r.batch = rows[len(rows)-1].Seq
			return rows[:i], nil
		}
		if busy && c.Aborts {
			if err := r.abort(ctx, c.Word); err != nil {
				return nil, err
			}
		}
		r.log.Info("a command", obs.KeyCommand, c.Word, obs.KeyMessage, row.ID)
		r.look = true // for what stands behind it
		if c.By == slash.ByProvider {
			return nil, r.native(ctx, row)
		}
		if err := r.do(ctx, c, row); err != nil {
			return nil, err
		}
		rows = slices.Delete(slices.Clone(rows), i, i+1)
		i--
	}
	return rows, nil
}

// abort ends the running turn at once; its exchange and those that wait are asked again, in their order.
func (r *Runner) abort(ctx context.Context, why string) error {
	ex := r.running
	r.running, r.input = nil, ""
	r.stop = stopping{}
	if ex == nil && len(r.waiting) == 0 {
		return nil
	}
	r.log.Info("the running turn is aborted", obs.KeyReason, why)
	behind := r.backlog
	r.backlog = nil
	if ex != nil {
		if err := r.again(ctx, ex, retry{exchange: ex}, nil, false); err != nil {
			return err
		}
	}
	err := r.drop() // puts what waits behind it
	r.backlog = append(r.backlog, behind...)
	return err
}

// native has the provider run a command: an exchange whose prompt is the command alone.
func (r *Runner) native(ctx context.Context, row mailbox.InRow) error {
	ex, err := r.claim(ctx, []mailbox.InRow{row})
	if err != nil {
		return err
	}
	ex.SetCommand(strings.TrimSpace(textIn(row)))
	return r.ask(ctx, ex, "")
}

// answer is an exchange that the runner itself answers, in words for who asked.
func (r *Runner) answer(ctx context.Context, row mailbox.InRow, words string, forget ...string) error {
	ex, err := r.claim(ctx, []mailbox.InRow{row})
	if err != nil {
		return err
	}
	content, err := mailbox.EncodeContent(mailbox.ChatOut{Text: words})
	if err != nil {
		return err
	}
	return r.finish(ctx, ex, turn.Complete, mailbox.Finish{
		Completed: ex.IDs(), Forget: forget,
		Out: []mailbox.OutRow{{Kind: mailbox.KindChat, Address: row.Address, InReplyTo: row.ID, Content: content, Exchange: ex.ID()}},
	})
}

// do runs a command of the runner itself.
func (r *Runner) do(ctx context.Context, c slash.Command, row mailbox.InRow) error {
	switch c.Word {
	case slash.Clear:
		if err := r.drop(); err != nil {
			return err
		}
		r.continuation, r.stored = "", ""
		return r.answer(ctx, row, "The conversation is cleared. I start afresh; my memory and files are as they were.", r.stateKey())
	case slash.Cost:
		all, err := r.opt.Mailbox.Usage(ctx)
		if err != nil {
			return fmt.Errorf("read usage: %w", err)
		}
		return r.answer(ctx, row, costWords(all))
	case slash.Files:
		return r.answer(ctx, row, filesWords(r.opt.Cwd))
	case slash.UploadTrace:
		return r.answer(ctx, row, r.uploadTrace(ctx))
	}
	return r.answer(ctx, row, "I do not know this command.")
}
