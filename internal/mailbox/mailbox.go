// Package mailbox is the contract of a session's two boxes: what the host puts in for the agent and what the agent
// writes out. It holds the row types, the errors and the rules that need no clock and no storage; mailbox/sqlite holds
// the files (spec/host.md sections 4 and 24.1; design.md section 5).
package mailbox

import (
	"encoding/json"
	"errors"
	"time"
)

// Kind says what a row is.
type Kind string

// Kinds. chat-sdk is read as chat and never written. task_log exists only outbound.
const (
	KindChat    Kind = "chat"
	KindChatSDK Kind = "chat-sdk"
	KindTask    Kind = "task"
	KindWebhook Kind = "webhook"
	KindSystem  Kind = "system"
	KindTaskLog Kind = "task_log"
)

// Inbound reports whether k may stand in messages_in.
func (k Kind) Inbound() bool {
	switch k {
	case KindChat, KindChatSDK, KindTask, KindWebhook, KindSystem:
		return true
	}
	return false
}

// Outbound reports whether k may stand in messages_out.
func (k Kind) Outbound() bool {
	switch k {
	case KindChat, KindChatSDK, KindSystem, KindTaskLog:
		return true
	}
	return false
}

// Status of an inbound row. Only the host changes it.
type Status string

// The states of an inbound row (spec/host.md section 4.7). All but pending and paused are final.
const (
	StatusPending   Status = "pending"
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
	StatusPaused    Status = "paused"
	StatusCancelled Status = "cancelled"
)

// Valid reports whether s is a known state.
func (s Status) Valid() bool {
	switch s {
	case StatusPending, StatusCompleted, StatusFailed, StatusPaused, StatusCancelled:
		return true
	}
	return false
}

// Address is where a message came from or goes to. Empty fields are NULL in the files.
type Address struct {
	ChannelType string `json:"channel_type,omitempty"`
	PlatformID  string `json:"platform_id,omitempty"`
	ThreadID    string `json:"thread_id,omitempty"`
}

// Zero reports whether the address names nothing.
func (a Address) Zero() bool { return a == Address{} }

// ChannelAgent is the channel type of rows between agents; the platform id is then an agent group id.
const ChannelAgent = "agent"

// TaskThread starts the thread of a session that belongs to a series of tasks; the series id follows. Such a session has no
// chat (spec/runner.md section 1.5).
const TaskThread = "system:tasks:"

// Ids of the rows by which the host answers a question and a command from inside a sandbox: the prefix, then the id of the
// question or request. They are of kind system and wake nobody.
const (
	AnswerPrefix   = "qr-"
	ResponsePrefix = "cli-resp-"
)

// ChannelEcho marks rows copied from another session of the same agent: context only.
const ChannelEcho = "session-echo"

// InRow is a row of messages_in: host to agent.
type InRow struct {
	ID           string
	Seq          int64 // even, given by Put; the number the model sees
	Kind         Kind
	Timestamp    time.Time // of the event, UTC
	Status       Status    // empty is pending
	ProcessAfter time.Time // not before; zero is now
	Recurrence   string
	SeriesID     string
	Tries        int
	Trigger      bool // false: context only, wakes nobody
	Address
	Content           json.RawMessage
	PlatformMessageID string // the platform's own id, for edits and reactions
	SourceSessionID   string
	AfterIncarnation  int64 // only an incarnation greater than this may take the row
	// Exchange is set on rows that an earlier, dead incarnation claimed and did not finish: the exchange that is run again.
	Exchange string
}

// OutRow is a row of messages_out: agent to host. Nothing in it is believed by the host.
type OutRow struct {
	ID           string
	Seq          int64 // odd, given by the runner's half
	InReplyTo    string
	Timestamp    time.Time
	DeliverAfter time.Time // zero is now
	Kind         Kind
	Address
	Content     json.RawMessage
	Incarnation int64
	Exchange    string // exchange that wrote the row; empty for rows outside one
	Segment     int    // segment of the exchange, from 1; 0 for tools and notices outside segments
	Fallback    bool   // a twice bare answer sent to the person who waits (design.md section 7)
}

// PutResult says what became of one row given to Put.
type PutResult struct {
	ID        string `json:"id"`
	Seq       int64  `json:"seq"`
	Duplicate bool   `json:"duplicate,omitempty"` // the id was there already; nothing was changed
}

// AckStatus is the runner's word about an inbound row.
type AckStatus string

// Ack states (spec/runner.md section 2.2).
const (
	AckProcessing  AckStatus = "processing"
	AckCompleted   AckStatus = "completed"
	AckFailed      AckStatus = "failed"
	AckScriptError AckStatus = "script-skip:error"
)

// Final reports whether the runner is done with the row.
func (s AckStatus) Final() bool {
	return s == AckCompleted || s == AckFailed || s == AckScriptError
}

// Ack is a row of processing_ack.
type Ack struct {
	MessageID     string    `json:"message_id"`
	Status        AckStatus `json:"status"`
	StatusChanged time.Time `json:"status_changed"`
	Incarnation   int64     `json:"incarnation"`
	Exchange      string    `json:"exchange,omitempty"`
	Reason        string    `json:"reason,omitempty"` // of a failed row, in plain words
}

