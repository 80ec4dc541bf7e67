package route

import (
	"context"
	"errors"
	"slices"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Plan is what becomes of one event: read from the central store, nothing done yet.
type Plan struct {
	Invalid string // why the event cannot be taken at all
	Chat    store.MessagingGroup
	Silent  bool // nobody listens in the chat and nothing is written
	Ask     bool // nobody listens in the chat; an owner is asked
	Choices []Choice

	register bool
}

// Choice of one wiring.
type Choice struct {
	store.Candidate
	Decision
	Key    string // of the session
	Thread string // that the agent sees; empty where threads are not in force

	session store.Sticky // chat and thread of the session
}

// plan reads and decides. It writes nothing.
func (r *Router) plan(ctx context.Context, info channel.Info, m channel.Inbound, g Grant) (Plan, error) {
	if reason := invalid(info, m); reason != "" {
		return Plan{Invalid: reason}, nil
	}
	p := Plan{Chat: store.MessagingGroup{ChannelType: info.Type, Instance: info.Instance, PlatformID: m.Address.PlatformID, IsGroup: m.Group,
		UnknownSenderPolicy: store.RequestApproval}}
	chat, err := r.opt.Store.MessagingGroup(ctx, info.Instance, m.Address.PlatformID)
	known := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return p, err
	}
	var all []store.Candidate
	if known {
		p.Chat = chat
		thread := ""
		if info.Caps.Threads {
			thread = m.Address.ThreadID
		}
		if all, err = r.opt.Store.Candidates(ctx, store.Lookup{Chat: chat, Sender: id.User(m.Sender.ID), ThreadID: thread, MessageID: m.ID, Extra: g.Wiring}); err != nil {
			return p, err
		}
	}
	for i := range all {
		if c := &all[i]; !c.Standing.Access() && slices.Contains(g.Members, c.AgentGroupID) {
			c.Standing = store.AsMember
		}
	}
	action := decideChat(chatFacts{Known: known, Wired: len(all) > 0, Denied: p.Chat.Denied, Strict: p.Chat.UnknownSenderPolicy == store.Strict,
		Addressed: m.Mention == channel.Yes || !m.Group, Bot: m.Sender.IsBot})
	p.Silent, p.register = action == chatSilent, action == chatRegister
	p.Ask = action == chatHold || p.register
	for _, c := range all {
		p.Choices = append(p.Choices, r.choose(info, p.Chat, c, m))
	}
	return p, nil
}

func (r *Router) choose(info channel.Info, chat store.MessagingGroup, c store.Candidate, m channel.Inbound) Choice {
	v := Choice{Candidate: c}
	if threadsInForce(info.Caps, c.Threads) {
		v.Thread = m.Address.ThreadID
	}
	facts := Facts{
		Policy: chat.UnknownSenderPolicy, Scope: c.SenderScope, Mode: c.EngageMode, Pattern: r.pattern(c.EngagePattern, c.AgentName),
		Ignored: c.IgnoredMessagePolicy, Session: c.SessionMode, Standing: c.Standing, Bot: m.Sender.IsBot, Mention: m.Mention,
		Group: m.Group || chat.IsGroup, Threads: v.Thread != "", Engaged: c.Engaged, Text: m.Text,
	}
	v.Decision = Decide(facts)
	if v.Code == CodeSetting || facts.Mode == store.EngagePattern && facts.Pattern.Broken != "" {
		r.report(string(c.ID), v.Reason, facts.Pattern.Broken)
	}
	v.Key, v.session = conversation(c.Wiring, chat, v.Thread)
	return v
}

// mostPatterns and reports that are kept.
const mostKept = 1000

// pattern is made once per text and name.
func (r *Router) pattern(text, name string) Pattern {
	if text == "" || text == "." {
		return Pattern{}
	}
	key := [2]string{text, name}
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.patterns[key]
	if !ok {
		if len(r.patterns) >= mostKept {
			clear(r.patterns)
		}
		p = NewPattern(text, name)
		r.patterns[key] = p
	}
	return p
}

// report tells of a wiring that takes nothing because of what stands in it, once until the host starts again.
func (r *Router) report(wiring, reason, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if what := wiring + reason + detail; !r.reported[what] && len(r.reported) < mostKept {
		r.reported[what] = true
		r.log.Error("a wiring takes no messages until it is put right", obs.KeySetting, wiring, obs.KeyReason, reason, obs.KeyWhat, detail)
	}
}

// worst is the choice that tells most about why an event was not stored.
func worst(all []Choice) (Choice, bool) {
	order := []Code{CodeNotEngaged, CodeCommand, CodeAdmin, CodeBot, CodeScope, CodeSetting}
	rank := func(c Choice) int {
		if at := slices.Index(order, c.Code); at >= 0 {
			return at
		}
		return len(order)
	}
	var found *Choice
	for i := range all {
		if c := &all[i]; c.Seen == "" && c.Action != Engage && c.Action != Keep && (found == nil || rank(*c) > rank(*found)) {
			found = c
		}
	}
	if found == nil {
		return Choice{}, false
	}
	return *found, true
}
