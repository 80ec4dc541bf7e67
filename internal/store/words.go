package store

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// UnknownSenderPolicy says what happens to people that no agent of a chat knows (spec/host.md section 2.4).
type UnknownSenderPolicy string

// Policies for unknown senders.
const (
	Strict          UnknownSenderPolicy = "strict"           // dropped, nobody is told
	RequestApproval UnknownSenderPolicy = "request_approval" // dropped, an owner or admin is asked
	DeclineNotify   UnknownSenderPolicy = "decline_notify"   // in a direct message a polite refusal; in a group as strict
	Public          UnknownSenderPolicy = "public"           // no check
)

// EngageMode says which messages an agent answers.
type EngageMode string

// Engage modes (spec/host.md section 2.5).
const (
	EngagePattern EngageMode = "pattern"
	EngageMention EngageMode = "mention"
	EngageSticky  EngageMode = "mention-sticky" // a mention, then every message of that thread
)

// SenderScope says whose messages a wiring takes.
type SenderScope string

// Sender scopes.
const (
	ScopeAll   SenderScope = "all"
	ScopeKnown SenderScope = "known" // those with access, also in a public chat
)

// IgnoredPolicy says what becomes of messages that engage nobody.
type IgnoredPolicy string

// Policies for messages that do not engage.
const (
	IgnoredDrop       IgnoredPolicy = "drop"
	IgnoredAccumulate IgnoredPolicy = "accumulate" // kept as context
)

// SessionMode says which conversation a message belongs to.
type SessionMode string

// Session modes.
const (
	ModeShared      SessionMode = "shared"
	ModePerThread   SessionMode = "per-thread"
	ModeAgentShared SessionMode = "agent-shared"
)

// Role of a user.
type Role string

// Roles. An owner is one everywhere; an admin everywhere or of one agent group.
const (
	RoleOwner Role = "owner"
	RoleAdmin Role = "admin"
)

// Words of every setting, as they are typed and stored.
func (UnknownSenderPolicy) Words() []UnknownSenderPolicy {
	return []UnknownSenderPolicy{Strict, RequestApproval, DeclineNotify, Public}
}

// Words lists the values.
func (EngageMode) Words() []EngageMode {
	return []EngageMode{EngagePattern, EngageMention, EngageSticky}
}

// Words lists the values.
func (SenderScope) Words() []SenderScope { return []SenderScope{ScopeAll, ScopeKnown} }

// Words lists the values.
func (IgnoredPolicy) Words() []IgnoredPolicy {
	return []IgnoredPolicy{IgnoredDrop, IgnoredAccumulate}
}

// Words lists the values.
func (SessionMode) Words() []SessionMode {
	return []SessionMode{ModeShared, ModePerThread, ModeAgentShared}
}

// Words lists the values.
func (Role) Words() []Role { return []Role{RoleOwner, RoleAdmin} }

// word is a setting with a fixed set of values.
type word[T any] interface {
	~string
	Words() []T
}

// KnownWord reports whether v is one of the values of its setting.
func KnownWord[T word[T]](v T) bool {
	for _, w := range v.Words() {
		if string(w) == string(v) {
			return true
		}
	}
	return false
}

// FieldError: a value cannot be stored. Nothing was written.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

func checkWord[T word[T]](field string, v T) error {
	if KnownWord(v) {
		return nil
	}
	all := make([]string, 0, 4)
	for _, w := range v.Words() {
		all = append(all, string(w))
	}
	return &FieldError{field, fmt.Sprintf("must be one of %s, not %q", strings.Join(all, ", "), v)}
}

// AgentName in a pattern stands for the agent's own name.
const AgentName = "{name}"

// maxPattern is the longest pattern, in bytes.
const maxPattern = 1024

// CompilePattern makes the expression of a wiring's pattern for an agent of that name (RE2: its time is linear in the text).
// The name is taken literally and, at its end, as a whole word.
func CompilePattern(pattern, name string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, &FieldError{"engage_pattern", fmt.Sprintf("is longer than %d bytes", maxPattern)}
	}
	const mark = AgentName
	if before, ok := strings.CutSuffix(pattern, mark); ok {
		pattern = strings.ReplaceAll(before, mark, nameIn(name)) + regexp.QuoteMeta(name)
		if last, _ := utf8.DecodeLastRuneInString(name); unicode.IsLetter(last) || unicode.IsDigit(last) || last == '_' {
			pattern += `(?:[^\pL\pN_]|$)`
		}
	} else {
		pattern = strings.ReplaceAll(pattern, mark, nameIn(name))
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, &FieldError{"engage_pattern", "is no regular expression (RE2): " + err.Error()}
	}
	return re, nil
}

// nameIn is a name inside a pattern.
func nameIn(name string) string {
	q := regexp.QuoteMeta(name)
	if last, _ := utf8.DecodeLastRuneInString(name); last < utf8.RuneSelf && (unicode.IsLetter(last) || unicode.IsDigit(last) || last == '_') {
		q += `\b`
	}
	return q
}
