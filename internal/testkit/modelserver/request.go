package modelserver

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"time"
)

// Request is what a client sent.
type Request struct {
	At       time.Time
	Method   string
	Path     string
	Header   http.Header // with credentials: tests look for them
	Body     []byte
	Model    string
	Stream   bool
	System   string // all blocks of the system prompt, joined by newlines
	Messages []Message
	Tools    []string
}

// Message is one turn of the conversation as the client sent it.
type Message struct {
	Role    string
	Text    string // all text blocks, joined by newlines
	Results []ToolResult
	Calls   []string // names of the tools an assistant turn calls
	Media   []Media  // pictures and documents, in order
}

// Media is a picture or document of a message.
type Media struct {
	Kind string // image or document
	Type string // its media type
	Size int    // bytes as sent, so in base64
}

// ToolResult is what a tool gave.
type ToolResult struct {
	Text    string
	IsError bool
}

// LastText is the text of the newest message of a role; "" without one.
func (r Request) LastText(role string) string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == role && r.Messages[i].Text != "" {
			return r.Messages[i].Text
		}
	}
	return ""
}

// Contains reports whether any message holds the text.
func (r Request) Contains(text string) bool {
	for _, m := range r.Messages {
		if strings.Contains(m.Text, text) {
			return true
		}
		for _, t := range m.Results {
			if strings.Contains(t.Text, text) {
				return true
			}
		}
	}
	return false
}

// IsMessages reports whether the request asks the model, rather than for a token count or something else.
func (r Request) IsMessages() bool {
	for _, d := range dialects() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, d.path) {
			return true
		}
	}
	return r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/v1/messages")
}

type block struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Name    string          `json:"name"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error"`
	Source  json.RawMessage `json:"source"`
}

// media is the source of a picture or document.
func (b block) media() Media {
	var source struct {
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
	if json.Unmarshal(b.Source, &source) != nil {
		return Media{Kind: b.Type}
	}
	return Media{Kind: b.Type, Type: source.MediaType, Size: len(source.Data)}
}

const maxBody = 64 << 20

func readRequest(r *http.Request) (Request, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return Request{}, fmt.Errorf("read the request: %w", err)
	}
	out := Request{At: time.Now(), Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Body: body}
	if r.Method != http.MethodPost || len(body) == 0 {
		return out, nil
	}
	if d, ok := dialectOf(r); ok {
		err := d.read(&out, body)
		return out, err
	}
	var in struct {
		Model    string          `json:"model"`
		Stream   bool            `json:"stream"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, fmt.Errorf("decode the request: %w", err)
	}
	out.Model, out.Stream, out.System = in.Model, in.Stream, plain(in.System)
	for _, t := range in.Tools {
		out.Tools = append(out.Tools, t.Name)
	}
	for _, m := range in.Messages {
		msg := Message{Role: m.Role, Text: plain(m.Content)}
		for _, b := range blocks(m.Content) {
			switch b.Type {
			case "tool_result":
				msg.Results = append(msg.Results, ToolResult{Text: plain(b.Content), IsError: b.IsError})
			case "tool_use":
				msg.Calls = append(msg.Calls, b.Name)
			case "image", "document":
				msg.Media = append(msg.Media, b.media())
			}
		}
		out.Messages = append(out.Messages, msg)
	}
	return out, nil
}

func blocks(content json.RawMessage) []block {
	var list []block
	if json.Unmarshal(content, &list) != nil {
		return nil
	}
	return list
}

// plain is the text of a content, which is a string or a list of blocks.
func plain(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var texts []string
	for _, b := range blocks(content) {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

const (
	scriptOpen  = "SCRIPT:"
	scriptClose = ":END"
)

// step finds the answer to play. key names the place in the conversation.
func (s *Server) step(req Request) (step Step, key string, err error) {
	step, key, err = s.scripted(req)
	if step.Repeat > 0 {
		step.Text = strings.Repeat(step.Text, step.Repeat)
	}
	if s.opt.OnlyOffered && len(req.Tools) == 0 && len(step.Tools) > 0 {
		if step.Tools = nil; step.Text == "" {
			step.Text = "ok"
		}
	}
	return step, key, err
}

func (s *Server) scripted(req Request) (step Step, key string, err error) {
	turns := 0
	for i := len(req.Messages) - 1; i >= 0; i-- {
		m := req.Messages[i]
		if m.Role == "assistant" {
			turns++
			continue
		}
		at := strings.LastIndex(m.Text, scriptOpen)
		if m.Role != "user" || at < 0 {
			continue
		}
		text, _, ok := strings.Cut(m.Text[at+len(scriptOpen):], scriptClose)
		if !ok {
			continue
		}
		steps, err := decodeSteps(text)
		if err != nil {
			return Step{}, "", err
		}
		return pick(steps, turns), fmt.Sprint(turns, text), nil
	}
	return pick(s.opt.Steps, turns), fmt.Sprint(turns), nil
}

func pick(steps []Step, at int) Step {
	if at < len(steps) {
		return steps[at]
	}
	return Step{Text: "ok"}
}

func decodeSteps(text string) ([]Step, error) {
	var steps []Step
	err := json.Unmarshal([]byte(text), &steps)
	if err != nil {
		err = json.Unmarshal([]byte(html.UnescapeString(text)), &steps)
	}
	if err != nil {
		return nil, fmt.Errorf("the script is no list of steps: %w", err)
	}
	return steps, nil
}

// Script puts steps into the form that a prompt carries.
func Script(steps ...Step) string {
	b, err := json.Marshal(steps)
	if err != nil {
		panic(err) // a Step holds nothing that JSON cannot say, but for a broken Input
	}
	return scriptOpen + string(b) + scriptClose
}
