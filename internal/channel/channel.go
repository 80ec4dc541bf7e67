// Package channel is the contract of a chat platform's adapter. An adapter makes three promises (spec/channels.md section
// 0): it acknowledges an event to the platform only after the host stored it; it reports every outbound operation with
// one of six outcomes; it says honestly whether it is connected. Every adapter passes channeltest.
package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Adapter is one account on one platform.
type Adapter interface {
	// Info is static and known without credentials.
	Info() Info
	// Run connects, receives and reconnects until ctx ends, then returns nil when all it started has ended. Another return
	// is a failure: the host runs it again with growing pauses, or gives up on a *FatalError and says so in status.
	Run(ctx context.Context, h Host) error
	// Deliver carries one operation out. The host calls it once at a time per (instance, platform id, thread id) and in
	// parallel for different conversations. key is the same at every try of the same operation and unique otherwise: use
	// it where the platform takes an idempotency key. The error is nil or an *Outcome.
	//
	// A text or an edit that is longer than the platform takes goes in parts, one part for each call, cut the same way each time: the
	// receipt says that there are more, and the host calls again with the next Op.Part and a key of its own, once the one before is
	// out. So a failure or a crash repeats one part at most (spec/channels.md 2.4).
	Deliver(ctx context.Context, to Address, op Op, key string) (Receipt, error)
	// Status is cheap and never blocks.
	Status() Status
}

// Optional abilities, found by assertion; without one the host does without it.
type (
	// Worker shows that the agent works: typing indicators and status lines. Best effort, never retried.
	Worker interface {
		Working(ctx context.Context, to Address, w Work)
	}
	// DirectOpener finds the conversation with one person alone, and opens it if the platform wants that. It is the same address as
	// events from there have, and the same each time. It may ask the platform. Without it, the user's id is the conversation's.
	DirectOpener interface {
		OpenDirect(ctx context.Context, user string) (Address, error)
	}
	// Settler is told how a message ended, after everything it led to was delivered. Told at least once per message.
	Settler interface {
		Settled(ctx context.Context, s Settlement) error
	}
)

// Host is what an adapter may ask of the host.
type Host interface {
	// Inbound returns after durable storage. An error means not stored: do not acknowledge, try again.
	Inbound(ctx context.Context, m Inbound) (Verdict, error)
	// Answer is a pressed option of a question. It returns after durable storage; an error means not stored: try again. The
	// host checks who may answer and whether it is the first answer; a Dropped verdict has the reason to show to whoever
	// pressed, and changes nothing. What the chat shows of an answer comes as OpAnswered.
	Answer(ctx context.Context, a Answer) (Verdict, error)
	// Store is durable and private to the adapter instance.
	Store() KV
	Log() *slog.Logger // redacts this instance's secrets
	Now() time.Time
}

// KV is a small ordered durable map.
type KV interface {
	Get(ctx context.Context, key string) (value string, ok bool, err error)
	// List returns the pairs with from <= key < to in key order, at most limit.
	List(ctx context.Context, from, to string, limit int) ([]Pair, error)
	// Update writes and deletes in one transaction; a Pair with Delete set removes its key. A Pair with IfAbsent set whose
	// key exists makes the whole call do nothing and return ErrExists.
	Update(ctx context.Context, pairs ...Pair) error
}

// Pair of a KV.
type Pair struct {
	Key, Value string
	Delete     bool
	IfAbsent   bool
}

// ErrExists: a key given with IfAbsent is there already; nothing was written.
var ErrExists = errors.New("key exists")

// Info of an adapter.
type Info struct {
	Type     string // platform family, for example cli
	Instance string // the default instance has the name of the type
	Caps     Caps
	MaxText  int // UTF-16 units per message; 0 is no limit
}

// Caps are facts about the adapter, never policy.
type Caps struct {
	Threads, Edit, Delete, React bool
	Buttons                      bool // takes OpQuestion and OpAnswered; else questions come as numbered text
	Cards                        bool // takes OpCard; else cards come as text
	Files                        bool // takes Op.Files; else the text says which file there was
	Idempotent                   bool // Deliver with a key seen before has no second effect
}

// Address of a conversation. PlatformID is `<type>:<rest>`, made and read only by its adapter.
type Address struct {
	PlatformID string
	ThreadID   string
}

// Inbound is one event of a platform.
type Inbound struct {
	ID          string // the platform's message id; dedupe key with instance and platform id
	Kind        string // chat or webhook
	Address     Address
	Text        string
	Sender      Sender
	Mention     Tri
	Group       bool
	ReplyTo     *Quote
	Attachments []Attachment
	At          time.Time // platform's time
}

// Sender of an event.
type Sender struct {
	ID    string // user id: `<channel type>:<handle>`
	Name  string
	IsBot bool
}

// Quote is the message replied to.
type Quote struct{ ID, Sender, Text string }

// Attachment of an event; the host opens it at once, with a size cap.
type Attachment struct {
	Name, MimeType, Kind string
	Size                 int64
	Open                 func(ctx context.Context) (io.ReadCloser, error)
}

// Tri is yes, no or unknown.
type Tri int

// Values of Tri.
const (
	Unknown Tri = iota
	Yes
	No
)

// VerdictKind says what the host did with an event.
type VerdictKind string