// Failure is a row the runner gives up, with a reason in plain words.
type Failure struct {
	ID     string
	Reason string
}

// Finish is the end of an exchange: everything in it becomes durable at once or not at all (design.md section 6).
type Finish struct {
	Out       []OutRow
	Completed []string
	Failed    []Failure
	Skipped   []Failure // tasks whose script broke: AckScriptError
	Release   []string  // claims given back: the rows are fetched again
	State     map[string]string
	Forget    []string // keys of State that go
	Usage     []Usage
}

// Usage is what one result of the provider cost. The host reads it and believes only its shape.
type Usage struct {
	ID                  int64     `json:"-"` // given by the runner's half, ascending
	Timestamp           time.Time `json:"timestamp"`
	Exchange            string    `json:"exchange,omitempty"`
	SeriesID            string    `json:"series_id,omitempty"` // of a task
	Provider            string    `json:"provider"`
	Model               string    `json:"model,omitempty"`
	Failed              bool      `json:"failed,omitempty"` // the result was an error
	InputTokens         int64     `json:"input_tokens"`
	OutputTokens        int64     `json:"output_tokens"`
	CacheReadTokens     int64     `json:"cache_read_tokens"`
	CacheCreationTokens int64     `json:"cache_creation_tokens"`
	CostUSD             float64   `json:"cost_usd"`
}

// Bad is an outbound row that could not be read; the good rows beside it count.
type Bad struct {
	ID     string // as written: may be empty or odd, nothing a sandbox writes is believed
	Seq    int64
	Reason string
}

// Page is what the host finds in the outbox behind its cursors.
type Page struct {
	Rows        []OutRow // by seq
	Bad         []Bad
	Acks        []Ack // final ones
	OutboundSeq int64 // cursor for the next page
	AckChange   int64 // cursor for the next page
	More        bool  // there is another page now
}

// Tried is a claim of a dead incarnation that counted as one try of its row.
type Tried struct {
	ID     string
	Tries  int
	Failed bool // the row was given up
	Again  bool // by an earlier call
}

// Delivered is the host's word about an outbound row: what the platform calls it, or that it was not delivered.
type Delivered struct {
	MessageOutID      string
	PlatformMessageID string
	Status            string // delivered, failed, refused
	DeliveredAt       time.Time
}

// DestinationType says what a destination name stands for.
type DestinationType string

// Destination types.
const (
	DestinationChannel DestinationType = "channel"
	DestinationAgent   DestinationType = "agent"
)

// Destination is a name the agent may send to. It is routing map and permission at once.
type Destination struct {
	Name         string
	DisplayName  string
	Type         DestinationType
	ChannelType  string // channel
	PlatformID   string // channel
	AgentGroupID string // agent
}

// Address of the destination, without a thread.
func (d Destination) Address() Address {
	if d.Type == DestinationAgent {
		return Address{ChannelType: ChannelAgent, PlatformID: d.AgentGroupID}
	}
	return Address{ChannelType: d.ChannelType, PlatformID: d.PlatformID}
}

// Turn says whether the runner works or waits.
type Turn string

// Turn states.
const (
	TurnWorking Turn = "working"
	TurnIdle    Turn = "idle"
)

// ContainerState is what the runner says of itself: data for typing indicators and the sweep, never a decision by itself.
type ContainerState struct {
	Turn          Turn          `json:"turn,omitempty"`
	CurrentTool   string        `json:"current_tool,omitempty"`
	ToolTimeout   time.Duration `json:"-"`
	ToolStartedAt time.Time     `json:"tool_started_at,omitzero"`
	UpdatedAt     time.Time     `json:"updated_at,omitzero"`
	Queued        int           `json:"queued"` // follow-ups taken over but not yet answered
}

// State is everything the outbound side says about the runner, in one read.
type State struct {
	Acks      []Ack             `json:"acks"`
	Session   map[string]string `json:"session_state"`
	Container ContainerState    `json:"container_state"`
	Heartbeat time.Time         `json:"heartbeat,omitzero"`
}

// Errors of both halves; match with errors.Is.
var (
	// ErrNotExist: there is no mailbox in that folder.
	ErrNotExist = errors.New("mailbox does not exist")
	// ErrInvalid: a row was refused; nothing of the call was stored. The text names the field and the reason.
	ErrInvalid = errors.New("invalid row")
	// ErrHostile: the outbound side is not what a runner writes (schema, file type, owner, size). It was not read.
	ErrHostile = errors.New("outbound side refused")
	// ErrBusy: the other side held its lock longer than the deadline. Try again.
	ErrBusy = errors.New("mailbox busy")
	// ErrFenced: the write came from an incarnation that is no longer the live one; nothing was changed.
	ErrFenced = errors.New("incarnation fenced")
	// ErrCorrupt: the file cannot be read by this process any more; a fresh process may (exit 75 in the runner).
	ErrCorrupt = errors.New("mailbox corrupt")
)
