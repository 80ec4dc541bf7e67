package modelserver

import (
	"encoding/json"
	"fmt"
	"strings"
)

type openaiTool struct {
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

// openaiPart is a part of a content, in either API.
type openaiPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	ImageURL json.RawMessage `json:"image_url"` // a string, or an object with one
	FileData string          `json:"file_data"`
	File     struct {
		FileData string `json:"file_data"`
	} `json:"file"`
}

func (m *Message) parts(content json.RawMessage) {
	var s string
	if json.Unmarshal(content, &s) == nil {
		m.Text = s
		return
	}
	var list []openaiPart
	if json.Unmarshal(content, &list) != nil {
		return
	}
	var texts []string
	for _, p := range list {
		switch p.Type {
		case "text", "input_text", "output_text":
			texts = append(texts, p.Text)
		case "image_url", "input_image":
			var url struct {
				URL string `json:"url"`
			}
			if json.Unmarshal(p.ImageURL, &url) != nil {
				_ = json.Unmarshal(p.ImageURL, &url.URL)
			}
			m.Media = append(m.Media, dataURL(url.URL))
		case "file", "input_file":
			m.Media = append(m.Media, dataURL(p.FileData+p.File.FileData))
		}
	}
	m.Text = strings.Join(texts, "\n")
}

func readResponses(out *Request, body []byte) error {
	var in struct {
		Model        string `json:"model"`
		Stream       bool   `json:"stream"`
		Instructions string `json:"instructions"`
		Input        []struct {
			Type    string          `json:"type"`
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Name    string          `json:"name"`
			Output  json.RawMessage `json:"output"`
		} `json:"input"`
		Tools []openaiTool `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	out.Model, out.Stream, out.System = in.Model, in.Stream, in.Instructions
	for _, t := range in.Tools {
		out.Tools = append(out.Tools, t.Name)
	}
	for _, i := range in.Input {
		m := Message{Role: i.Role}
		switch i.Type {
		case "", "message":
			m.parts(i.Content)
		case "function_call", "custom_tool_call":
			m.Role, m.Calls = "assistant", []string{i.Name}
		case "reasoning":
			m.Role = "assistant"
		case "function_call_output", "custom_tool_call_output":
			m.Role = "user"
			m.parts(i.Output)
			m.Results, m.Text = []ToolResult{{Text: m.Text, IsError: strings.HasPrefix(m.Text, "Error: ")}}, ""
		}
		if m.Role == "developer" || m.Role == "system" {
			out.System += "\n" + m.Text
			continue
		}
		out.add(m)
	}
	return nil
}

func streamResponses(p *play) {
	p.w.Header().Set("Content-Type", "text/event-stream")
	number := 0
	send := func(kind string, fields object) {
		fields["type"], fields["sequence_number"] = kind, number
		number++
		p.line("event: "+kind+"\ndata: ", fields, "\n\n")
	}
	response := func(status string, output []object) object {
		return object{"id": "resp_" + p.id, "object": "response", "status": status, "model": p.model, "output": output, "error": nil, "incomplete_details": nil}
	}
	send("response.created", object{"response": response("in_progress", []object{})})
	output := []object{}
	for _, text := range p.texts() {
		at := len(output)
		item := object{"type": "message", "id": fmt.Sprintf("msg_%s_%d", p.id, at), "role": "assistant", "status": "in_progress", "content": []object{}}
		send("response.output_item.added", object{"output_index": at, "item": item})
		part := object{"item_id": item["id"], "output_index": at, "content_index": 0}
		with := func(k string, v any) object {
			o := object{k: v}
			for k, v := range part {
				o[k] = v
			}
			return o
		}
		if !p.pieces(text, func(piece string) { send("response.output_text.delta", with("delta", piece)) }) {
			return
		}
		send("response.output_text.done", with("text", text))
		item["status"], item["content"] = "completed", []object{{"type": "output_text", "text": text, "annotations": []object{}}}
		send("response.output_item.done", object{"output_index": at, "item": item})
		output = append(output, item)
	}
	for i, t := range p.step.Tools {
		at := len(output)
		item := object{"type": "function_call", "id": fmt.Sprintf("fc_%s_%d", p.id, i), "call_id": fmt.Sprintf("call_%s_%d", p.id, i), "name": t.Name, "status": "completed", "arguments": ""}
		if t.Namespace != "" {
			item["namespace"] = t.Namespace
		}
		if t.Custom != "" {
			delete(item, "arguments")
			item["type"], item["input"] = "custom_tool_call", t.Custom
			send("response.output_item.added", object{"output_index": at, "item": item})
			send("response.output_item.done", object{"output_index": at, "item": item})
			output = append(output, item)
			continue
		}
		send("response.output_item.added", object{"output_index": at, "item": item})
		item["arguments"] = string(p.input(t))
		send("response.function_call_arguments.done", object{"item_id": item["id"], "output_index": at, "arguments": item["arguments"]})
		send("response.output_item.done", object{"output_index": at, "item": item})
		output = append(output, item)
	}
	done := response("completed", output)
	in, out := p.usage()
	done["usage"] = object{"input_tokens": in, "output_tokens": out, "total_tokens": in + out, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0}}
	send("response.completed", object{"response": done})
}

func readChat(out *Request, body []byte) error {
	var in struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			ToolCalls []openaiTool    `json:"tool_calls"`
		} `json:"messages"`
		Tools []openaiTool `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	out.Model, out.Stream = in.Model, in.Stream
	for _, t := range in.Tools {
		out.Tools = append(out.Tools, t.Function.Name)
	}
	for _, v := range in.Messages {
		m := Message{Role: v.Role}
		m.parts(v.Content)
		switch v.Role {
		case "system":
			out.System += m.Text
			continue
		case "tool":
			m = Message{Role: "user", Results: []ToolResult{{Text: m.Text, IsError: strings.HasPrefix(m.Text, "Error: ")}}}
		}
		for _, c := range v.ToolCalls {
			m.Calls = append(m.Calls, c.Function.Name)
		}
		out.add(m)
	}
	return nil
}

func streamChat(p *play) {
	p.w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta object, finish any) {
		p.line("data: ", object{
			"id": "chatcmpl-" + p.id, "object": "chat.completion.chunk", "created": 1, "model": p.model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
		}, "\n\n")
	}
	send(object{"role": "assistant", "content": ""}, nil)
	for _, text := range p.texts() {
		if !p.pieces(text, func(piece string) { send(object{"content": piece}, nil) }) {
			return
		}
	}
	finish := "stop"
	for i, t := range p.step.Tools {
		finish = "tool_calls"
		args := string(p.input(t))
		for n, part := range []string{args[:len(args)/2], args[len(args)/2:]} {
			call := object{"index": i, "function": object{"arguments": part}}
			if n == 0 {
				call = object{"index": i, "id": fmt.Sprintf("call_%s_%d", p.id, i), "type": "function", "function": object{"name": t.Name, "arguments": part}}
			}
			send(object{"tool_calls": []object{call}}, nil)
		}
	}
	send(object{}, finish)
	in, out := p.usage()
	p.line("data: ", object{
		"id": "chatcmpl-" + p.id, "object": "chat.completion.chunk", "created": 1, "model": p.model, "choices": []object{},
		"usage": object{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out},
	}, "\n\n")
	_, _ = fmt.Fprint(p.w, "data: [DONE]\n\n")
	p.flush()
}
