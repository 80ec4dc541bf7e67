package control

import (
	"strconv"
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

// Kinds of events. Message, edit, reaction, answer and settled are entries of the durable log and have a Seq; the others are live.
const (
	EventHello    EventKind = "hello"    // first of every stream
	EventMessage  EventKind = "message"  // Author, ID, Text; Files, or Question or Card, whose Text is what to show without them
	EventEdit     EventKind = "edit"     // Target has a new Text
	EventReaction EventKind = "reaction" // Emoji on Target
	EventAnswer   EventKind = "answer"   // the question Target is closed: Text is the label of the answer with Value; without both nobody answered
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
	Value   string    `json:"value,omitempty"`
	State   string    `json:"state,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Work    *Work     `json:"work,omitempty"`
	Hello   *Hello    `json:"hello,omitempty"`

	Files    []File    `json:"files,omitempty"`
	Question *Question `json:"question,omitempty"`
	Card     *Card     `json:"card,omitempty"`
}

// File that came with a message.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Path string `json:"path"` // on the host's machine
}

// Question of the agent. One of the options answers it, pressed (Answer) or said as a message by its number, label or value.
type Question struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Text    string   `json:"text"`
	Options []Option `json:"options"`
}

// Option of a question.
type Option struct {
	Label string `json:"label"`
	Value string `json:"value"`
}

// Choice is the index of the option that a text names: by its label or value, whatever the case, else by its number from 1;
// -1 if that is not exactly one.
func Choice(options []Option, text string) int {
	text = strings.TrimSpace(text)
	named := -1
	for i, o := range options {
		if strings.EqualFold(strings.TrimSpace(o.Label), text) || strings.EqualFold(o.Value, text) {
			if named >= 0 {
				return -1
			}
			named = i
		}
	}
	if named >= 0 {
		return named
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(options) && strconv.Itoa(n) == text {
		return n - 1
	}
	return -1
}

// Card is a text with a heading and links.
type Card struct {
	Title      string   `json:"title,omitempty"`
	Body       string   `json:"body,omitempty"`
	Paragraphs []string `json:"paragraphs,omitempty"`
	Links      []Link   `json:"links,omitempty"`
}

// Link of a card, to http or https.
type Link struct {
	Label string `json:"label"`
	URL   string `json:"url"`
}

// Answer presses an option of a question.
type Answer struct {
	Question string `json:"question"` // id
	Value    string `json:"value"`    // of the option
}

// Answered says that an answer is on disk, and its agent has it.
type Answered struct {
	Duplicate bool `json:"duplicate,omitempty"` // the same answer was there already
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
