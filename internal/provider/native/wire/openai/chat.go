package openai

import (
	"context"
	"encoding/json"
	"strings"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/wire"
)

type chatRequest struct {
	Model         string         `json:"model"`
	Messages      []chatMessage  `json:"messages"`
	Tools         []chatTool     `json:"tools,omitempty"`
	ToolChoice    string         `json:"tool_choice,omitempty"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
	Effort        string         `json:"reasoning_effort,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content,omitempty"` // a string, or []chatPart
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatPart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *chatURL  `json:"image_url,omitempty"`
	File     *chatFile `json:"file,omitempty"`
}

type chatURL struct {
	URL string `json:"url"`
}

type chatFile struct {
	Name string `json:"filename"`
	Data string `json:"file_data"`
}

type chatCall struct {
	Index    int    `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (w *Wire) sendChat(ctx context.Context, r wire.Request, on func(wire.Event)) (wire.Answer, error) {
	in := chatReader{on: on}
	err := w.post(ctx, "/v1/chat/completions", w.encodeChat(r), in.event, &in.over)
	if err == nil {
		in.finish()
	}
	return in.answer, err
}

func (w *Wire) encodeChat(r wire.Request) *chatRequest {
	out := &chatRequest{Model: model(r.Model), Stream: true}
	if !w.noUsage.Load() {
		out.StreamOptions = &streamOptions{true}
	}
	if r.Effort != "" && !w.noEffort.Load() {
		out.Effort = effort(r.Effort)
	}
	if s := join(r.System); s != "" {
		out.Messages = append(out.Messages, chatMessage{Role: "system", Content: s})
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, chatTool{"function", chatFunction{t.Name, t.Description, t.Schema}})
	}
	if r.NoCalls && len(out.Tools) > 0 {
		out.ToolChoice = "none"
	}
	for _, m := range r.Messages {
		if m.Role == history.Assistant {
			msg := chatMessage{Role: "assistant"}
			if text := m.Plain(); text != "" {
				msg.Content = text
			}
			for _, c := range m.Calls() {
				call := chatCall{ID: c.ID, Type: "function"}
				call.Function.Name, call.Function.Arguments = c.Name, string(c.Args)
				msg.ToolCalls = append(msg.ToolCalls, call)
			}
			if msg.Content != nil || len(msg.ToolCalls) > 0 {
				out.Messages = append(out.Messages, msg)
			}
			continue
		}
		var parts []chatPart
		files := false
		for _, b := range m.Blocks {
			switch b.Kind {
			case history.Result:
				out.Messages = append(out.Messages, chatMessage{Role: "tool", ToolCallID: b.ID, Content: resultText(b)})
			case history.Text:
				parts = append(parts, chatPart{Type: "text", Text: b.Text})
			case history.File: // of a result too: a tool message holds text only
				files = true
				parts = append(parts, chatFilePart(b, r.Load))
			}
		}
		switch {
		case len(parts) == 0:
		case files:
			out.Messages = append(out.Messages, chatMessage{Role: "user", Content: parts})
		default: // many servers take nothing but a string
			out.Messages = append(out.Messages, chatMessage{Role: "user", Content: m.Plain()})
		}
	}
	return out
}

func chatFilePart(b history.Block, load func(string) ([]byte, error)) chatPart {
	data, err := load(b.Path)
	switch {
	case err != nil:
		return chatPart{Type: "text", Text: wire.Gone(b)}
	case b.MimeType == "application/pdf":
		return chatPart{Type: "file", File: &chatFile{b.Name, wire.DataURL(b.MimeType, data)}}
	}
	return chatPart{Type: "image_url", ImageURL: &chatURL{wire.DataURL(b.MimeType, data)}}
}

type chatReader struct {
	on     func(wire.Event)
	answer wire.Answer
	text   strings.Builder
	calls  []chatCall
	over   bool
}

type chatChunk struct {
	Choices []struct {
		Delta struct {
			Content   string     `json:"content"`
			Refusal   string     `json:"refusal"`
			ToolCalls []chatCall `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Input   int64 `json:"prompt_tokens"`
		Output  int64 `json:"completion_tokens"`
		Details struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error *errorObject `json:"error"`
}

func (r *chatReader) event(_ string, data []byte) error {
	if string(data) == "[DONE]" {
		r.over = true
		return errOver
	}
	var e chatChunk
	if err := json.Unmarshal(data, &e); err != nil {
		return wire.Unexpected("an event is no JSON", err)
	}
	r.on(wire.Event{})
	if e.Error != nil {
		return streamed(*e.Error)
	}
	if u := e.Usage; u != nil {
		cached := min(u.Details.Cached, u.Input)
		r.answer.Usage = provider.Usage{InputTokens: u.Input - cached, OutputTokens: u.Output, CacheReadTokens: cached}
	}
	if len(e.Choices) == 0 {
		return nil
	}
	c := e.Choices[0]
	r.text.WriteString(c.Delta.Content + c.Delta.Refusal)
	for _, d := range c.Delta.ToolCalls {
		r.call(d)
	}
	switch c.FinishReason {
	case "":
		return nil
	case "length":
		r.answer.Stop = wire.Length
	case "content_filter":
		r.answer.Stop = wire.Refused
	default:
		r.answer.Stop = wire.Done
	}
	r.over = true // some servers close without [DONE]
	return nil
}

// maxCalls bounds what an index may be.
const maxCalls = 128

// call adds a piece of a call. Servers that number nothing send each call whole, with an id of its own.
func (r *chatReader) call(d chatCall) {
	at := d.Index
	if at >= 0 && at < len(r.calls) && d.ID != "" && r.calls[at].ID != "" && d.ID != r.calls[at].ID {
		at = len(r.calls)
	}
	if at < 0 || at > len(r.calls) || at >= maxCalls {
		return
	}
	if at == len(r.calls) {
		r.calls = append(r.calls, chatCall{})
	}
	c := &r.calls[at]
	if d.ID != "" {
		c.ID = d.ID
	}
	c.Function.Name += d.Function.Name
	c.Function.Arguments += d.Function.Arguments
}

// finish makes the blocks: the text is whole only at the end.
func (r *chatReader) finish() {
	if text := r.text.String(); strings.TrimSpace(text) != "" {
		r.answer.Blocks = append(r.answer.Blocks, history.Block{Kind: history.Text, Text: text})
		r.on(wire.Event{Text: text})
	}
	for _, c := range r.calls {
		if c.ID == "" {
			c.ID = wire.NewID()
		}
		r.answer.Blocks = append(r.answer.Blocks, wire.Call(c.ID, c.Function.Name, c.Function.Arguments))
	}
	if r.answer.Stop == "" {
		r.answer.Stop = wire.Done
	}
}
