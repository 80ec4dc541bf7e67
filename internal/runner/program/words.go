package program

import (
	"context"
	"fmt"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/prompt"
	"nanoclaw/internal/runner/turn"
)

// words are the loop's words, with the names of the session's destinations.
type words struct {
	box  *sqlite.Runner
	name string // of the agent
	root string
	zone *time.Location
}

func (w words) Prompt(ctx context.Context, rows []mailbox.InRow, sent []mailbox.OutRow) (runner.Prompt, error) {
	var failed error
	text := prompt.Render(rows, prompt.Env{
		Zone: w.zone, Now: time.Now(), Root: w.root, Sent: sent,
		Name: func(a mailbox.Address) (string, bool) {
			d, ok, err := w.box.DestinationFor(ctx, a)
			if err != nil {
				failed = fmt.Errorf("look destination up: %w", err)
			}
			return d.Name, ok
		},
	})
	return runner.Prompt{Text: text}, failed
}

func (w words) Instructions(ctx context.Context) (string, error) {
	all, err := w.box.Destinations(ctx)
	if err != nil {
		return "", fmt.Errorf("read destinations: %w", err)
	}
	return prompt.Addendum(prompt.AddendumEnv{Name: w.name, Destinations: all}), nil
}

func (w words) Moved(before, after []mailbox.Destination) string { return "" }

func (w words) RunLog(text string) string { return text }

func (w words) Nudge(n runner.Nudge) string {
	u := prompt.Undelivered{Bare: n.Bare, Known: n.Known}
	for _, l := range n.Lost {
		u.Blocks = append(u.Blocks, prompt.Block{To: l.To, Reason: reason(l.Why)})
	}
	return prompt.Nudge(u)
}

func reason(w turn.Why) prompt.Reason {
	switch w {
	case turn.UnknownDestination:
		return prompt.Unknown
	case turn.NotClosed:
		return prompt.Unclosed
	case turn.TooLarge:
		return prompt.TooLarge
	case turn.Hidden:
		return prompt.Hidden
	}
	return prompt.Unsent
}

func (w words) Notice(class provider.Class, resetsAt time.Time) string {
	return prompt.Notice(class, resetsAt, w.zone)
}
