package route

import (
	"regexp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/slash"
	"nanoclaw/internal/store"
)

// Action of one wiring on one event.
type Action string

// Actions. All but Keep and Engage store nothing.
const (
	Drop    Action = "drop"
	Keep    Action = "accumulate" // stored as context; wakes nobody
	Engage  Action = "engage"
	Hold    Action = "hold"    // somebody who may is asked whether the sender is let in
	Decline Action = "decline" // the sender is told that the agent does not talk to everybody
	Refuse  Action = "refuse"  // the sender is told that the command is not theirs to give
)

// Code is a reason for machines and lists; words for people stand beside it.
type Code string

// Codes, those of spec/operator.md section 5.9 among them.
const (
	CodeEngaged    Code = "engaged"
	CodeNotWired   Code = "no_agent_wired"
	CodeNotEngaged Code = "no_agent_engaged"
	CodeStranger   Code = "unknown_sender" // the policy follows: unknown_sender_strict
	CodeScope      Code = "sender_scope_known"
	CodeBot        Code = "bot_sender"
	CodeCommand    Code = "command_without_meaning"
	CodeAdmin      Code = "command_needs_admin"
	CodeSetting    Code = "setting_unknown"
	CodeInvalid    Code = "event_invalid"
)

// Pattern of a wiring, made once for many messages. The zero Pattern is that of every message.
type Pattern struct {
	expr   *regexp.Regexp
	Broken string // why it is none: it never matches
}

// NewPattern reads the pattern of a wiring to an agent of that name.
func NewPattern(text, name string) Pattern {
	if text == "" || text == "." {
		return Pattern{}
	}
	re, err := store.CompilePattern(text, name)
	if err != nil {
		return Pattern{Broken: err.Error()}
	}
	return Pattern{expr: re}
}

// Facts are all that a decision depends on: the values of one wiring, its chat and one event.
type Facts struct {
	Policy   store.UnknownSenderPolicy
	Scope    store.SenderScope
	Mode     store.EngageMode
	Pattern  Pattern
	Ignored  store.IgnoredPolicy
	Session  store.SessionMode
	Standing store.Standing // of the sender towards this agent
	Bot      bool           // the platform says that a program wrote it
	Mention  channel.Tri
	Group    bool
	Threads  bool // threads are in force for this wiring and the event is in one
	Engaged  bool // the agent was engaged in that thread before
	Text     string
}

// Decision with the rule that made it.
type Decision struct {
	Action Action
	Code   Code
	Reason string
}

// Decide is pure. Nothing of a stranger is stored, not even as context (spec/host.md I8); what a stranger's message leads to
// beside that, a question or a refusal, it leads to only if it engages, so that chatter around an agent is no business of it. A
// value of a setting that this program does not know shuts the wiring.
func Decide(f Facts) Decision {
	if field := unknownSetting(f); field != "" {
		return Decision{Drop, CodeSetting, field + " has a value that this program does not know"}
	}
	engaged, why := engages(f)
	command, isCommand := slash.Find(f.Text)
	if isCommand && command.By == slash.ByNobody {
		return Decision{Drop, CodeCommand, command.Word + " has no meaning in a chat"}
	}
	gate := admit(f)
	switch {
	case !engaged && (gate.Action != Engage || isCommand || f.Ignored == store.IgnoredDrop):
		return Decision{Drop, CodeNotEngaged, why}
	case gate.Action != Engage:
		return gate
	case isCommand && command.Admin && !f.Standing.Admin():
		return Decision{Refuse, CodeAdmin, command.Word + " is for owners and admins"}
	case !engaged:
		return Decision{Keep, CodeNotEngaged, why}
	}
	return Decision{Engage, CodeEngaged, why}
}

// unknownSetting names the first setting with a value that no rule is written for.
func unknownSetting(f Facts) string {
	for _, s := range []struct {
		field string
		known bool
	}{
		{"unknown_sender_policy", store.KnownWord(f.Policy)}, {"sender_scope", store.KnownWord(f.Scope)}, {"engage_mode", store.KnownWord(f.Mode)},
		{"ignored_message_policy", store.KnownWord(f.Ignored)}, {"session_mode", store.KnownWord(f.Session)},
	} {
		if !s.known {
			return s.field
		}
	}
	return ""
}

