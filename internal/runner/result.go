package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/block"
	"nanoclaw/internal/runner/turn"
)

// result ends the provider's turn. held are rows that are decided and not yet written.
func (r *Runner) result(ctx context.Context, ex *turn.Exchange, ev provider.Event, held []mailbox.OutRow) error {
	r.loose = nil
	r.turnOver()
	r.spend(ex, ev)
	r.board.toolEnded(r.opt.Now(), "")
	stopped := r.stop.exchange == ex
	r.stop = stopping{}
	switch {
	case ev.Interrupted && stopped:
		return r.stopped(ctx, ex, held)
	case ev.Interrupted: // the interrupt was meant for the turn before
		err := r.setback(ctx, ex, setback{retryable: true, class: provider.ClassOther, err: errors.New("the turn was interrupted")}, held)
		if err == nil && len(r.waiting) > 0 { // it may have swallowed what waits in the query
			err = r.drop()
		}
		return err
	case ev.IsError:
		return r.setback(ctx, ex, r.failure(ev), held)
	}
	if ex.Command() != "" {
		return r.commandEnded(ctx, ex, ev.Text)
	}
	var items []block.Item
	if !r.caps.MidTurnText {
		items = ex.Write(ev.Text) // the result is the only door
	}
	rest := ex.End()
	bare := rest.Bare
	if r.caps.MidTurnText && !ex.Heard() {
		bare = unstreamed(ex, ev.Text)
	}
	rows, err := r.gate(ctx, ex, append(items, rest.Items...))
	if err != nil {
		return err
	}
	held = append(held, rows...)
	v := ex.Judge(bare)
	if v.Log {
		row, err := r.runLog(ex, ev.Text)
		if err != nil {
			return err
		}
		held = append(held, row...)
	}
	if v.Nudge && !stopped {
		return r.nudge(ctx, ex, bare, held)
	}
	if v.Rescue != nil {
		row, err := r.block(ctx, ex, block.Item{Fate: block.Deliver, To: v.Rescue.To, Body: v.Rescue.Body, Segment: ex.SegmentNumber()})
		if err != nil {
			return err
		}
		if row != nil {
			held = append(held, *row)
		} else if ex.Silent(bare) { // its name stands for nobody
			_, v.Fallback = ex.Asker()
		}
	}
	if v.Fallback {
		row, err := fallback(ex, bare)
		if err != nil {
			return err
		}
		held = append(held, row)
	}
	if v.Scratch {
		r.log.Info("text without an address stays inside", obs.KeyExchange, ex.ID(), obs.KeyCount, len(bare))
	}
	return r.finish(ctx, ex, turn.Complete, mailbox.Finish{Out: held, Completed: ex.IDs(), State: r.conversation()})
}

// unstreamed looks at a result's text where no text was streamed, although the provider streams: nothing of it is delivered
// from here, so that exactly one door is open (spec/runner.md section 4.6), but the model is asked once.
func unstreamed(ex *turn.Exchange, text string) string {
	p := block.New()
	items := p.Write(text)
	rest := p.End()
	for _, item := range append(items, rest.Items...) {
		if item.Fate == block.Deliver {
			ex.Lose(turn.Lost{To: item.To, Why: turn.NotStreamed, Body: item.Body})
		} else {
			ex.LoseItem(item)
		}
	}
	return rest.Bare
}

// fallback sends a twice bare answer to the person who waits for it: the one exception to the rule that only addressed text
// leaves.
func fallback(ex *turn.Exchange, text string) (mailbox.OutRow, error) {
	asker, _ := ex.Asker()
	row := mailbox.OutRow{Kind: mailbox.KindChat, Address: asker.Address, InReplyTo: asker.ID, Exchange: ex.ID(), Fallback: true}
	var err error
	row.Content, err = fitting(mailbox.ChatOut{Text: text})
	return row, err
}

