package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/memory"
	"nanoclaw/internal/runner/prompt"
	"nanoclaw/internal/runner/turn"
)

// words are the loop's words, with the names of the session's destinations.
type words struct {
	box    *sqlite.Runner
	name   string // of the agent
	root   string
	zone   *time.Location
	memory string   // folder of the agent's memory; empty: it has none
	dirs   []string // further folders
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
	return runner.Prompt{Text: text, Attachments: prompt.Attachments(rows, w.root)}, failed
}

func (w words) Instructions(ctx context.Context) (string, error) {
	all, err := w.box.Destinations(ctx)
	if err != nil {
		return "", fmt.Errorf("read destinations: %w", err)
	}
	home, err := w.box.Routing(ctx)
	if err != nil {
		return "", fmt.Errorf("read routing: %w", err)
	}
	env := prompt.AddendumEnv{Name: w.name, Destinations: all, Dirs: w.dirs}
	if series, ok := strings.CutPrefix(home.ThreadID, mailbox.TaskThread); ok {
		env.Task = &prompt.TaskEnv{SeriesID: series}
	}
	if w.memory != "" {
		env.Memory = memory.Section(w.memory)
	}
	return prompt.Addendum(env), nil
}

// Compaction says how a long conversation is to be summarised. Names that cannot be read at the moment are left out.
func (w words) Compaction(ctx context.Context) string {
	all, err := w.box.Destinations(ctx)
	home, homeErr := w.box.Routing(ctx)
	if err != nil || homeErr != nil {
		all = nil
	}
	names := make([]string, 0, len(all))
	for _, d := range all {
		names = append(names, d.Name)
	}
	return prompt.Compaction(names, strings.HasPrefix(home.ThreadID, mailbox.TaskThread))
}

func (w words) Moved(before, after []mailbox.Destination) string { return prompt.Moved(before, after) }

func (w words) RunLog(text string) string { return prompt.RunLog(text) }

func (w words) Nudge(n runner.Nudge) string {
	if n.Task {
		blocks := make([]prompt.TaskBlock, 0, len(n.Lost))
		for _, l := range n.Lost {
			blocks = append(blocks, prompt.TaskBlock{To: l.To, Body: l.Body})
		}
		return prompt.TaskNudge(blocks, n.Known)
	}
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

// extraDirs are the folders below extra, by name; a link to a folder counts, a file does not.
func (p paths) extraDirs() []string {
	entries, err := os.ReadDir(p.extra)
	if err != nil {
		return nil // none was mounted
	}
	var dirs []string
	for _, e := range entries {
		path := filepath.Join(p.extra, e.Name())
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			dirs = append(dirs, path)
		}
	}
	return dirs
}

func (w words) StandIn(instead, answers string, class provider.Class, resetsAt time.Time) string {
	return prompt.StandIn(instead, answers, class, resetsAt, w.zone)
}
