// Package wire is what the native loop asks of a model's API, and what the three APIs have in common: streams of events, errors
// with classes, limits.
package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
)

// Wire speaks one model API. It is used by one conversation and its sub-agents, from several goroutines.
type Wire interface {
	// Name is that of the provider.
	Name() string
	// Send asks for one answer and blocks until it is complete. What on is told comes in order and before Send returns. An
	// error is an *Error, or ctx's own; the answer then holds the blocks that were complete, if any.
	Send(ctx context.Context, r Request, on func(Event)) (Answer, error)
	// Window is the model's context in tokens.
	Window(ctx context.Context, model string) int64
}

// Request is one question to the model.
type Request struct {
	Model  string
	System []string // the first part never changes within a conversation, the others may
	// Messages are repaired (history.Repair) and end with the user's.
	Messages []history.Message
	Tools    []Tool // in a stable order
	NoCalls  bool   // the model shall answer with text
	Effort   string // low, medium, high, xhigh, max; "" is the model's default
	Session  string // the same for all requests of a conversation: a hint for caches
	// Load reads a kept file of the conversation.
	Load func(path string) ([]byte, error)
}

// Tool is what the model is told of a tool.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // of the arguments: an object
}

// Event is something that came before the answer was complete.
type Event struct {
	Text string // a finished block of text; "" is a sign of life
}

// Stop says why the model stopped.
type Stop string

// Reasons to stop. Whether tools are called is seen from the calls.
const (
	Done    Stop = "done"
	Length  Stop = "length"  // the limit of one answer
	Refused Stop = "refused" // the provider's own filter
	Broken  Stop = "broken"  // the connection, after whole blocks
)

// Answer of the model.
type Answer struct {
	Blocks []history.Block
	Stop   Stop
	Usage  provider.Usage
}

// Context is how many tokens the conversation had with this answer.
func (a Answer) Context() int64 {
	return a.Usage.InputTokens + a.Usage.CacheReadTokens + a.Usage.CacheCreationTokens + a.Usage.OutputTokens
}

// Endpoint is where an API is and how long it may take.
type Endpoint struct {
	URL    string // without a final slash
	Header http.Header
	Client *http.Client
	First  time.Duration // until the first byte of an answer
	Idle   time.Duration // between two bytes
}

// Error is a failure of the API, or of the way to it.
type Error struct {
	Status    int // of HTTP; 0 if there was no answer, or after the stream began
	Class     provider.Class
	Retryable bool
	After     time.Duration // the API asks to wait that long; 0: it does not say
	ResetsAt  time.Time     // a used-up window is full again
	Message   string        // a diagnostic
	Err       error
}

func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Err != nil:
		return e.Err.Error()
	}
	return "the model's API failed"
}

func (e *Error) Unwrap() error { return e.Err }
