package host

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"

	"nanoclaw/internal/channel/cli"
	"nanoclaw/internal/delivery"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/route"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

// inbox is the sessions as the router needs them.
type inbox struct {
	*session.Manager
	home string
	opt  sqlite.HostOptions
}

var _ route.Inbox = inbox{}

// Attach writes a file only; what else is open of the mailbox is not touched.
func (i inbox) Attach(ctx context.Context, s store.Session, rowID, name string, r io.Reader, max int64) (string, error) {
	b, err := sqlite.Create(ctx, session.Dir(i.home, s), i.opt)
	if err != nil {
		return "", err
	}
	defer func() { _ = b.Close() }()
	return b.PutBlob(ctx, rowID, name, r, max)
}

// keeper tells the owner what waits for a decision, in the terminal.
type keeper struct {
	store    *store.Store
	delivery *delivery.Service
}

var _ route.Keeper = keeper{}

func (k keeper) Hold(ctx context.Context, h route.Held) error {
	who, where := person(h.Sender.Name, h.Sender.ID), h.Chat.PlatformID
	if h.Chat.Name != "" {
		where = shown(h.Chat.Name) + " (" + where + ")"
	}
	text := fmt.Sprintf("%s wrote in %s and was told that I do not know them.", who, where)
	switch h.Kind {
	case route.HeldChat:
		text = fmt.Sprintf("%s wrote in %s, where no agent listens. To connect it: ncl wirings create --chat %s --group AGENT", who, where, h.Chat.ID)
	case route.HeldSender:
		group := "AGENT"
		if len(h.Agents) > 0 {
			if g, err := k.store.AgentGroup(ctx, h.Agents[0]); err == nil {
				group = g.Folder
			}
		}
		text = fmt.Sprintf("%s wrote in %s and is not known there; the message was not kept. To let them in: ncl members add --user %s --group %s", who, where, quoted(h.Sender.ID), group)
	}
	return k.delivery.Say(ctx, store.Destination{Instance: cli.Type, PlatformID: ownerChat}, "hold|"+h.Key, text)
}

// person shows name and id: names are free to choose (W57).
func person(name, id string) string {
	if name == "" {
		return id
	}
	return shown(name) + " (" + id + ")"
}

// shown is a stranger's words as a part of ours: one line, quoted, no longer than a name.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == '"' || r == '`' {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return `"` + strings.TrimSpace(s) + `"`
}

// quoted is one word of a command line.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