// fitting encodes a message whose text is cut if it is too long for a row.
func fitting(c mailbox.ChatOut) ([]byte, error) {
	content, err := mailbox.EncodeContent(c)
	for err == nil && len(content) > mailbox.MaxContent {
		c.Text = cut(c.Text, len(c.Text)-(len(content)-mailbox.MaxContent)-len("…"))
		content, err = mailbox.EncodeContent(c)
	}
	return content, err
}

func encodeText(text string) ([]byte, error) {
	return mailbox.EncodeContent(mailbox.ChatOut{Text: text})
}

// cut shortens text to at most n bytes and says so by an ellipsis.
func cut(text string, n int) string {
	n = max(n, 0)
	for n > 0 && n < len(text) && text[n]&0xC0 == 0x80 {
		n--
	}
	return text[:min(n, len(text))] + "…"
}

// nudge asks the model, once in the exchange, to send again what did not leave.
func (r *Runner) nudge(ctx context.Context, ex *turn.Exchange, bare string, held []mailbox.OutRow) error {
	names, err := r.known(ctx)
	if err != nil {
		return err
	}
	text := r.opt.Words.Nudge(Nudge{Lost: ex.Lost(), Bare: bare != "" && !ex.Spoke() && !ex.Task(), Task: ex.Task(), Known: names})
	r.noteLost(ex, true)
	// That the exchange was nudged is durable before the model is: a crash must not lead to a second nudge.
	f := mailbox.Finish{Out: held, Usage: r.takeSpent()}
	if len(ex.Rows()) > 0 {
		f.State = map[string]string{nudgedKey(ex.ID()): "1"}
	}
	if _, err := r.opt.Mailbox.Finish(ctx, f); err != nil {
		return fmt.Errorf("write blocks: %w", err)
	}
	r.opt.Bell.Ring()
	if err := ex.Step(turn.Nudge); err != nil {
		return err
	}
	r.log.Info("the model is asked to address its answer", obs.KeyExchange, ex.ID())
	r.running, r.input = nil, ""
	in := provider.Input{ID: id.New(prefixInput), Text: text}
	if err := r.q.Push(ctx, in); err != nil {
		if !errors.Is(err, provider.ErrEnded) {
			r.log.Warn("the open query took no input; a new one is started", obs.Error(err))
		}
		if err := ex.Step(turn.Again); err != nil {
			return err
		}
		if len(ex.Rows()) == 0 {
			r.board.rest(r.opt.Now(), r.idle())
			return errors.Join(ex.Step(turn.Fail), r.drop())
		}
		// The conversation goes on in a new query, if the provider can resume it.
		if r.seen != "" {
			r.continuation = r.seen
		} else if r.continuation == "" {
			text = ""
		}
		r.backlog = append([]retry{{exchange: ex, text: text}}, r.backlog...)
		return r.drop()
	}
	r.waiting = append(r.waiting, asked{ex, in.ID})
	if len(r.waiting) == 1 && !r.receiptsOpen() {
		return r.beginNext()
	}
	return nil
}

// nudgedKey is the session state that says of an unfinished exchange that it has had its nudge.
func nudgedKey(exchange string) string { return "nudged:" + exchange }

// joinedKey is the session state that names, for an unfinished exchange, those that it has taken over and that had written something.
func joinedKey(exchange string) string { return "joined:" + exchange }

// notesOf are the keys of session state that stand for an unfinished exchange.
func notesOf(ex *turn.Exchange) (keys []string) {
	if ex.Nudged() {
		keys = append(keys, nudgedKey(ex.ID()))
	}
	if len(ex.Joined()) > 0 {
		keys = append(keys, joinedKey(ex.ID()))
	}
	return keys
}

// runLog is the row that a task's final text becomes.
func (r *Runner) runLog(ex *turn.Exchange, text string) ([]mailbox.OutRow, error) {
	if ex.Logged() {
		return nil, nil
	}
	entry := r.opt.Words.RunLog(text)
	if entry == "" {
		return nil, nil
	}
	content, err := encodeText(entry)
	return []mailbox.OutRow{{Kind: mailbox.KindTaskLog, Content: content, Exchange: ex.ID()}}, err
}