// admit is the access gate: Engage is "may", anything else what is done instead (spec/host.md sections 7.3, 8.1; RTE-6).
func admit(f Facts) Decision {
	stranger := CodeStranger + Code("_"+f.Policy)
	switch {
	case f.Standing.Access():
		return Decision{Action: Engage}
	case f.Bot:
		return Decision{Drop, CodeBot, "the sender is a program that is not known here"}
	case f.Policy == store.Public && f.Scope == store.ScopeAll:
		return Decision{Action: Engage}
	case f.Policy == store.Public:
		return Decision{Drop, CodeScope, "the wiring takes known senders only"}
	case f.Policy == store.RequestApproval:
		return Decision{Hold, stranger, "the sender is not known here; an owner or admin is asked"}
	case f.Policy == store.DeclineNotify && !f.Group:
		return Decision{Decline, stranger, "the sender is not known here and is told so"}
	}
	return Decision{Drop, stranger, "the sender is not known here"}
}

// engages says whether the message is for the agent (spec/host.md section 7.2). A mention does not engage a pattern (section
// 25.1 and RTE-3: decided so, docs/decisions.md).
func engages(f Facts) (bool, string) {
	addressed := f.Mention == channel.Yes || !f.Group
	switch f.Mode {
	case store.EngagePattern:
		switch {
		case f.Pattern.Broken != "":
			return false, "the wiring's pattern is broken"
		case f.Pattern.expr == nil:
			return true, "every message engages"
		case f.Pattern.expr.MatchString(f.Text):
			return true, "the pattern matches"
		}
		return false, "the pattern does not match"
	case store.EngageMention, store.EngageSticky:
		switch {
		case addressed:
			return true, "the agent was addressed"
		case f.Mode == store.EngageSticky && f.Threads && f.Engaged:
			return true, "the agent was addressed in this thread before"
		}
		return false, "the agent was not addressed"
	}
	return false, "the wiring's engage mode is not one this program knows"
}

// threadsInForce says whether a wiring knows threads: a wiring can switch them off, never on where the channel has none
// (spec/channels.md section 2.20).
func threadsInForce(caps channel.Caps, wiring *bool) bool {
	return caps.Threads && (wiring == nil || *wiring)
}

// conversation is the key of the session an event belongs to, and the chat and thread the session is of (spec/host.md sections
// 7.5 and 7.9). thread is empty unless threads are in force.
func conversation(w store.Wiring, chat store.MessagingGroup, thread string) (key string, of store.Sticky) {
	agent := string(w.AgentGroupID)
	if w.SessionMode == store.ModeAgentShared {
		return agent, store.Sticky{}
	}
	key, of.Chat = agent+"|"+string(chat.ID), chat.ID
	if thread != "" && (chat.IsGroup || w.SessionMode == store.ModePerThread) {
		return key + "|" + thread, store.Sticky{Chat: chat.ID, Thread: thread}
	}
	return key, of
}

// Events of a chat.
type chatAction string

const (
	chatRoute    chatAction = "route"    // its wirings decide
	chatSilent   chatAction = "silent"   // nothing is written anywhere
	chatRecord   chatAction = "record"   // counted as dropped
	chatHold     chatAction = "hold"     // counted as dropped, and an owner is asked
	chatRegister chatAction = "register" // kept as a new chat, then as hold
)

// chatFacts are what is known of an event's chat.
type chatFacts struct {
	Known     bool // there is a row
	Wired     bool
	Denied    bool // the owner refused the chat; a wiring lifts that
	Strict    bool // no outbound of any kind (RTE-8)
	Addressed bool // the event is for us: a direct message or a mention
	Bot       bool
}

// decideChat is pure: spec/host.md section 7.1 steps 3 to 5. Chatter of a chat that nobody connected leaves no trace.
func decideChat(f chatFacts) chatAction {
	switch {
	case f.Wired:
		return chatRoute
	case !f.Addressed, f.Bot, f.Denied:
		return chatSilent
	case !f.Known:
		return chatRegister
	case f.Strict:
		return chatRecord
	}
	return chatHold
}