// Verdicts. All of them mean: acknowledge.
const (
	Stored    VerdictKind = "stored"
	Duplicate VerdictKind = "duplicate"
	Dropped   VerdictKind = "dropped"
	// Consumed: the message was an answer to a question. It goes to no agent as a message, and its end is not told.
	Consumed VerdictKind = "consumed"
)

// Verdict on an event.
type Verdict struct {
	Kind   VerdictKind
	Reason string // of Dropped, in plain words
}

// OpKind of an outbound operation.
type OpKind string

// Operations.
const (
	OpText     OpKind = "text"
	OpEdit     OpKind = "edit"
	OpReact    OpKind = "react"
	OpQuestion OpKind = "question"
	// OpAnswered: the question that Target shows is closed. Chosen is the option that was taken, or one whose label is to stand in the
	// place of all of them; nil: nobody answers any more.
	OpAnswered OpKind = "answered"
	OpCard     OpKind = "card"
	// OpDelete removes the message Target, with Caps.Delete: a part that an edited message does not need any more.
	OpDelete OpKind = "delete"
)

// Op is one outbound operation.
type Op struct {
	Kind OpKind
	Text string // Markdown
	// Target of edit, react, answered, delete: platform message id. Empty in an edit: the message had no such part, it is sent behind
	// the others.
	Target string
	Part   int // of a text or an edit: which part of it is to be sent, from 0
	Emoji  string
	Files  []File // of a text, which may then be empty; they come with part 0
	// Question of OpQuestion and OpAnswered, Card of OpCard.
	Question *Question
	Chosen   *Option
	Card     *Card
	ReplyTo  string // platform message id this answers, if known
	Notice   bool   // written by the host or the runner, not by the model
	// Marked says that an earlier try of the same operation may have arrived (P3): shown only where it helps people.
	Marked bool
}

// File to send. Name is one plain file name of at most 255 bytes, no more is known of it. Open may be called several times
// while Deliver runs, and not after; a reader gives at most Size bytes, or fewer if the file was cut meanwhile.
type File struct {
	Name string
	Size int64
	Open func() (io.ReadCloser, error)
}

// Question that an agent asks; nothing in it is trusted. ID is the host's own, at most 40 characters.
type Question struct {
	ID, Title, Text string
	Options         []Option // 1 to MaxOptions with different values
}

// MaxOptions of a question.
const MaxOptions = 10

// Option of a question. Selected is what to show in place of Label once it was taken.
type Option struct{ Label, Selected, Value string }

// Card is a text with a heading and links; nothing in it is trusted but that the links lead to http or https.
type Card struct {
	Title, Body string
	Paragraphs  []string
	Links       []Link
	Fallback    string // what the agent wants to be read where no cards are shown; may be empty
}

// Link of a card.
type Link struct{ Label, URL, Style string }

// Answer is a pressed option.
type Answer struct {
	QuestionID string
	Value      string // of the option
	// Number of the option, from 1, from adapters whose buttons have no room for values; 0: Value counts.
	Number  int
	Address Address
	Sender  Sender
}

// Receipt of a delivered operation, or of one part of it.
type Receipt struct {
	IDs  []string // platform ids of what it became; the first is that of the text
	More bool     // the text has parts behind this one
}

// OutcomeKind is why an operation was not delivered.
type OutcomeKind string

// The outcomes other than success (spec/channels.md section 2.4).
const (
	Offline     OutcomeKind = "offline"      // not connected, nothing sent; not a try
	RateLimited OutcomeKind = "rate-limited" // nothing sent, not before After; not a try
	Transient   OutcomeKind = "transient"    // failed, nothing of this part is out
	Permanent   OutcomeKind = "permanent"    // will never work
	Ambiguous   OutcomeKind = "unknown"      // the request left, no answer came
)

// Outcome is the error of Deliver.
type Outcome struct {
	Kind  OutcomeKind
	After time.Duration
	Hint  string
	Err   error
}

func (o *Outcome) Error() string {
	s := "deliver: " + string(o.Kind)
	if o.Err != nil {
		s += ": " + o.Err.Error()
	}
	if o.Hint != "" {
		s += " (" + o.Hint + ")"
	}
	return s
}

func (o *Outcome) Unwrap() error { return o.Err }

// State of a connection.
type State string

// Connection states (spec/channels.md section 2.17).
const (
	Starting     State = "starting"
	Connected    State = "connected"
	Reconnecting State = "reconnecting"
	Fatal        State = "fatal"
	Stopped      State = "stopped"
)

// Status of an adapter.
type Status struct {
	State  State     `json:"state"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// FatalError stops an adapter for good: a person must act.
type FatalError struct {
	Hint string
	Err  error
}

func (e *FatalError) Error() string { return fmt.Sprintf("%v (%s)", e.Err, e.Hint) }
func (e *FatalError) Unwrap() error { return e.Err }

// Work is what an agent does right now.
type Work struct {
	Working bool
	Tool    string
	Queued  int
	Since   time.Time
}

// SettleState is the named state a message ended in (P2).
type SettleState string

// Named end states.
const (
	Answered SettleState = "answered"
	Silent   SettleState = "silent"
	Failed   SettleState = "failed"
	Refused  SettleState = "refused"
	Dead     SettleState = "dead"
)

// Settlement says how a message ended.
type Settlement struct {
	Address   Address
	MessageID string // Inbound.ID
	State     SettleState
	Reason    string
}
