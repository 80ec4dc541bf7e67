package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/wire"
	"nanoclaw/internal/slash"
)

const (
	largeWindow = 200_000
	reserve     = 20_000
	// shrinks is how often what is to be summarised is made smaller when it is too long even for that.
	shrinks = 5
)

const wordsSummary = `[The conversation is about to exceed what you can hold. Everything before your next message will be replaced by what you write now. ` +
	`Write it for yourself, in full sentences, without calling tools: who the people are and what they want, what was decided and why, what you have done and ` +
	`found (paths, names, numbers, commands that worked), what has failed, what is still open and what you were doing just now. Leave out what is of no use ` +
	`any more. Write no message to anybody.]`

// limit is how many tokens the conversation may have before it is summarised.
func (q *query) limit() int64 {
	if q.window > largeWindow {
		return q.window - reserve
	}
	return q.window - q.window/5
}

// full reports whether the conversation should be summarised before the next question. One that is nothing but a summary and a prompt is
// not.
func (t *turn) full() bool { return t.tokens > t.limit() && t.conv.Len() > 2 }

// compact replaces the conversation by a summary that the model writes, and the prompt of the running turn.
func (t *turn) compact(ctx context.Context, hint string) error {
	t.compacted = true
	t.emit(provider.Event{Kind: provider.Progress, Message: "the conversation is being summarised"})
	before := t.conv.Messages()
	running := len(t.prompt.Blocks) > 0
	rest := before
	if running && !t.answered && len(before) > 0 { // the prompt itself need not be summarised
		rest = history.Repair(without(before, t.prompt))
	}
	var summary string
	if len(rest) > 0 {
		var err error
		if summary, err = t.summary(ctx, rest, hint); err != nil {
			return err
		}
		t.archive(before)
	}
	text := "[This conversation was longer. What was before:]\n\n" + summary
	if list := t.todoText(); list != "" {
		text += "\n\n[Your list:]\n" + list
	}
	replace := []history.Message{{Role: history.User, At: time.Now().UTC(), Blocks: []history.Block{{Kind: history.Text, Text: text}}}}
	if running {
		prompt := t.prompt
		if t.answered {
			prompt.Blocks = append([]history.Block{{Kind: history.Text, Text: "[You are still working on this:]"}}, prompt.Blocks...)
		}
		replace = append(replace, prompt)
	}
	if err := t.conv.Compact(replace); err != nil {
		return &wire.Error{Class: provider.ClassOther, Retryable: true, Message: err.Error(), Err: err}
	}
	t.start, t.tokens = 1, 0
	for _, m := range replace {
		t.tokens += estimate(m)
	}
	t.emit(provider.Event{Kind: provider.Compacted})
	return nil
}

// without drops the last message's blocks that are the prompt's.
func without(all []history.Message, prompt history.Message) []history.Message {
	out := append([]history.Message(nil), all...)
	last := &out[len(out)-1]
	if n := len(last.Blocks) - len(prompt.Blocks); n >= 0 {
		last.Blocks = last.Blocks[:n:n]
	}
	return out
}

// summary asks the model. What is too long even for that is made smaller.
func (t *turn) summary(ctx context.Context, messages []history.Message, hint string) (string, error) {
	words := wordsSummary
	if f := t.p.opt.Compaction; f != nil {
		if more := strings.TrimSpace(f()); more != "" {
			words += "\n\n" + more
		}
	}
	if hint != "" {
		words += "\n[Above all: " + hint + "]"
	}
	for n := 0; ; n++ {
		r := t.request(t.tools(ctx))
		r.NoCalls = true
		r.Messages = history.Repair(append(append([]history.Message(nil), messages...),
			history.Message{Role: history.User, Blocks: []history.Block{{Kind: history.Text, Text: words}}}))
		a, err := t.ask(ctx, &t.model, r, nil)
		t.spend(a)
		var e *wire.Error
		if errors.As(err, &e) && e.Class == provider.ClassContext && n < shrinks {
			messages = smaller(messages, n)
			continue
		}
		if err != nil {
			return "", err
		}
		text := history.Message{Blocks: a.Blocks}.Plain()
		if strings.TrimSpace(text) == "" {
			return "", &wire.Error{Class: provider.ClassContext, Message: "the model wrote no summary of the conversation"}
		}
		return text, nil
	}
}

// smaller leaves out results of tools and files first, then the older half, again and again.
func smaller(in []history.Message, n int) []history.Message {
	const keep = 500
	out := make([]history.Message, 0, len(in))
	if n > 0 {
		in = in[len(in)/2:]
	}
	for _, m := range in {
		blocks := make([]history.Block, 0, len(m.Blocks))
		for _, b := range m.Blocks {
			switch {
			case b.Kind == history.File:
				continue
			case b.Kind == history.Result && len(b.Text) > keep, n > 1 && b.Kind == history.Text && len(b.Text) > keep*4:
				b.Text = clip(b.Text, keep) + " [left out]"
			}
			blocks = append(blocks, b)
		}
		m.Blocks = blocks
		out = append(out, m)
	}
	return out
}

// archive writes what people and the model said into the agent's folder. A failure is only logged.
func (t *turn) archive(messages []history.Message) {
	var b strings.Builder
	now := time.Now()
	fmt.Fprintf(&b, "# Conversation up to %s\n", now.Format("2 January 2006, 15:04"))
	for _, m := range messages {
		text := m.Plain()
		if text == "" {
			continue
		}
		who := "User"
		if m.Role == history.Assistant {
			who = "Assistant"
		}
		fmt.Fprintf(&b, "\n**%s**: %s\n", who, clip(text, 2000))
	}
	dir := filepath.Join(t.in.Cwd, "conversations")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = writeNew(filepath.Join(dir, now.Format("2006-01-02")+"-conversation-"+now.Format("1504")), ".md", b.String())
	}
	if err != nil {
		t.log.Warn("the conversation could not be archived", obs.Error(err))
	}
}

// writeNew writes a file under a name that nothing has yet.
func writeNew(name, ext, text string) error {
	const most = 1000
	for n := 1; ; n++ {
		path := name + ext
		if n > 1 {
			path = fmt.Sprintf("%s-%d%s", name, n, ext)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) && n < most {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		return errors.Join(err, f.Close())
	}
}

// command runs a command of a person; what it says is the turn's text.
func (t *turn) command(ctx context.Context, in provider.Input) error {
	n := len(t.conv.Messages())
	switch command(in) {
	case slash.Context:
		t.last = fmt.Sprintf("About %d of %d tokens are used, by %d messages.", t.tokens, t.window, n)
	case slash.Compact:
		if n == 0 {
			t.last = "There is nothing to summarise yet."
			return nil
		}
		_, hint, _ := strings.Cut(strings.TrimSpace(in.Text), " ")
		before := t.tokens
		if err := t.compact(ctx, strings.TrimSpace(hint)); err != nil {
			return err
		}
		t.log.Info("the conversation was summarised", slog.Int(obs.KeyMessages, n))
		t.last = fmt.Sprintf("%d messages are summarised: about %d tokens instead of %d.", n, t.tokens, before)
	}
	return nil
}
