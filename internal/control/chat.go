package control

import (
	"strings"
)

// DefaultConversation of the terminal.
const DefaultConversation = "cli:local"

// FromCursor as the position of Events asks for everything after the acknowledged position.
const FromCursor int64 = -1

// ConversationID is the platform id of a terminal conversation from what a person types: `work` and `cli:work` are the
// same, the empty string is the default one. The name is 1 to 64 of [A-Za-z0-9._-] and starts with no dot.
func ConversationID(s string) (string, error) {
	if s == "" {
		return DefaultConversation, nil
	}
	name := strings.TrimPrefix(s, "cli:")
	if name == "" || len(name) > 64 || name[0] == '.' || strings.IndexFunc(name, notName) >= 0 {
		return "", Invalid("conversation", "must be 1 to 64 letters, digits, dots, dashes or underscores, not starting with a dot")
	}
	return "cli:" + name, nil
}

func notName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}

// Say is a message of the person. ID is made by the client, 1 to 128 of [A-Za-z0-9._-]: the same id sent again is the
// same message.
type Say struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Accepted says that a message is on disk (P1).
type Accepted struct {
	ID        string `json:"id"`
	Seq       int64  `json:"seq"` // of its entry: every event it leads to has a greater one
	Duplicate bool   `json:"duplicate,omitempty"`
}

// Ack says that a person saw everything up to Seq. Going back has no effect.
type Ack struct {
	Seq int64 `json:"seq"`
}

// History is a part of a conversation's log, oldest first.
type History struct {
	Events []Event `json:"events"`
	Cursor int64   `json:"cursor"` // acknowledged position
	Last   int64   `json:"last"`   // newest position
}

// EventKind says what an Event is.
type EventKind string

// Kinds of events. Message, edit, reaction and settled are entries of the durable log and have a Seq; the others are live.
const (
	EventHello    EventKind = "hello"    // first of every stream
	EventMessage  EventKind = "message"  // Author, ID, Text
	EventEdit     EventKind = "edit"     // Target has a new Text
	EventReaction EventKind = "reaction" // Emoji on Target
	EventSettled  EventKind = "settled"  // Target, a message of the person, ended in State
	EventWorking  EventKind = "working"  // Work
	EventLost     EventKind = "lost"     // made by Follow, never on the wire: the host is away, Reason says why
)

// Authors of a message.
const (
	AuthorUser  = "user"
	AuthorAgent = "agent"
)

// End states of a message of the person (promise P2).
const (
	StateAnswered = "answered"
	StateSilent   = "silent"
	StateFailed   = "failed"
	StateRefused  = "refused"
	StateDead     = "dead"
)

// Event of a conversation.
type Event struct {
	Seq     int64     `json:"seq,omitempty"`
	Kind    EventKind `json:"kind"`
	At      Time      `json:"at,omitzero"`
	ID      string    `json:"id,omitempty"`
	Author  string    `json:"author,omitempty"`
	Text    string    `json:"text,omitempty"` // Markdown
	ReplyTo string    `json:"reply_to,omitempty"`
	Notice  bool      `json:"notice,omitempty"` // written by the host or the runner, not by the model
	Marked  bool      `json:"marked,omitempty"` // an earlier try may have arrived: possibly a repeat
	Target  string    `json:"target,omitempty"`
	Emoji   string    `json:"emoji,omitempty"`
	State   string    `json:"state,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Work    *Work     `json:"work,omitempty"`
	Hello   *Hello    `json:"hello,omitempty"`
}

// Work is what the agent does right now.
type Work struct {
	Working bool   `json:"working"`
	Tool    string `json:"tool,omitempty"`
	Queued  int    `json:"queued,omitempty"`
	Since   Time   `json:"since,omitzero"`
}

// Hello opens a stream.
type Hello struct {
	Cursor int64 `json:"cursor"` // acknowledged position
	Last   int64 `json:"last"`   // newest position
}
