package native

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/tool"
	"nanoclaw/internal/provider/native/wire"
)

// turn is one prompt being worked on.
type turn struct {
	*query
	start     int  // length of the conversation before it
	answered  bool // the model has said something that is kept
	prompt    history.Message
	model     string
	usage     provider.Usage
	last      string // the newest text of the model
	cut       int    // answers that had to be continued
	compacted bool
	guard     guard
	spending  sync.Mutex // of usage, while helpers run
}

// maxCut is how many answers in a row may be cut off.
const maxCut = 4

// Words to the model, in the user's place.
const (
	wordsBroken  = "[The connection broke here. Go on right after your last words and do not repeat them.]"
	wordsLength  = "[Your answer was cut off by its limit. Go on right after your last words and do not repeat them.]"
	wordsStopped = "[The user interrupted you here.]"
	wordsLimit   = "[The limit of steps for one turn is reached. Call no more tools: say what is done and what is not, as you would at the end of your work.]"
	wordsLoop    = "[You make the same call again and again with the same result. Call no more tools: say what you have found, what did not work and why.]"
	wordsRepeat  = "[This is the same call with the same result as before, %d times now. It will not change: do something else.]"
)

// exchange plays the turn that an input opens and tells its result.
func (q *query) exchange(in provider.Input) {
	ctx, over := q.begin()
	defer over()
	if in.ID != "" {
		q.emit(provider.Event{Kind: provider.Taken, InputID: in.ID})
	}
	t := &turn{query: q, start: q.conv.Len(), model: q.p.opt.Model}
	var err error
	if command(in) != "" {
		err = t.command(ctx, in)
	} else if t.prompt, err = q.message(in); err == nil {
		if err = q.append(t.prompt); err == nil {
			err = t.run(ctx)
		}
	}
	if q.ctx.Err() != nil { // nobody waits for a result
		return
	}
	interrupted := errors.Is(context.Cause(ctx), errInterrupted)
	e := provider.Event{Kind: provider.Result, Usage: &t.usage}
	switch {
	case interrupted:
		e.Interrupted = true
		if command(in) == "" {
			t.note(wordsStopped)
		}
	case err != nil:
		failed(&e, err)
		t.forget()
	default:
		e.Text = t.last
	}
	over()
	q.emit(e)
}

// append records a message.
func (q *query) append(m history.Message) error {
	m.At = time.Now().UTC().Truncate(time.Millisecond)
	if err := q.conv.Append(m); err != nil {
		return &wire.Error{Class: provider.ClassOther, Retryable: true, Message: err.Error(), Err: err}
	}
	q.tokens += estimate(m)
	return nil
}

// note records words in the user's place at the end of a turn.
func (t *turn) note(words string) {
	if err := t.append(history.Message{Role: history.User, Blocks: []history.Block{{Kind: history.Text, Text: words}}}); err != nil {
		t.log.Warn("the end of the turn could not be recorded", obs.Error(err))
	}
}

// forget takes a prompt back to which the model never said anything: it comes again when it is asked again, and one that no model takes
// must not stand in the way of all that follow.
func (t *turn) forget() {
	if t.answered || t.conv.Len() < t.start {
		return
	}
	if err := t.conv.Back(t.start); err != nil {
		t.log.Warn("an unanswered prompt could not be taken back", obs.Error(err))
	}
}

// run asks and works until the model has nothing more to do.
func (t *turn) run(ctx context.Context) error {
	final := false
	for step := 1; ; step++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if t.full() {
			if err := t.compact(ctx, ""); err != nil {
				return err
			}
		}
		tools := t.tools(ctx)
		answer, err := t.answer(ctx, tools, final)
		if err != nil {
			return err
		}
		calls := history.Message{Blocks: answer.Blocks}.Calls()
		if final || len(calls) == 0 {
			words := t.goOn(answer)
			if final || words == "" {
				return t.finish(answer, final)
			}
			if err := t.append(history.Message{Role: history.User, Blocks: []history.Block{{Kind: history.Text, Text: words}}}); err != nil {
				return err
			}
			continue
		}
		t.cut = 0
		blocks := t.calls(ctx, tools, calls)
		switch {
		case ctx.Err() != nil:
		case t.guard.stuck():
			blocks, final = append(blocks, history.Block{Kind: history.Text, Text: wordsLoop}), true
		case step >= t.p.opt.Steps:
			blocks, final = append(blocks, history.Block{Kind: history.Text, Text: wordsLimit}), true
		}
		if ctx.Err() == nil {
			blocks = append(blocks, t.joined()...)
		}
		if err := t.append(history.Message{Role: history.User, Blocks: blocks}); err != nil {
			return err
		}
	}
}

