// Package ollama speaks the API of an Ollama server (/api/chat). The server never shortens a conversation by itself: the size of
// the context is always said, and what does not fit is an error.
package ollama

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/wire"
)

// Name of the provider.
const Name = "ollama"

// DefaultModel is asked when none is set.
const DefaultModel = "qwen3"

const (
	// DefaultContext is asked for if the model has more: the server holds memory for all of it.
	DefaultContext = 32_768
	smallest       = 4_096
	keepAlive      = "30m"
)

// Options of the wire. Endpoint's URL and client are required.
type Options struct {
	Endpoint wire.Endpoint
	Key      string // as bearer token, for a server behind a gateway; "" sends none
	Context  int64  // num_ctx; 0: what the model has, up to DefaultContext
}

// Wire speaks the API.
type Wire struct {
	opt Options
	// what the model does not know is not sent again
	noThink, noTools atomic.Bool

	mu    sync.Mutex
	known map[string]facts // by model
}

// facts are what the server says of a model.
type facts struct {
	context int64
	blind   bool // it sees no pictures
}

// New makes a wire for one conversation.
func New(opt Options) *Wire {
	w := &Wire{opt: opt, known: map[string]facts{}}
	w.opt.Endpoint.Header = opt.Endpoint.Header.Clone()
	if w.opt.Endpoint.Header == nil {
		w.opt.Endpoint.Header = http.Header{}
	}
	if opt.Key != "" {
		w.opt.Endpoint.Header.Set("Authorization", "Bearer "+opt.Key)
	}
	return w
}

// Name is "ollama".
func (w *Wire) Name() string { return Name }

// Window is what is asked for: the option, else what the model has, up to DefaultContext.
func (w *Wire) Window(ctx context.Context, name string) int64 {
	return w.facts(ctx, model(name)).context
}

func model(name string) string {
	if name == "" {
		return DefaultModel
	}
	return name
}

// facts asks the server once; one that does not answer is asked again with the next request.
func (w *Wire) facts(ctx context.Context, name string) facts {
	w.mu.Lock()
	f, ok := w.known[name]
	w.mu.Unlock()
	if ok {
		return f
	}
	f = facts{context: DefaultContext}
	var in struct {
		Capabilities []string                   `json:"capabilities"`
		Info         map[string]json.RawMessage `json:"model_info"`
	}
	err := w.opt.Endpoint.Post(ctx, "/api/show", struct {
		Model string `json:"model"`
	}{name}, failure, func(_ http.Header, body io.Reader) error { return json.NewDecoder(body).Decode(&in) })
	for key, raw := range in.Info {
		var n int64
		if strings.HasSuffix(key, ".context_length") && json.Unmarshal(raw, &n) == nil && n > 0 {
			f.context = min(n, DefaultContext)
		}
	}
	f.blind = len(in.Capabilities) > 0 && !slices.Contains(in.Capabilities, "vision")
	if w.opt.Context > 0 {
		f.context = w.opt.Context
	}
	f.context = max(f.context, smallest)
	if err == nil {
		w.mu.Lock()
		w.known[name] = f
		w.mu.Unlock()
	}
	return f
}

