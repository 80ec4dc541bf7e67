// Package tool holds the built-in tools of an agent and serves them by the Model Context Protocol: over streamable HTTP on
// loopback for the provider, and over the runner's own socket for `agent-runner mcp`. Handlers run in the runner process, so
// that the mailbox has one writer (design.md section 10). Each tool is one .go file and one .md file: the latter is what the
// model reads as its description.
package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Outbox is what the tools do to the session. Its methods may be called from any goroutine and block until the effect is
// durable.
type Outbox interface {
	// Send writes a message to a named destination. An unknown name is an *UnknownDestination.
	Send(ctx context.Context, to, text string) (Sent, error)
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

// New returns the built-in tools over out.
func New(out Outbox) *Set { return &Set{tools: []Tool{sendMessage(out)}} }

// Tools in the order in which they are listed.
func (s *Set) Tools() []Tool { return slices.Clone(s.tools) }

// ErrUnknownTool: there is no tool of that name.
var ErrUnknownTool = errors.New("unknown tool")

// Call runs a tool by name. The text of an error is for the model.
func (s *Set) Call(ctx context.Context, name string, args json.RawMessage) (string, error) {
	names := make([]string, 0, len(s.tools))
	for _, t := range s.tools {
		if t.Name == name {
			return t.Call(ctx, args)
		}
		names = append(names, t.Name)
	}
	return "", fmt.Errorf("%w %q; there are: %s", ErrUnknownTool, name, strings.Join(names, ", "))
}

// decode reads arguments strictly: exactly the fields of into.
func decode(args json.RawMessage, into any) error {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the arguments cannot be used: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
