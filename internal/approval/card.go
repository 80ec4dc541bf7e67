package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// more is the value of the option that shows the next agents.
const more = "more"

// What a card shows once it counts no more and nobody decided with it.
const (
	expired = "Expired: nobody decided in time."
	turned  = "The other agents are on the next card."
)

// agentsPerCard of a list that is too long for one: two options are taken by "more" and "no".
const agentsPerCard = 8

// card is what a person is asked about an approval.
func (s *Service) card(ctx context.Context, a store.Approval, page int) (title, text string, options []mailbox.Option, err error) {
	chat, err := s.opt.Store.MessagingGroupByID(ctx, a.Chat)
	if err != nil {
		return "", "", nil, err
	}
	who, first := person(a.SenderName, string(a.Sender)), ""
	if held, err := s.opt.Store.Held(ctx, a.ID); err == nil {
		if m, err := decode(held.Event); err == nil {
			if first = quoted(m.Text, 200); first == "" {
				first = "(no text)"
			}
		}
	} else if !errors.Is(err, store.ErrNotFound) {
		return "", "", nil, err
	}
	if a.Action == store.ChannelsRegister {
		title, text = "New chat", fmt.Sprintf("%s wrote in %s, where no agent listens:\n\n%s\n\nConnect an agent to this chat?", who, place(chat), first)
		if !chat.IsGroup {
			title, text = "New direct message", fmt.Sprintf("%s wrote to me in %s, where no agent listens:\n\n%s\n\nConnect them to an agent?", who, place(chat), first)
		}
		options, err = s.agents(ctx, page)
		return title, text, append(options, option("No", store.ChoiceReject)), err
	}
	names, err := s.names(ctx, a.Agents)
	if err != nil {
		return "", "", nil, err
	}
	text = fmt.Sprintf("%s wrote in %s and is not known there:\n\n%s\n\nLet them talk to %s?", who, place(chat), first, names)
	return "New sender", text, []mailbox.Option{option("Allow", store.ChoiceApprove), option("Deny", store.ChoiceReject), option("Block", store.ChoiceBlock)}, nil
}

func option(label, value string) mailbox.Option {
	return mailbox.Option{Label: label, SelectedLabel: label, Value: value}
}

// agents that a chat can be connected to, one page of them.
func (s *Service) agents(ctx context.Context, page int) ([]mailbox.Option, error) {
	all, err := s.opt.Store.AgentGroups(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b store.AgentGroup) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Folder, b.Folder))
	})
	same := map[string]int{}
	for _, g := range all {
		same[cut(g.Name, 60)]++
	}
	options := make([]mailbox.Option, 0, len(all))
	for _, g := range all {
		name := cut(g.Name, 60)
		if same[name] > 1 {
			name += " (" + g.Folder + ")"
		}
		options = append(options, option("Connect to "+name, store.ChoiceConnect+string(g.ID)))
	}
	if len(options) <= agentsPerCard+1 {
		return options, nil
	}
	from := min(page*agentsPerCard, len(options))
	options = options[from:]
	if len(options) > agentsPerCard {
		options = append(options[:agentsPerCard:agentsPerCard], option("Other agents…", more))
	}
	return options, nil
}

// names of agents in a sentence.
func (s *Service) names(ctx context.Context, agents []id.AgentGroup) (string, error) {
	names := make([]string, 0, len(agents))
	for _, id := range agents {
		g, err := s.opt.Store.AgentGroup(ctx, id)
		if err != nil {
			return "", err
		}
		names = append(names, cut(g.Name, 60))
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1], nil
	}
	return strings.Join(names, ""), nil
}

// outcome is what cards show once somebody has decided.
func (s *Service) outcome(ctx context.Context, value string, agents []id.AgentGroup, by string) (string, error) {
	name := ""
	if u, err := s.opt.Store.User(ctx, id.User(by)); err == nil {
		name = u.DisplayName
	}
	who := " by " + person(name, by) + "."
	switch {
	case value == store.ChoiceApprove:
		return "Allowed" + who, nil
	case value == store.ChoiceBlock:
		return "Blocked" + who, nil
	case strings.HasPrefix(value, store.ChoiceConnect):
		names, err := s.names(ctx, agents)
		return "Connected to " + names + who, err
	}
	return "Denied" + who, nil
}

// person shows name and id: names are free to choose (spec/host.md W57).
func person(name, id string) string {
	if name = quoted(name, 60); name == "" {
		return quoted(id, 100)
	}
	return name + " (" + quoted(id, 100) + ")"
}

func place(chat store.MessagingGroup) string { return person(chat.Name, chat.PlatformID) }

// quoted is a stranger's words as a part of ours: one line, in a code span, so that nothing in it is taken for markup or for our own
// words; empty if nothing can be read.
func quoted(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == '`' {
			return ' '
		}
		return r
	}, s)
	if s = cut(strings.Join(strings.Fields(s), " "), most); s == "" {
		return ""
	}
	return "`" + s + "`"
}

// cut is the beginning of a text.
func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
