package anthropic

import (
	"encoding/base64"
	"encoding/json"

	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/wire"
)

type cacheControl struct {
	Type string `json:"type"`
}

type request struct {
	Model        string        `json:"model"`
	MaxTokens    int64         `json:"max_tokens"`
	Stream       bool          `json:"stream"`
	System       []block       `json:"system,omitempty"`
	Messages     []message     `json:"messages"`
	Tools        []tool        `json:"tools,omitempty"`
	ToolChoice   *typed        `json:"tool_choice,omitempty"`
	Thinking     *typed        `json:"thinking,omitempty"`
	OutputConfig *outputConfig `json:"output_config,omitempty"`
}

type typed struct {
	Type string `json:"type"`
}

type outputConfig struct {
	Effort string `json:"effort"`
}

type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"` // *block, or a thought as it came
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	Cache       *cacheControl   `json:"cache_control,omitempty"`
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   []*block        `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Source    *source         `json:"source,omitempty"`
	Title     string          `json:"title,omitempty"`
	Cache     *cacheControl   `json:"cache_control,omitempty"`
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// encode marks four places for the API's cache, as many as it takes: the end of the tools, the end of the system prompt that
// never changes, and the last two messages of the user.
func (w *Wire) encode(r wire.Request) (*request, error) {
	out := &request{Model: Model(r.Model), MaxTokens: w.maxTokens.Load(), Stream: true}
	mark := &cacheControl{Type: "ephemeral"}
	for _, s := range r.System {
		if s == "" {
			continue
		}
		b := block{Type: "text", Text: s}
		if len(out.System) == 0 {
			b.Cache = mark
		}
		out.System = append(out.System, b)
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema})
	}
	if n := len(out.Tools); n > 0 {
		out.Tools[n-1].Cache = mark
		if r.NoCalls {
			out.ToolChoice = &typed{"none"}
		}
	}
	if r.Effort != "" && !w.noEffort.Load() {
		out.OutputConfig, out.Thinking = &outputConfig{r.Effort}, &typed{"adaptive"}
	}
	for _, m := range r.Messages {
		msg := message{Role: string(m.Role)}
		var result *block
		for _, b := range m.Blocks {
			if b.Kind == history.Thinking && w.noThoughts.Load() {
				continue
			}
			next := encodeBlock(b, r.Load)
			switch {
			case next == nil:
			case b.Kind == history.File && result != nil:
				result.Content = append(result.Content, next.(*block))
			default:
				msg.Content = append(msg.Content, next)
			}
			switch b.Kind {
			case history.Result:
				result = next.(*block)
			case history.Text:
				result = nil
			}
		}
		if len(msg.Content) > 0 {
			out.Messages = append(out.Messages, msg)
		}
	}
	for i, marked := len(out.Messages)-1, 0; i >= 0 && marked < 2; i-- {
		if m := out.Messages[i]; m.Role == "user" {
			if b, ok := m.Content[len(m.Content)-1].(*block); ok {
				b.Cache = mark
				marked++
			}
		}
	}
	return out, nil
}

// encodeBlock returns nil for what this API has no use for.
func encodeBlock(b history.Block, load func(string) ([]byte, error)) any {
	switch b.Kind {
	case history.Text:
		return &block{Type: "text", Text: b.Text}
	case history.Call:
		return &block{Type: "tool_use", ID: b.ID, Name: b.Name, Input: b.Args}
	case history.Result:
		out := &block{Type: "tool_result", ToolUseID: b.ID, IsError: b.IsError}
		if b.Text != "" {
			out.Content = []*block{{Type: "text", Text: b.Text}}
		}
		return out
	case history.Thinking:
		if b.Wire == Name {
			return b.Raw
		}
	case history.File:
		content, err := load(b.Path)
		if err != nil {
			return &block{Type: "text", Text: wire.Gone(b)}
		}
		out := &block{Type: "image", Source: &source{"base64", b.MimeType, base64.StdEncoding.EncodeToString(content)}}
		if b.MimeType == "application/pdf" {
			out.Type, out.Title = "document", b.Name
		}
		return out
	}
	return nil
}
