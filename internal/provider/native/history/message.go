// Package history is a conversation as the native loop keeps it: one message type for every wire, one record a line on disk,
// repaired whenever it is loaded.
package history

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Role of a message.
type Role string

// Roles. Results of tools stand in user messages.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Kind of a block.
type Kind string

// Kinds of blocks.
const (
	Text     Kind = "text"
	Thinking Kind = "thinking" // the model's reasoning: goes back unchanged, to the wire it came from only
	Call     Kind = "call"     // of a tool: ID, Name, Args
	Result   Kind = "result"   // of a tool: ID, Name, Text, IsError; its files are Blocks of kind File behind it
	File     Kind = "file"     // a picture or a PDF: Path, MimeType, Name
)

// Block is a piece of a message. Fields not named by its kind are zero.
type Block struct {
	Kind     Kind            `json:"kind"`
	Text     string          `json:"text,omitempty"`
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name,omitempty"`
	Args     json.RawMessage `json:"args,omitempty"` // a JSON object
	IsError  bool            `json:"is_error,omitempty"`
	Wire     string          `json:"wire,omitempty"` // with Thinking: who understands Raw
	Raw      json.RawMessage `json:"raw,omitempty"`  // with Thinking: as it came
	MimeType string          `json:"mime_type,omitempty"`
	Path     string          `json:"path,omitempty"` // below the conversation's folder
}

// Message is one turn of one side.
type Message struct {
	Role   Role      `json:"role"`
	At     time.Time `json:"at,omitzero"`
	Blocks []Block   `json:"blocks"`
}

// Plain is the text of all text blocks, separated by newlines.
func (m Message) Plain() string {
	var parts []string
	for _, b := range m.Blocks {
		if b.Kind == Text && b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// Calls are the tool calls of the message.
func (m Message) Calls() []Block {
	var calls []Block
	for _, b := range m.Blocks {
		if b.Kind == Call {
			calls = append(calls, b)
		}
	}
	return calls
}

// Interrupted is what the model reads in place of a result that was never written.
const Interrupted = "The call was interrupted. It is not known whether it had an effect."

// Repair makes any list of messages one that every wire accepts: neighbours of one role are one message, each call is answered
// in the message after it and only there, results without a call and empty messages are gone, and the first message is the user's
// (spec/bugs.md PRV-7). A sound list comes back as it is. The argument is not changed.
func Repair(in []Message) []Message {
	out := make([]Message, 0, len(in))
	for _, m := range in {
		if m.Role != User && m.Role != Assistant {
			continue
		}
		var open []Block
		if n := len(out); n > 0 && out[n-1].Role == Assistant {
			open = out[n-1].Calls()
		}
		if m.Role == Assistant && len(open) > 0 { // nobody answered: two answers in a row
			out = append(out, Message{Role: User, At: m.At, Blocks: answers(open, nil)})
			open = nil
		}
		if m.Role == User {
			// results of a message that was joined before belong to the calls before it
			joined := len(out) > 0 && out[len(out)-1].Role == User
			m.Blocks = withResults(m.Blocks, open, joined)
		} else {
			m.Blocks = sound(m.Blocks)
		}
		if len(m.Blocks) == 0 || len(out) == 0 && m.Role == Assistant {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Role == m.Role {
			out[n-1].Blocks = slices.Concat(out[n-1].Blocks, m.Blocks)
			continue
		}
		out = append(out, m)
	}
	if n := len(out); n > 0 && out[n-1].Role == Assistant {
		if open := out[n-1].Calls(); len(open) > 0 {
			out = append(out, Message{Role: User, At: out[n-1].At, Blocks: answers(open, nil)})
		}
	}
	return out
}

// sound are the blocks of an answer without what no wire takes: empty texts, calls without a name, a second call of one id,
// thinking at its end.
func sound(in []Block) []Block {
	var out []Block
	seen := map[string]bool{}
	for _, b := range in {
		switch b.Kind {
		case Text:
			if strings.TrimSpace(b.Text) == "" {
				continue
			}
		case Call:
			if b.Name == "" || b.ID == "" || seen[b.ID] {
				continue
			}
			seen[b.ID] = true
			if !isObject(b.Args) {
				b.Args = json.RawMessage("{}")
			}
		case Thinking:
			if len(b.Raw) == 0 {
				continue
			}
		default:
			continue
		}
		out = append(out, b)
	}
	if !slices.ContainsFunc(out, func(b Block) bool { return b.Kind != Thinking }) {
		return nil
	}
	return out
}

// withResults are the blocks of a user message behind an answer with these open calls: their results first.
func withResults(in []Block, open []Block, joined bool) []Block {
	results := map[string][]Block{} // with the files behind each
	var rest []Block
	last := ""
	for _, b := range in {
		switch b.Kind {
		case Result:
			last = ""
			known := slices.ContainsFunc(open, func(c Block) bool { return c.ID == b.ID })
			if known && results[b.ID] == nil {
				last = b.ID
				results[b.ID] = []Block{b}
			}
		case File:
			if last != "" {
				results[last] = append(results[last], b)
			} else {
				rest = append(rest, b)
			}
		case Text:
			last = ""
			if b.Text != "" {
				rest = append(rest, b)
			}
		}
	}
	if joined {
		return rest
	}
	return append(answers(open, results), rest...)
}

// answers are the results of the calls in their order; what is missing was interrupted.
func answers(calls []Block, results map[string][]Block) []Block {
	var out []Block
	for _, c := range calls {
		if r := results[c.ID]; r != nil {
			out = append(out, r...)
			continue
		}
		out = append(out, Block{Kind: Result, ID: c.ID, Name: c.Name, Text: Interrupted, IsError: true})
	}
	return out
}

func isObject(raw json.RawMessage) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(raw, &o) == nil && o != nil
}
