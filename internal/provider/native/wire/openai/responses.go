package openai

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/wire"
)

type responsesRequest struct {
	Model        string         `json:"model"`
	Instructions string         `json:"instructions,omitempty"`
	Input        []any          `json:"input"` // *item, or a thought as it came
	Tools        []responseTool `json:"tools,omitempty"`
	ToolChoice   string         `json:"tool_choice,omitempty"`
	Stream       bool           `json:"stream"`
	Store        bool           `json:"store"`
	Include      []string       `json:"include,omitempty"`
	Reasoning    *reasoning     `json:"reasoning,omitempty"`
	CacheKey     string         `json:"prompt_cache_key,omitempty"`
}

type reasoning struct {
	Effort string `json:"effort"`
}

type responseTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

type item struct {
	Type      string    `json:"type"`
	Role      string    `json:"role,omitempty"`
	Content   any       `json:"content,omitempty"` // a string, or []content
	CallID    string    `json:"call_id,omitempty"`
	Name      string    `json:"name,omitempty"`
	Arguments string    `json:"arguments,omitempty"`
	Output    []content `json:"output,omitempty"`
}

type content struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	ImageURL string `json:"image_url,omitempty"`
	FileName string `json:"filename,omitempty"`
	FileData string `json:"file_data,omitempty"`
}

func (w *Wire) sendResponses(ctx context.Context, r wire.Request, on func(wire.Event)) (wire.Answer, error) {
	in := responsesReader{on: on}
	err := w.post(ctx, "/v1/responses", w.encodeResponses(r), in.event, &in.over)
	return in.answer, err
}

func (w *Wire) encodeResponses(r wire.Request) *responsesRequest {
	out := &responsesRequest{Model: model(r.Model), Instructions: join(r.System), Input: []any{}, Stream: true}
	if !w.noThoughts.Load() {
		out.Include = []string{"reasoning.encrypted_content"}
	}
	if !w.noKey.Load() {
		out.CacheKey = r.Session
	}
	if r.Effort != "" && !w.noEffort.Load() {
		out.Reasoning = &reasoning{effort(r.Effort)}
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, responseTool{Type: "function", Name: t.Name, Description: t.Description, Parameters: t.Schema})
	}
	if r.NoCalls && len(out.Tools) > 0 {
		out.ToolChoice = "none"
	}
	for _, m := range r.Messages {
		var parts []content // of a message of the user
		var result *item
		for _, b := range m.Blocks {
			switch b.Kind {
			case history.Text:
				result = nil
				if m.Role == history.Assistant {
					out.Input = append(out.Input, &item{Type: "message", Role: "assistant", Content: b.Text})
				} else {
					parts = append(parts, content{Type: "input_text", Text: b.Text})
				}
			case history.Call:
				out.Input = append(out.Input, &item{Type: "function_call", CallID: b.ID, Name: b.Name, Arguments: string(b.Args)})
			case history.Result:
				result = &item{Type: "function_call_output", CallID: b.ID, Output: []content{{Type: "input_text", Text: resultText(b)}}}
				out.Input = append(out.Input, result)
			case history.Thinking:
				if b.Wire == Name && !w.noThoughts.Load() {
					out.Input = append(out.Input, b.Raw)
				}
			case history.File:
				c := fileContent(b, r.Load)
				if result != nil {
					result.Output = append(result.Output, c)
				} else {
					parts = append(parts, c)
				}
			}
		}
		if len(parts) > 0 {
			out.Input = append(out.Input, &item{Type: "message", Role: "user", Content: parts})
		}
	}
	return out
}

func join(parts []string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "\n\n")
}

// resultText says what the API has no field for.
func resultText(b history.Block) string {
	if b.IsError {
		return "Error: " + b.Text
	}
	return b.Text
}

func fileContent(b history.Block, load func(string) ([]byte, error)) content {
	data, err := load(b.Path)
	switch {
	case err != nil:
		return content{Type: "input_text", Text: wire.Gone(b)}
	case b.MimeType == "application/pdf":
		return content{Type: "input_file", FileName: b.Name, FileData: wire.DataURL(b.MimeType, data)}
	}
	return content{Type: "input_image", ImageURL: wire.DataURL(b.MimeType, data)}
}

type responsesReader struct {
	on     func(wire.Event)
	answer wire.Answer
	over   bool
}

type responseEvent struct {
	Type     string          `json:"type"`
	Item     json.RawMessage `json:"item"`
	Response struct {
		Usage      tokens      `json:"usage"`
		Error      errorObject `json:"error"`
		Incomplete struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
	} `json:"response"`
	errorFields
	Error errorObject `json:"error"`
}

// errorFields are those of an error event, which has them at its top.
type errorFields struct {
	Code    json.RawMessage `json:"code"`
	Message string          `json:"message"`
}

type outputItem struct {
	Type    string `json:"type"`
	Content []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Encrypted string `json:"encrypted_content"`
}

func (r *responsesReader) event(_ string, data []byte) error {
	if string(data) == "[DONE]" {
		return nil
	}
	var e responseEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return wire.Unexpected("an event is no JSON", err)
	}
	r.on(wire.Event{})
	switch e.Type {
	case "response.output_item.done":
		return r.item(e.Item)
	case "response.completed", "response.incomplete":
		r.answer.Usage, r.over = e.Response.Usage.usage(), true
		if r.answer.Stop == "" {
			r.answer.Stop = wire.Done
		}
		switch e.Response.Incomplete.Reason {
		case "":
		case "content_filter":
			r.answer.Stop = wire.Refused
		default:
			r.answer.Stop = wire.Length
		}
		return errOver
	case "response.failed":
		return streamed(e.Response.Error)
	case "error":
		if e.Message != "" {
			e.Error = errorObject{Code: e.Code, Message: e.Message}
		}
		return streamed(e.Error)
	}
	return nil
}

func (r *responsesReader) item(raw json.RawMessage) error {
	var i outputItem
	if err := json.Unmarshal(raw, &i); err != nil {
		return wire.Unexpected("a part of the answer", err)
	}
	switch i.Type {
	case "message":
		for _, c := range i.Content {
			text := c.Text
			if c.Type == "refusal" {
				text, r.answer.Stop = c.Refusal, wire.Refused
			}
			if strings.TrimSpace(text) != "" {
				r.answer.Blocks = append(r.answer.Blocks, history.Block{Kind: history.Text, Text: text})
				r.on(wire.Event{Text: text})
			}
		}
	case "function_call":
		if i.CallID == "" {
			i.CallID = wire.NewID()
		}
		r.answer.Blocks = append(r.answer.Blocks, wire.Call(i.CallID, i.Name, i.Arguments))
	case "reasoning":
		if i.Encrypted != "" { // without it the API would look for the thought on its own disk
			thought, err := inputThought(raw)
			if err != nil {
				return wire.Unexpected("a thought", err)
			}
			r.answer.Blocks = append(r.answer.Blocks, history.Block{Kind: history.Thinking, Wire: Name, Raw: thought})
		}
	}
	return nil
}

// inputThought is a thought as a request may hold it: without what only answers have.
func inputThought(raw json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, errors.Join(errors.New("no object"), err)
	}
	delete(fields, "status")
	if fields["summary"] == nil {
		fields["summary"] = json.RawMessage("[]")
	}
	return json.Marshal(fields)
}
