package runner

import (
	"context"
	"encoding/json"
	"fmt"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/runner/turn"
)

// maxScripts run at the same time.
const maxScripts = 3

// scripted is a task whose script has ended.
type scripted struct {
	row  mailbox.InRow // with Exchange
	wake bool
	data json.RawMessage
	err  error
}

// gateTasks takes tasks with a script out of a batch. Each is claimed as an exchange of its own and reaches the model only
// when its script has said so, on whatever way it came (spec/bugs.md RUN-5; spec/runner.md section 3.7). Scripts run beside
// the loop, a few at a time.
func (r *Runner) gateTasks(ctx context.Context, rows []mailbox.InRow) ([]mailbox.InRow, error) {
	var rest []mailbox.InRow
	for _, row := range rows {
		script := scriptOf(row)
		if script == "" {
			rest = append(rest, row)
			continue
		}
		again := row.Exchange != ""
		if err := r.separate(ctx, &row, len(rows) > 1); err != nil {
			return nil, err
		}
		if err := r.opt.Mailbox.Claim(ctx, row.Exchange, []string{row.ID}); err != nil {
			return nil, fmt.Errorf("claim a task: %w", err)
		}
		now := r.opt.Now()
		r.beat(now) // scripts are signs of life, also before the provider has given one (spec/runner.md W29)
		r.board.asked(now)
		r.look = true // for what it kept out of the batch
		r.gated[row.ID] = again
		r.side.Go(func() { r.runScript(r.beside, row, script) })
	}
	return rest, nil
}

// separate makes a task that is to wait for its script an exchange of its own. One that shared an exchange before a restart keeps
// what that has sent: it is not sent again.
func (r *Runner) separate(ctx context.Context, row *mailbox.InRow, shared bool) error {
	before := row.Exchange
	if before != "" && !shared {
		return nil
	}
	row.Exchange = id.New(id.PrefixExchange)
	if before == "" {
		return nil
	}
	joined, _, err := r.opt.Mailbox.StateValue(ctx, joinedKey(before))
	if err != nil {
		return fmt.Errorf("read what the exchange has joined: %w", err)
	}
	note := mailbox.Finish{State: map[string]string{joinedKey(row.Exchange): before + " " + joined}}
	if _, err := r.opt.Mailbox.Finish(ctx, note); err != nil {
		return fmt.Errorf("note where a task comes from: %w", err)
	}
	return nil
}

// scriptOf is the script of a task; empty: it has none.
func scriptOf(row mailbox.InRow) string {
	if row.Kind != mailbox.KindTask {
		return ""
	}
	var c struct {
		Script json.RawMessage `json:"script"`
	}
	var script string
	if json.Unmarshal(row.Content, &c) != nil || json.Unmarshal(c.Script, &script) != nil {
		return ""
	}
	return script
}

func (r *Runner) runScript(ctx context.Context, row mailbox.InRow, script string) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return
	}
	s := scripted{row: row}
	if r.opt.Script == nil {
		s.err = fmt.Errorf("scripts cannot be run here")
	} else {
		s.wake, s.data, s.err = r.opt.Script(ctx, row.ID, script)
	}
	select {
	case r.scripts <- s:
	case <-ctx.Done():
	}
}

// scriptEnded asks the model about a task whose script wants that, and finishes any other.
func (r *Runner) scriptEnded(ctx context.Context, s scripted) error {
	delete(r.gated, s.row.ID)
	r.beat(r.opt.Now())
	ex, err := r.revive(ctx, s.row.Exchange, []mailbox.InRow{s.row})
	if err != nil {
		return err
	}
	switch {
	case s.err != nil:
		r.log.Warn("the script of a task has failed; the task is skipped", obs.KeyMessage, s.row.ID, obs.Error(s.err))
		return r.finish(ctx, ex, turn.Fail, mailbox.Finish{Skipped: []mailbox.Failure{{ID: s.row.ID, Reason: "its script: " + s.err.Error()}}})
	case !s.wake:
		r.log.Info("the script of a task has nothing for the agent", obs.KeyMessage, s.row.ID)
		return r.finish(ctx, ex, turn.Complete, mailbox.Finish{Completed: ex.IDs()})
	}
	row, err := withOutput(s.row, s.data)
	if err != nil {
		return r.finish(ctx, ex, turn.Fail, mailbox.Finish{Skipped: []mailbox.Failure{{ID: s.row.ID, Reason: err.Error()}}})
	}
	if ex, err = r.revive(ctx, row.Exchange, []mailbox.InRow{row}); err != nil {
		return err
	}
	r.backlog = append(r.backlog, retry{exchange: ex})
	return nil
}

// withOutput is the task with what its script has found.
func withOutput(row mailbox.InRow, data json.RawMessage) (mailbox.InRow, error) {
	var content map[string]json.RawMessage
	if err := json.Unmarshal(row.Content, &content); err != nil {
		return row, fmt.Errorf("read the task: %w", err)
	}
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	content["scriptOutput"] = data
	delete(content, "script")
	var err error
	row.Content, err = mailbox.EncodeContent(content)
	return row, err
}
