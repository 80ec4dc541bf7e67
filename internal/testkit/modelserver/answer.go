package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

const piece = 24 // bytes of text in one delta

type object map[string]any

// answer plays the step that the conversation has reached.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, req Request) {
	step, key, err := s.step(req)
	if err != nil {
		failure(w, http.StatusBadRequest, "", err.Error())
		return
	}
	if step.Gate != "" {
		s.mu.Lock()
		gate := s.gate(step.Gate)
		s.mu.Unlock()
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
	}
	if !pause(r, step.DelayMS) {
		return
	}
	id := s.number()
	w.Header().Set("request-id", "req_"+id)
	for k, v := range step.Headers {
		w.Header().Set(k, v)
	}
	if s.fails(key, step) {
		failure(w, step.Status, step.Type, step.Message)
		return
	}
	content := step.content(id)
	if !req.Stream {
		writeJSON(w, http.StatusOK, step.message(id, req.Model, content))
		return
	}
	stream(w, r, step, step.message(id, req.Model, content), content)
}

func (s Step) content(id string) []object {
	var out []object
	for _, t := range append([]string{s.Text}, s.Texts...) {
		if t != "" {
			out = append(out, object{"type": "text", "text": t})
		}
	}
	for i, t := range s.Tools {
		input := t.Input
		if len(input) == 0 {
			input = json.RawMessage("{}")
		}
		out = append(out, object{"type": "tool_use", "id": fmt.Sprintf("toolu_%s_%d", id, i), "name": t.Name, "input": input})
	}
	return out
}

func (s Step) stop() string {
	if len(s.Tools) > 0 {
		return "tool_use"
	}
	return "end_turn"
}

func (s Step) usage() object {
	in, out := s.InputTokens, s.OutputTokens
	if in == 0 {
		in = 100
	}
	if out == 0 {
		out = 10
	}
	return object{"input_tokens": in, "output_tokens": out, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
}

func (s Step) message(id, model string, content []object) object {
	return object{
		"id": "msg_" + id, "type": "message", "role": "assistant", "model": model, "content": content,
		"stop_reason": s.stop(), "stop_sequence": nil, "usage": s.usage(),
	}
}

// stream sends the message as server-sent events.
func stream(w http.ResponseWriter, r *http.Request, step Step, message object, content []object) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	send := func(name string, data object) {
		data["type"] = name
		b, err := json.Marshal(data)
		if err != nil {
			panic(http.ErrAbortHandler) // the input of a tool was no JSON
		}
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, b)
		_ = out.Flush()
	}
	start := object{}
	for k, v := range message {
		start[k] = v
	}
	start["content"], start["stop_reason"] = []object{}, nil
	send("message_start", object{"message": start})
	send("ping", object{})
	for i, b := range content {
		var open, delta object
		var parts []string
		if b["type"] == "text" {
			open = object{"type": "text", "text": ""}
			parts = cut(b["text"].(string))
		} else {
			open = object{"type": "tool_use", "id": b["id"], "name": b["name"], "input": object{}}
			parts = []string{string(b["input"].(json.RawMessage))}
		}
		send("content_block_start", object{"index": i, "content_block": open})
		for _, p := range parts {
			if delta = (object{"type": "text_delta", "text": p}); b["type"] != "text" {
				delta = object{"type": "input_json_delta", "partial_json": p}
			}
			send("content_block_delta", object{"index": i, "delta": delta})
			if !pause(r, step.PaceMS) {
				return
			}
			if step.Cut {
				panic(http.ErrAbortHandler)
			}
		}
		send("content_block_stop", object{"index": i})
	}
	send("message_delta", object{"delta": object{"stop_reason": step.stop(), "stop_sequence": nil}, "usage": step.usage()})
	send("message_stop", object{})
}

// cut splits a text into pieces of whole characters.
func cut(text string) []string {
	var out []string
	piece := max(piece, len(text)/100)
	for len(text) > piece {
		n := piece
		for n > 1 && !utf8.RuneStart(text[n]) {
			n--
		}
		out = append(out, text[:n])
		text = text[n:]
	}
	return append(out, text)
}

// pause reports whether the client is still there after ms milliseconds.
func pause(r *http.Request, ms int) bool {
	if ms <= 0 {
		return true
	}
	t := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

var errorTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error",
}

func failure(w http.ResponseWriter, status int, kind, message string) {
	if kind == "" {
		if kind = errorTypes[status]; kind == "" {
			kind = "api_error"
		}
	}
	if message == "" {
		message = "scripted " + kind
	}
	writeJSON(w, status, object{"type": "error", "error": object{"type": kind, "message": message}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
