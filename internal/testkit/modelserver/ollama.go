package modelserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

func readOllama(out *Request, body []byte) error {
	var in struct {
		Model    string `json:"model"`
		Stream   *bool  `json:"stream"` // it streams unless told not to
		Messages []struct {
			Role      string       `json:"role"`
			Content   string       `json:"content"`
			Images    []string     `json:"images"`
			ToolCalls []openaiTool `json:"tool_calls"`
		} `json:"messages"`
		Tools []openaiTool `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	out.Model, out.Stream = in.Model, in.Stream == nil || *in.Stream
	for _, t := range in.Tools {
		out.Tools = append(out.Tools, t.Function.Name)
	}
	for _, v := range in.Messages {
		m := Message{Role: v.Role, Text: v.Content}
		switch v.Role {
		case "system":
			out.System += v.Content
			continue
		case "tool":
			m = Message{Role: "user", Results: []ToolResult{{Text: v.Content, IsError: strings.HasPrefix(v.Content, "Error: ")}}}
		}
		for _, c := range v.ToolCalls {
			m.Calls = append(m.Calls, c.Function.Name)
		}
		for _, i := range v.Images { // the API knows no type: the content says it
			head := i[:min(len(i), 64)]
			raw, _ := base64.StdEncoding.DecodeString(head[:len(head)/4*4])
			m.Media = append(m.Media, Media{Kind: "image", Type: http.DetectContentType(raw), Size: len(i)})
		}
		out.add(m)
	}
	return nil
}

// streamOllama sends calls without ids, as many versions do.
func streamOllama(p *play) {
	p.w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(message, more object) {
		line := object{"model": p.model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false}
		for k, v := range more {
			line[k] = v
		}
		p.line("", line, "\n")
	}
	for _, text := range p.texts() {
		if !p.pieces(text, func(piece string) { send(object{"role": "assistant", "content": piece}, nil) }) {
			return
		}
	}
	for _, t := range p.step.Tools {
		send(object{"role": "assistant", "content": "", "tool_calls": []object{{"function": object{"name": t.Name, "arguments": p.input(t)}}}}, nil)
	}
	in, out := p.usage()
	send(object{"role": "assistant", "content": ""}, object{
		"done": true, "done_reason": "stop", "prompt_eval_count": in, "eval_count": out, "total_duration": 1000, "load_duration": 1, "prompt_eval_duration": 1, "eval_duration": 1,
	})
}

// showOllama answers /api/show: a model with tools and pictures and a small context.
func showOllama(w http.ResponseWriter) {
	writeJSON(w, http.StatusOK, object{
		"capabilities": []string{"completion", "tools", "vision"},
		"model_info":   map[string]json.RawMessage{"general.architecture": json.RawMessage(`"fake"`), "fake.context_length": json.RawMessage("40960")},
	})
}