// Send asks once, and again without what the model says that it does not know.
func (w *Wire) Send(ctx context.Context, r wire.Request, on func(wire.Event)) (wire.Answer, error) {
	for {
		in := reader{on: on}
		err := w.opt.Endpoint.Post(ctx, "/api/chat", w.encode(r, w.facts(ctx, model(r.Model))), failure, func(_ http.Header, body io.Reader) error {
			if err := wire.Lines(body, in.line); err != nil && !errors.Is(err, errOver) {
				return err
			}
			if !in.over {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		var e *wire.Error
		if errors.As(err, &e) && e.Status == http.StatusBadRequest {
			low := strings.ToLower(e.Message)
			if strings.Contains(low, "does not support thinking") && w.noThink.CompareAndSwap(false, true) ||
				strings.Contains(low, "does not support tools") && w.noTools.CompareAndSwap(false, true) {
				continue
			}
		}
		if err == nil {
			in.finish()
		}
		return in.answer, err
	}
}

func failure(status int, h http.Header, body []byte) *wire.Error {
	var in struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil || in.Error == "" {
		in.Error = strings.TrimSpace(string(body[:min(len(body), 500)]))
	}
	return wire.Failure(status, h, "", in.Error)
}

type request struct {
	Model     string    `json:"model"`
	Messages  []message `json:"messages"`
	Tools     []tool    `json:"tools,omitempty"`
	Stream    bool      `json:"stream"`
	Think     any       `json:"think,omitempty"` // a level
	Options   options   `json:"options"`
	KeepAlive string    `json:"keep_alive"`
	Truncate  bool      `json:"truncate"`
	Shift     bool      `json:"shift"`
}

type options struct {
	NumCtx int64 `json:"num_ctx"`
}

type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

type message struct {
	Role       string   `json:"role"`
	Content    string   `json:"content"`
	Thinking   string   `json:"thinking,omitempty"`
	Images     []string `json:"images,omitempty"`
	ToolCalls  []call   `json:"tool_calls,omitempty"`
	ToolName   string   `json:"tool_name,omitempty"`
	ToolCallID string   `json:"tool_call_id,omitempty"`
}

type call struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // an object
	} `json:"function"`
}

func (w *Wire) encode(r wire.Request, f facts) *request {
	out := &request{Model: model(r.Model), Stream: true, Options: options{f.context}, KeepAlive: keepAlive}
	if r.Effort != "" && !w.noThink.Load() {
		out.Think = map[string]string{"low": "low", "medium": "medium"}[r.Effort]
		if out.Think == "" {
			out.Think = "high"
		}
	}
	if !r.NoCalls && !w.noTools.Load() {
		for _, t := range r.Tools {
			v := tool{Type: "function"}
			v.Function.Name, v.Function.Description, v.Function.Parameters = t.Name, t.Description, t.Schema
			out.Tools = append(out.Tools, v)
		}
	}
	for _, s := range r.System {
		if s == "" {
			continue
		}
		if len(out.Messages) > 0 {
			out.Messages[0].Content += "\n\n" + s
			continue
		}
		out.Messages = append(out.Messages, message{Role: "system", Content: s})
	}
	for _, m := range r.Messages {
		out.Messages = append(out.Messages, encodeMessage(m, r.Load, f.blind)...)
	}
	return out
}

func encodeMessage(m history.Message, load func(string) ([]byte, error), blind bool) []message {
	if m.Role == history.Assistant {
		out := message{Role: "assistant", Content: m.Plain()}
		for _, b := range m.Blocks {
			switch b.Kind {
			case history.Call:
				c := call{ID: b.ID}
				c.Function.Name, c.Function.Arguments = b.Name, b.Args
				out.ToolCalls = append(out.ToolCalls, c)
			case history.Thinking:
				if b.Wire == Name {
					_ = json.Unmarshal(b.Raw, &out.Thinking) // it is a string: this package wrote it
				}
			}
		}
		return []message{out}
	}
	var out []message
	said := message{Role: "user"}
	add := func(text string) {
		if said.Content != "" {
			said.Content += "\n"
		}
		said.Content += text
	}
	for _, b := range m.Blocks {
		switch b.Kind {
		case history.Result:
			text := b.Text
			if b.IsError {
				text = "Error: " + text
			}
			out = append(out, message{Role: "tool", Content: text, ToolName: b.Name, ToolCallID: b.ID})
		case history.Text:
			add(b.Text)
		case history.File:
			content, err := load(b.Path)
			if err != nil || blind || !strings.HasPrefix(b.MimeType, "image/") {
				add(wire.Gone(b))
				continue
			}
			said.Images = append(said.Images, base64.StdEncoding.EncodeToString(content))
		}
	}
	if said.Content != "" || len(said.Images) > 0 {
		out = append(out, said)
	}
	return out
}

var errOver = errors.New("the answer is complete")

type reader struct {
	on      func(wire.Event)
	answer  wire.Answer
	text    strings.Builder
	thought strings.Builder
	calls   []call
	over    bool
}

type line struct {
	Message    message `json:"message"`
	Done       bool    `json:"done"`
	DoneReason string  `json:"done_reason"`
	Prompt     int64   `json:"prompt_eval_count"`
	Eval       int64   `json:"eval_count"`
	Error      string  `json:"error"`
}

func (r *reader) line(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		return wire.Unexpected("a line is no JSON", err)
	}
	r.on(wire.Event{})
	if l.Error != "" {
		e := wire.Failure(http.StatusInternalServerError, http.Header{}, "", l.Error)
		e.Status = 0
		return e
	}
	r.text.WriteString(l.Message.Content)
	r.thought.WriteString(l.Message.Thinking)
	r.calls = append(r.calls, l.Message.ToolCalls...)
	if !l.Done {
		return nil
	}
	r.over = true
	r.answer.Usage = provider.Usage{InputTokens: l.Prompt, OutputTokens: l.Eval}
	r.answer.Stop = wire.Done
	if l.DoneReason == "length" {
		r.answer.Stop = wire.Length
	}
	return errOver
}

// finish makes the blocks: the text is whole only at the end. A call without an id gets one.
func (r *reader) finish() {
	if t := r.thought.String(); t != "" {
		if raw, err := json.Marshal(t); err == nil {
			r.answer.Blocks = append(r.answer.Blocks, history.Block{Kind: history.Thinking, Wire: Name, Raw: raw})
		}
	}
	if t := r.text.String(); strings.TrimSpace(t) != "" {
		r.answer.Blocks = append(r.answer.Blocks, history.Block{Kind: history.Text, Text: t})
		r.on(wire.Event{Text: t})
	}
	for _, c := range r.calls {
		if c.ID == "" {
			c.ID = wire.NewID()
		}
		r.answer.Blocks = append(r.answer.Blocks, wire.Call(c.ID, c.Function.Name, string(c.Function.Arguments)))
	}
}