// joined are the inputs that came while the tools ran, and the background commands that ended.
func (t *turn) joined() []history.Block {
	var out []history.Block
	if ended := t.box.Ended(); ended != "" {
		out = append(out, history.Block{Kind: history.Text, Text: "[" + ended + "]"})
	}
	for _, in := range t.takeMore() {
		t.emit(provider.Event{Kind: provider.Taken, InputID: in.ID})
		m, err := t.message(in)
		if err != nil {
			t.log.Warn("the files of an input are left out", obs.Error(err))
			m.Blocks = []history.Block{{Kind: history.Text, Text: in.Text}}
		}
		out = append(out, m.Blocks...)
	}
	return out
}

// goOn are the words that make the model continue an answer that has no calls and is not whole; "" for a whole one.
func (t *turn) goOn(a wire.Answer) string {
	if t.cut >= maxCut || len(a.Blocks) == 0 {
		return ""
	}
	switch a.Stop {
	case wire.Broken:
		t.cut++
		return wordsBroken
	case wire.Length:
		t.cut++
		return wordsLength
	}
	return ""
}

// finish checks an answer that ends the turn.
func (t *turn) finish(a wire.Answer, final bool) error {
	switch {
	case a.Stop == wire.Refused:
		return &wire.Error{Class: provider.ClassOther, Message: "the model's provider refused to answer"}
	case a.Stop == wire.Length && !usable(a):
		return &wire.Error{Class: provider.ClassOther, Retryable: true, Message: "the model used up the limit of one answer before it said anything"}
	case t.cut >= maxCut && a.Stop != wire.Done:
		return &wire.Error{Class: provider.ClassOther, Message: fmt.Sprintf("the model's answer was cut off %d times in a row", t.cut+1)}
	case final && len(history.Message{Blocks: a.Blocks}.Calls()) > 0:
		return &wire.Error{Class: provider.ClassOther, Message: "the model does not come to an end", Err: errEndless}
	}
	return nil
}

var errEndless = errors.New("the turn was ended by its limits")

// answer asks for one answer and records it. A conversation that has become too long is summarised, once.
func (t *turn) answer(ctx context.Context, tools []tool.Tool, final bool) (wire.Answer, error) {
	for {
		r := t.request(tools)
		r.NoCalls = final
		a, err := t.ask(ctx, &t.model, r, func(text string) {
			t.last = text
			t.emit(provider.Event{Kind: provider.Text, Text: text})
		})
		t.spend(a)
		var e *wire.Error
		if errors.As(err, &e) && e.Class == provider.ClassContext && !t.compacted {
			t.log.Info("the conversation is too long for the model", obs.Error(err))
			if err := t.compact(ctx, ""); err != nil {
				return a, err
			}
			continue
		}
		if blocks := kept(a, err); len(blocks) > 0 {
			t.answered = true
			if err := t.append(history.Message{Role: history.Assistant, Blocks: blocks}); err != nil {
				return a, err
			}
		}
		if err == nil {
			t.compacted = false
			if n := a.Context(); n > 0 {
				t.tokens = n
			}
		}
		return a, err
	}
}

// kept are the blocks of an answer that go into the history. Of one that was stopped that is what was said, without the calls, which
// were never made.
func kept(a wire.Answer, err error) []history.Block {
	var out []history.Block
	said := false
	for _, b := range a.Blocks {
		if err != nil && b.Kind != history.Text {
			continue
		}
		said = said || b.Kind != history.Thinking
		out = append(out, b)
	}
	if !said {
		return nil
	}
	return out
}

func (t *turn) spend(a wire.Answer) {
	t.usage.InputTokens += a.Usage.InputTokens
	t.usage.OutputTokens += a.Usage.OutputTokens
	t.usage.CacheReadTokens += a.Usage.CacheReadTokens
	t.usage.CacheCreationTokens += a.Usage.CacheCreationTokens
}

// request is the next question to the model.
func (t *turn) request(tools []tool.Tool) wire.Request {
	r := wire.Request{
		Model: t.model, System: t.system, Messages: t.conv.Messages(), Effort: t.p.opt.Effort, Session: t.conv.ID(), Load: t.conv.Load,
	}
	for _, v := range tools {
		r.Tools = append(r.Tools, v.Tool)
	}
	return r
}

// tools of the next step: a server's list may have changed.
func (t *turn) tools(ctx context.Context) []tool.Tool {
	all := append(t.box.Tools(), t.todoTool(), t.taskTool())
	if len(t.skills) > 0 {
		all = append(all, t.skillTool())
	}
	return append(all, t.mcp.Tools(ctx)...)
}
