package route

import (
	"regexp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/slash"
)

// Action of one wiring on one event.
type Action string

// Actions.
const (
	Drop   Action = "drop"
	Keep   Action = "accumulate" // stored as context; wakes nobody
	Engage Action = "engage"
)

// Facts are all that a decision depends on: the values of one wiring, its chat and one event.
type Facts struct {
	Policy  string // unknown_sender_policy of the chat
	Scope   string // sender_scope of the wiring
	Access  bool   // the sender may talk to this agent
	Admin   bool   // the sender is an owner or an admin of this agent
	Mode    string // engage_mode
	Pattern string
	Ignored string // ignored_message_policy
	Mention channel.Tri
	Group   bool
	Text    string
}

// Decision with the rule that made it.
type Decision struct {
	Action Action
	Reason string
}

// Decide is pure. The gate comes first: a stranger's text is not stored, not even as context (spec/host.md I8). An unknown
// value of any setting closes the door.
func Decide(f Facts) Decision {
	if !f.Access {
		switch {
		case f.Policy == "public" && f.Scope == "all":
		case f.Policy == "public" && f.Scope == "known":
			return Decision{Drop, "the wiring takes known senders only"}
		case f.Policy == "strict", f.Policy == "request_approval", f.Policy == "decline_notify":
			return Decision{Drop, "the sender is not known here"}
		default:
			return Decision{Drop, "the chat's policy is not one this program knows"}
		}
	}
	if c, ok := slash.Find(f.Text); ok {
		switch {
		case c.By == slash.ByNobody:
			return Decision{Drop, c.Word + " has no meaning in a chat"}
		case c.Admin && !f.Admin:
			return Decision{Drop, c.Word + " is for owners and admins"}
		}
	}
	engaged, reason := engages(f)
	if engaged {
		return Decision{Engage, reason}
	}
	if f.Ignored == "accumulate" {
		return Decision{Keep, reason}
	}
	return Decision{Drop, reason}
}

func engages(f Facts) (bool, string) {
	switch f.Mode {
	case "pattern":
		if f.Pattern == "" || f.Pattern == "." {
			return true, "every message engages"
		}
		re, err := regexp.Compile(f.Pattern)
		if err != nil {
			return false, "the wiring's pattern is broken"
		}
		if re.MatchString(f.Text) {
			return true, "the pattern matches"
		}
		return false, "the pattern does not match"
	case "mention", "mention-sticky":
		if f.Mention == channel.Yes || !f.Group {
			return true, "the agent was addressed"
		}
		return false, "the agent was not addressed"
	}
	return false, "the wiring's engage mode is not one this program knows"
}
