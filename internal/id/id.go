// Package id makes the identifiers of the system. An id is a prefix, a dash and 26 lower-case base32 characters, so it
// is safe as a file name by construction. Only the maker of an id may look inside it.
package id

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"time"
)

type (
	// User is `<channel type>:<handle>`; a colon in the handle is escaped by the adapter that made it.
	User string
	// AgentGroup is one agent identity: workspace, memory, instructions, configuration.
	AgentGroup string
	// MessagingGroup is one chat on one adapter instance.
	MessagingGroup string
	// Wiring says that an agent group listens in a messaging group.
	Wiring string
	// Session is one conversation of one agent group; it owns a mailbox.
	Session string
	// Ledger is one row of the delivery ledger.
	Ledger string
	// Approval is one act that waits for somebody's decision.
	Approval string
)

// Prefixes of generated ids.
const (
	PrefixAgentGroup     = "ag"
	PrefixMessagingGroup = "mg"
	PrefixWiring         = "mga"
	PrefixSession        = "sess"
	PrefixMessage        = "msg"
	PrefixExchange       = "ex"
	PrefixLedger         = "led"
	PrefixApproval       = "appr"
	PrefixNotice         = "sys"
)

// encoded is the length in characters of the part behind the dash.
const encoded = 26

var alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ordered keeps the byte order of what it encodes, so that ids sort by the time they were made.
var ordered = base32.NewEncoding("234567abcdefghijklmnopqrstuvwxyz").WithPadding(base32.NoPadding)

// New returns prefix + "-" + 26 characters: 48 bits of Unix milliseconds and 80 random bits. Ids of one prefix sort by
// the millisecond they were made in.
func New(prefix string) string { return newAt(prefix, time.Now()) }

func newAt(prefix string, at time.Time) string {
	var b [16]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(b[:6], ms[2:])
	_, _ = rand.Read(b[6:]) // never fails since Go 1.24
	return prefix + "-" + ordered.EncodeToString(b[:])[:encoded]
}

// Inbound is the row id of a chat message: `msg-` and 26 characters of SHA-256 over the four parts, so that a
// re-delivered event is the same row and one message fanned out to two agents is two rows (design.md section 5).
// A platform message id must not be empty: use New(PrefixMessage) for an event without one.
func Inbound(instance, platformID, platformMessageID string, group AgentGroup) string {
	return derived(PrefixMessage, instance, platformID, platformMessageID, string(group))
}

// Derived is an id that follows from another one, for effects that must be idempotent: the same parts give the same id.
func Derived(prefix string, parts ...string) string { return derived(prefix, parts...) }

func derived(prefix string, parts ...string) string {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return prefix + "-" + alphabet.EncodeToString(h.Sum(nil))[:encoded]
}

// Safe reports whether s is usable as one file name wherever ids are used as such: 1 to 128 of [A-Za-z0-9._-], not
// starting with a dot. It is the check for ids that came from outside.
func Safe(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return false
		}
	}
	return true
}
