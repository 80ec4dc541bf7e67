package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// dialect is another API that the same scripts are served over. Its requests are recorded in the form of the Messages API: tool
// results are messages of the user, system messages are System.
type dialect struct {
	path   string // end of the path
	read   func(out *Request, body []byte) error
	stream func(p *play)
	fail   func(w http.ResponseWriter, status int, kind, message string)
}

// dialects are the APIs beside Messages: OpenAI's Responses and chat completions, and Ollama's.
func dialects() []dialect {
	return []dialect{
		{"/v1/responses", readResponses, streamResponses, openaiFailure},
		{"/v1/chat/completions", readChat, streamChat, openaiFailure},
		{"/api/chat", readOllama, streamOllama, ollamaFailure},
	}
}

func dialectOf(r *http.Request) (dialect, bool) {
	for _, d := range dialects() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, d.path) {
			return d, true
		}
	}
	return dialect{}, false
}

// play is one answer on its way.
type play struct {
	w     http.ResponseWriter
	r     *http.Request
	step  Step
	id    string
	model string
	flush func()
}

// texts are the text blocks of the step.
func (p *play) texts() []string {
	var out []string
	for _, t := range append([]string{p.step.Text}, p.step.Texts...) {
		if t != "" {
			out = append(out, t)
		}
	}
	return out
}

// pieces sends a text in pieces. It reports whether the client is still there.
func (p *play) pieces(text string, send func(piece string)) bool {
	for _, part := range cut(text) {
		send(part)
		if !pause(p.r, p.step.PaceMS) {
			return false
		}
		if p.step.Cut {
			panic(http.ErrAbortHandler)
		}
	}
	return true
}

func (p *play) input(t Tool) json.RawMessage {
	if len(t.Input) == 0 {
		return json.RawMessage("{}")
	}
	return t.Input
}

func (p *play) usage() (in, out int64) {
	in, out = p.step.InputTokens, p.step.OutputTokens
	if in == 0 {
		in = 100
	}
	if out == 0 {
		out = 10
	}
	return in, out
}

// line writes JSON behind a prefix.
func (p *play) line(prefix string, v any, end string) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(http.ErrAbortHandler) // the input of a tool was no JSON
	}
	_, _ = fmt.Fprintf(p.w, "%s%s%s", prefix, b, end)
	p.flush()
}

// answerIn plays the step that the conversation has reached.
func (s *Server) answerIn(d dialect, w http.ResponseWriter, r *http.Request, req Request) {
	step, key, err := s.step(req)
	if err != nil {
		d.fail(w, http.StatusBadRequest, "", err.Error())
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
	for k, v := range step.Headers {
		w.Header().Set(k, v)
	}
	if s.fails(key, step) {
		d.fail(w, step.Status, step.Type, step.Message)
		return
	}
	if !req.Stream {
		d.fail(w, http.StatusBadRequest, "", "this server only streams here")
		return
	}
	out := http.NewResponseController(w)
	d.stream(&play{w: w, r: r, step: step, id: s.number(), model: req.Model, flush: func() { _ = out.Flush() }})
}

func openaiFailure(w http.ResponseWriter, status int, kind, message string) {
	if kind == "" {
		if kind = errorTypes[status]; kind == "" {
			kind = "server_error"
		}
	}
	if message == "" {
		message = "scripted " + kind
	}
	writeJSON(w, status, object{"error": object{"type": kind, "message": message, "param": nil, "code": nil}})
}

func ollamaFailure(w http.ResponseWriter, status int, kind, message string) {
	if message == "" {
		message = "scripted error " + kind
	}
	writeJSON(w, status, object{"error": message})
}

// add appends a message; neighbours of one role are one turn.
func (r *Request) add(m Message) {
	if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == m.Role {
		last := &r.Messages[n-1]
		if last.Text != "" && m.Text != "" {
			last.Text += "\n"
		}
		last.Text += m.Text
		last.Results = append(last.Results, m.Results...)
		last.Calls = append(last.Calls, m.Calls...)
		last.Media = append(last.Media, m.Media...)
		return
	}
	r.Messages = append(r.Messages, m)
}

// dataURL is the media of a data: URL.
func dataURL(url string) Media {
	head, data, _ := strings.Cut(strings.TrimPrefix(url, "data:"), ",")
	kind := "image"
	mediaType, _, _ := strings.Cut(head, ";")
	if !strings.HasPrefix(mediaType, "image/") {
		kind = "document"
	}
	return Media{Kind: kind, Type: mediaType, Size: len(data)}
}
