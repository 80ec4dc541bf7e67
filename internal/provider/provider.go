// Package provider is the contract between the runner and what drives a model: a CLI, a native loop, a script.
// Every implementation passes providertest (spec/providers.md section 9, design.md section 4).
package provider

import (
	"context"
	"errors"
	"io"
	"time"
)

// Provider drives one kind of model. It is made once per runner and may be used from several goroutines.
type Provider interface {
	// Name is the key in the registry and in container.json, lower case.
	Name() string
	// Caps are static: they never depend on what happened.
	Caps() Caps
	// Query starts a conversation, or resumes in.Continuation, with a first prompt. It returns once the input is on its
	// way; it does not wait for the model. Cancelling ctx aborts the query.
	Query(ctx context.Context, in QueryInput) (Query, error)
	// IsSessionInvalid reports whether err says that the continuation is unknown to the provider, and nothing else: a
	// network or log-in failure is never that (spec/bugs.md RUN-10, RUN-12).
	IsSessionInvalid(err error) bool
}

// Caps is what a provider can do.
type Caps struct {
	Commands     []string // slash commands that it runs itself when one is an Input, each `/word`; their output is the Result's text
	MidTurnText  bool     // every finished text is emitted as Text before the Result; a Result's text only repeats the last one
	MidTurnInput bool     // Push may be taken inside the running turn
	Receipts     bool     // Taken events name the pushed input when the model has got it
	Transcript   bool     // keeps its own transcript
	ToolEvents   bool     // emits ToolStart and ToolEnd
	Attachments  bool     // shows Input.Attachments to the model; else it only sees them named in the text
}

// Optional abilities of a Provider, found by assertion; without one the runner does without it.
type (
	// Rotator keeps conversations from growing for ever. It is asked between turns, never during one.
	Rotator interface {
		// Rotate says in plain words why a continuation must not be resumed any more, after it has archived and moved aside what it
		// stands for; "" means keep it. It may take seconds.
		Rotate(ctx context.Context, continuation, cwd string) (reason string, err error)
	}
	// Keeper shows the transcript of a conversation.
	Keeper interface {
		// OpenTranscript returns the file and its name. The caller closes it.
		OpenTranscript(continuation string) (r io.ReadCloser, name string, err error)
	}
)

// QueryInput starts a query.
type QueryInput struct {
	Input        Input
	Continuation string // "" starts a new conversation
	Cwd          string
	Dirs         []string // further folders that the model may work in
	Instructions string   // appended to the provider's own system prompt; the current text also counts on resume
	MCP          []MCPServer
}

// Input is one prompt.
type Input struct {
	ID   string // unique in the query; named by Taken
	Text string // for one of Caps.Commands the command with its arguments, alone
	// Attachments are the files of the messages in Text. They are named there too.
	Attachments []Attachment
}

// Attachment is a file that came with a message. Path or URL is set.
type Attachment struct {
	Name     string
	MimeType string
	Path     string // absolute, readable here
	URL      string
}

// MCPServer is a server the model may call. Exactly one of URL and Command is set.
type MCPServer struct {
	Name       string
	URL        string            // streamable HTTP
	Headers    map[string]string // with URL
	Command    string            // stdio
	Args       []string
	Env        map[string]string
	Cwd        string   // with Command; empty: the agent's folder
	Only       []string // tools of it that the model may call; empty: all
	Without    []string // tools of it that the model may not call
	AlwaysLoad bool     // its tools are in the prompt from the first turn
}

// Query is a running conversation. Its methods may be called from any goroutine.
type Query interface {
	// Push adds a prompt. It returns ErrEnded when the query takes no more input; the prompt is then not lost by the caller.
	Push(ctx context.Context, in Input) error
	// Interrupt stops the running turn and keeps the conversation; a Result with Interrupted follows.
	Interrupt(ctx context.Context) error
	// End says that no more input comes: what is queued is finished, then the events end.
	End()
	// Abort stops at once, with every process the query started. It returns when they are gone (bounded by about 15 s).
	// It may be called several times and after the end.
	Abort()
	// Events is closed last, after everything the query started has ended. The reader must drain it.
	Events() <-chan Event
	// Err is why the query ended; nil after End or Abort. Valid once Events is closed.
	Err() error
}

// Kind of an event.
type Kind string

// Event kinds. Activity is emitted for every underlying event, before its translation: it drives the heartbeat.
const (
	Init      Kind = "init"       // Continuation; may come again with another value
	Text      Kind = "text"       // Text: a finished piece of the model's text, outside any sub-agent
	Result    Kind = "result"     // the end of a turn: Text, IsError, Class, Usage
	Error     Kind = "error"      // Message, Class, Retryable: something failed, the turn may go on
	Progress  Kind = "progress"   // Message for the log and the status line
	Activity  Kind = "activity"   // something happened
	ToolStart Kind = "tool_start" // Tool, Timeout
	ToolEnd   Kind = "tool_end"   // Tool
	Taken     Kind = "taken"      // InputID: the model has got this pushed input within the running turn
	Compacted Kind = "compacted"  // the conversation was summarised
)

// Event is one thing that happened. Fields not named by its kind are zero.
type Event struct {
	Kind         Kind
	Continuation string
	Text         string
	Message      string // diagnostic, for logs
	IsError      bool
	Interrupted  bool   // with Result: the turn was stopped by Interrupt
	Notice       string // with an error Result: words that may be shown to a person; empty if there are none
	Class        Class
	Retryable    bool
	ResetsAt     time.Time
	Tool         string
	Timeout      time.Duration // declared by the tool call; zero if none
	InputID      string
	Usage        *Usage
}

// Class says why something failed.
type Class string

// Error classes.
const (
	ClassNone           Class = ""
	ClassAuth           Class = "auth"
	ClassQuota          Class = "quota"
	ClassRateLimit      Class = "rate_limit"
	ClassOverloaded     Class = "overloaded"
	ClassContext        Class = "context"
	ClassInvalidSession Class = "invalid_session"
	ClassNetwork        Class = "network"
	ClassMissing        Class = "missing" // its program is not here
	ClassOther          Class = "other"
)

// Usage of one turn.
type Usage struct {
	InputTokens         int64   `json:"input_tokens"`
	OutputTokens        int64   `json:"output_tokens"`
	CacheReadTokens     int64   `json:"cache_read_tokens"`
	CacheCreationTokens int64   `json:"cache_creation_tokens"`
	CostUSD             float64 `json:"cost_usd,omitempty"`
}

// ErrEnded: the query takes no more input.
var ErrEnded = errors.New("query has ended")

// QueryError is why a query ended before its work was done.
type QueryError struct {
	Op        string // what was attempted, a verb phrase
	Class     Class
	Retryable bool
	Hint      string // for the operator
	Err       error
}

func (e *QueryError) Error() string {
	s := e.Op
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *QueryError) Unwrap() error { return e.Err }
