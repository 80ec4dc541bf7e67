// Package tool holds the built-in tools of an agent and serves them by the Model Context Protocol: over streamable HTTP on
// loopback for the provider, and over the runner's own socket for `agent-runner mcp`. Handlers run in the runner process, so
// that the mailbox has one writer (design.md section 10). Each tool is one .go file and one .md file: the latter is what the
// model reads as its description.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/runner/block"
)

// Session is what the tools do to the session. Its methods may be called from any goroutine. Each returns when its effect is
// durable; only Ask and Admin wait for somebody. A method that wrote nothing returns an error whose text is for the model.
type Session interface {
	// Send writes a message to a named destination. An unknown name is an *UnknownDestination.
	Send(ctx context.Context, m Message) (Sent, error)
	// Change edits or reacts to a message.
	Change(ctx context.Context, c Change) (Sent, error)
	// Ask puts a question to the chat of the session and waits for the value of the chosen option: until the answer, the timeout,
	// the end of the turn or of ctx.
	Ask(ctx context.Context, q Question) (answer string, err error)
	// Show sends a card.
	Show(ctx context.Context, c Card) (Sent, error)
	// Request hands an act over to the host, which decides about it; action is a content with the field "action". It returns
	// the id of the request; the outcome arrives later as a message.
	Request(ctx context.Context, action json.RawMessage) (id string, err error)
	// Admin has the host run a command of ncl and waits for its answer, at most 30 s.
	Admin(ctx context.Context, command string, args map[string]json.RawMessage) (control.Frame, error)
}

// Message is a text with files; one of the two may be empty.
type Message struct {
	To    string // name of a destination
	Text  string
	Files []File
}

// File of a message. Name is a plain file name. Open is called once; what it returns is read to at most Size bytes.
type File struct {
	Name string
	Size int64
	Open func() (io.ReadCloser, error)
}

// Change of a message that was sent before. Either Text (an edit) or Emoji (a reaction) is set.
type Change struct {
	Message int64 // the number by which the model knows it
	Text    string
	Emoji   string
}

// Question with two or more options.
type Question struct {
	Title, Text string
	Options     []Option
	Timeout     time.Duration
}

// Option of a question. SelectedLabel is shown once it was chosen; Value is what Ask returns.
type Option struct {
	Label         string `json:"label"`
	SelectedLabel string `json:"selectedLabel"`
	Value         string `json:"value"`
}

// Card is a formatted message. Fallback is its text for chats that show no cards.
type Card struct {
	To       string // name of a destination; empty: the chat of the session
	Card     json.RawMessage
	Fallback string
}

// Sent is a message that was written.
type Sent struct {
	To  string // the destination's name
	Seq int64  // the number by which the model may refer to it
}

// UnknownDestination says that there is no destination of that name, and which there are.
type UnknownDestination struct {
	Name  string
	Known []string
}

func (e *UnknownDestination) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("unknown destination %q; this session has no destination at all", e.Name)
	}
	return fmt.Sprintf("unknown destination %q; known names: %s", e.Name, strings.Join(e.Known, ", "))
}

// Tool is one tool: what the model is told and what happens.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // of the arguments; a JSON Schema of type object
	// Call runs the tool. The text of an error is for the model.
	Call func(ctx context.Context, args json.RawMessage) (string, error)
}

// Set is the tools of a session.
type Set struct{ tools []Tool }

// Options of New.
type Options struct {
	Session Session
	// Cwd is the agent's folder: relative paths of files start there.
	Cwd string
	// Roots are the other folders that files may be sent from.
	Roots []string
	// MaxFile is the size of the largest file that may be sent, in bytes; 0 means DefaultMaxFile.
	MaxFile int64
}

// DefaultMaxFile is 100 MiB.
const DefaultMaxFile = 100 << 20

// New returns the built-in tools.
func New(opt Options) *Set {
	if opt.MaxFile <= 0 {
		opt.MaxFile = DefaultMaxFile
	}
	ses := opt.Session
	set, err := NewSet(
		sendMessage(ses), sendFile(opt), editMessage(ses), addReaction(ses), askUserQuestion(ses), sendCard(ses),
		scheduleTask(ses), listTasks(ses), updateTask(ses), cancelTask(ses), pauseTask(ses), resumeTask(ses),
		createAgent(ses), installPackages(ses), addMCPServer(ses),
	)
	if err != nil {
		panic(fmt.Sprintf("the built-in tools: %v", err)) // the list above is wrong
	}
	return set
}

// ErrDuplicateTool: two tools have one name.
var ErrDuplicateTool = errors.New("two tools have one name")

// NewSet returns a set of the tools, in this order. Two of one name are an ErrDuplicateTool.
func NewSet(tools ...Tool) (*Set, error) {
	seen := make(map[string]bool, len(tools))
	for _, t := range tools {
		if seen[t.Name] {
			return nil, fmt.Errorf("%w: %s", ErrDuplicateTool, t.Name)
		}
		seen[t.Name] = true
	}
	return &Set{tools: slices.Clone(tools)}, nil
}

// Tools in the order in which they are listed.
func (s *Set) Tools() []Tool { return slices.Clone(s.tools) }

// ErrUnknownTool: there is no tool of that name.
var ErrUnknownTool = errors.New("unknown tool")

// Call runs a tool by name. The text of an error is for the model.
func (s *Set) Call(ctx context.Context, name string, args json.RawMessage) (string, error) {
	if err := s.known(name); err != nil {
		return "", err
	}
	return s.tools[s.index(name)].Call(ctx, args)
}

func (s *Set) index(name string) int {
	return slices.IndexFunc(s.tools, func(t Tool) bool { return t.Name == name })
}

// known is nil if there is a tool of that name, else an ErrUnknownTool with the names that there are.
func (s *Set) known(name string) error {
	if s.index(name) >= 0 {
		return nil
	}
	names := make([]string, 0, len(s.tools))
	for _, t := range s.tools {
		names = append(names, t.Name)
	}
	return fmt.Errorf("%w %q; there are: %s", ErrUnknownTool, shorten(name), strings.Join(names, ", "))
}

// define builds a tool over arguments of type A, whose fields are those of schema. run gets what the schema lets through.
func define[A any](name, description string, schema shape, run func(ctx context.Context, args A) (string, error)) Tool {
	advertised, err := json.Marshal(schema)
	if err != nil {
		panic(fmt.Sprintf("the schema of %s: %v", name, err)) // a shape always encodes
	}
	return Tool{
		Name: name, Description: strings.TrimSpace(description), Schema: advertised,
		Call: func(ctx context.Context, raw json.RawMessage) (string, error) {
			var args A
			if err := schema.decode(raw, &args); err != nil {
				return "", err
			}
			return run(ctx, args)
		},
	}
}

// maxText is the longest text of one message, in bytes.
const maxText = 256 << 10

// outward is a text as it may leave: without internal notes and outer white space. what names the argument.
func outward(what, text string) (string, error) {
	if len(text) > maxText {
		return "", fmt.Errorf("`%s` has %d bytes, at most %d are allowed; nothing was sent", what, len(text), maxText)
	}
	return strings.TrimSpace(block.StripInternal(text)), nil
}

// spoken is outward for a text that must not be empty.
func spoken(what, text string) (string, error) {
	text, err := outward(what, text)
	if err == nil && text == "" {
		err = fmt.Errorf("`%s` is required, and must hold more than internal notes; nothing was sent", what)
	}
	return text, err
}