// commandEnded gives the output of a provider's command to the person who typed it.
func (r *Runner) commandEnded(ctx context.Context, ex *turn.Exchange, output string) error {
	output = strings.TrimSpace(output)
	if output == "" {
		word, _, _ := strings.Cut(ex.Command(), " ")
		output = word + " is done."
	}
	asker, _ := ex.Asker()
	row := mailbox.OutRow{Kind: mailbox.KindChat, Address: asker.Address, InReplyTo: asker.ID, Exchange: ex.ID()}
	var err error
	if row.Content, err = fitting(mailbox.ChatOut{Text: output}); err != nil {
		return err
	}
	return r.finish(ctx, ex, turn.Complete, mailbox.Finish{Out: []mailbox.OutRow{row}, Completed: ex.IDs(), State: r.conversation()})
}

// spend notes what a result has cost, also that of a failed one.
func (r *Runner) spend(ex *turn.Exchange, ev provider.Event) {
	if ev.Usage == nil {
		return
	}
	r.spent = append(r.spent, mailbox.Usage{
		Timestamp: r.opt.Now(), Exchange: ex.ID(), SeriesID: ex.Series(), Provider: r.driver().Provider.Name(), Model: r.driver().Model, Failed: ev.IsError,
		InputTokens: ev.Usage.InputTokens, OutputTokens: ev.Usage.OutputTokens, CacheReadTokens: ev.Usage.CacheReadTokens,
		CacheCreationTokens: ev.Usage.CacheCreationTokens, CostUSD: ev.Usage.CostUSD,
	})
}

// takeSpent is what is to be written with the next transaction.
func (r *Runner) takeSpent() []mailbox.Usage {
	spent := r.spent
	r.spent = nil
	return spent
}

// stopped ends an exchange that a person stopped: silent on purpose. The session goes on. What waits in the query is asked
// again in a new one, since an interrupt may have swallowed it.
func (r *Runner) stopped(ctx context.Context, ex *turn.Exchange, held []mailbox.OutRow) error {
	err := r.finish(ctx, ex, turn.Stop, mailbox.Finish{Out: held, Completed: ex.IDs(), State: r.conversation()})
	if err == nil && len(r.waiting) > 0 {
		err = r.drop()
	}
	return err
}

// conversation is the session state that makes the running conversation the one to resume. It is stored only with a turn that
// ended (spec/bugs.md RUN-13).
func (r *Runner) conversation() map[string]string {
	if r.seen == "" || r.seen == r.stored {
		return nil
	}
	return map[string]string{r.stateKey(): r.seen}
}

// finish ends an exchange: its last rows, its acks and the conversation are one transaction. The exchange may be the running
// one or one that is not with the provider.
func (r *Runner) finish(ctx context.Context, ex *turn.Exchange, on turn.Event, f mailbox.Finish) error {
	if on == turn.Stop {
		f.Completed = ex.IDs()
	}
	if len(ex.Rows()) > 0 {
		f.Forget = append(f.Forget, notesOf(ex)...)
	}
	f.Usage, f.State = r.takeSpent(), r.noted(ex, on, f.State)
	crashpoint.Hit("runner.finish")
	if len(f.Out)+len(f.Completed)+len(f.Failed)+len(f.Skipped)+len(f.State)+len(f.Usage)+len(f.Forget) > 0 {
		if _, err := r.opt.Mailbox.Finish(ctx, f); err != nil {
			return fmt.Errorf("finish exchange: %w", err)
		}
		r.opt.Bell.Ring()
		r.board.ringAt = time.Time{}
	}
	crashpoint.Hit("runner.finished")
	if v, ok := f.State[r.stateKey()]; ok {
		r.continuation, r.stored = v, v
	}
	if r.running == ex {
		r.running, r.input = nil, ""
	}
	if len(ex.Rows()) == 0 {
		r.board.rest(r.opt.Now(), r.idle())
	}
	r.look = true
	if r.opt.Rested != nil && r.idle() {
		r.opt.Rested()
	}
	return ex.Step(on)
}
