// Package anthropic speaks the Anthropic Messages API (version 2023-06-01), streaming.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/wire"
)

// Name of the provider.
const Name = "anthropic"

// DefaultModel is asked when none is set.
const DefaultModel = "claude-sonnet-5-5"

const (
	apiVersion = "2023-06-01"
	maxTokens  = 32_000
	window     = 200_000
)

// Options of the wire. Endpoint's URL and client are required.
type Options struct {
	Endpoint wire.Endpoint
	Key      string // as the API wants it in X-Api-Key; "" sends none
}

// Wire speaks the API.
type Wire struct {
	opt Options
	// what a model of this conversation did not take is not sent again
	noEffort   atomic.Bool
	noThoughts atomic.Bool
	maxTokens  atomic.Int64
}

// New makes a wire for one conversation.
func New(opt Options) *Wire {
	w := &Wire{opt: opt}
	w.maxTokens.Store(maxTokens)
	w.opt.Endpoint.Header = opt.Endpoint.Header.Clone()
	if w.opt.Endpoint.Header == nil {
		w.opt.Endpoint.Header = http.Header{}
	}
	w.opt.Endpoint.Header.Set("Anthropic-Version", apiVersion)
	if opt.Key != "" {
		w.opt.Endpoint.Header.Set("X-Api-Key", opt.Key)
	}
	return w
}

// Name is "anthropic".
func (w *Wire) Name() string { return Name }

// Window is what every current model has at least.
func (w *Wire) Window(context.Context, string) int64 { return window }

// Model is the id that an alias stands for; any other name is an id.
func Model(name string) string {
	switch strings.ToLower(name) {
	case "", "sonnet", "default":
		return DefaultModel
	case "opus":
		return "claude-opus-5-5"
	case "haiku":
		return "claude-haiku-5-5"
	}
	return name
}

// Send asks once, and once more without what the model says that it does not know.
func (w *Wire) Send(ctx context.Context, r wire.Request, on func(wire.Event)) (wire.Answer, error) {
	for {
		a, err := w.send(ctx, r, on)
		var e *wire.Error
		if !errors.As(err, &e) || e.Status != http.StatusBadRequest || !w.adapt(r, e.Message) {
			return a, err
		}
	}
}

// adapt reports whether the complaint is about a setting that can be left out, and leaves it out from now on.
func (w *Wire) adapt(r wire.Request, complaint string) bool {
	low := strings.ToLower(complaint)
	if strings.Contains(low, "signature") || strings.Contains(low, "redacted_thinking") { // thoughts of another model, or of one that is gone
		return w.noThoughts.CompareAndSwap(false, true)
	}
	if r.Effort != "" && (strings.Contains(low, "thinking") || strings.Contains(low, "effort") || strings.Contains(low, "output_config")) {
		return w.noEffort.CompareAndSwap(false, true)
	}
	if _, rest, ok := strings.Cut(low, "max_tokens: "); ok { // "max_tokens: 32000 > 8192, which is the maximum …"
		var have, most int64
		if n, err := fmt.Sscanf(rest, "%d > %d", &have, &most); n == 2 && err == nil && most > 0 && most < have {
			return w.maxTokens.CompareAndSwap(have, most)
		}
	}
	return false
}

func (w *Wire) send(ctx context.Context, r wire.Request, on func(wire.Event)) (wire.Answer, error) {
	body, err := w.encode(r)
	if err != nil {
		return wire.Answer{}, err
	}
	in := reader{on: on}
	err = w.opt.Endpoint.Post(ctx, "/v1/messages", body, failure, func(_ http.Header, b io.Reader) error {
		if err := wire.Events(b, in.event); err != nil && !errors.Is(err, errOver) {
			return err
		}
		if !in.over {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
	return in.answer, err
}

// failure reads the API's error object and its headers about limits.
func failure(status int, h http.Header, body []byte) *wire.Error {
	var in struct {
		Error errorObject `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil || in.Error.Message == "" {
		in.Error.Message = strings.TrimSpace(string(body[:min(len(body), 500)]))
	}
	e := wire.Failure(status, h, in.Error.Type, in.Error.Message)
	limits(e, h)
	return e
}

// limits looks at the headers about windows of a subscription. They come with every answer; only a rejected request is a limit
// (spec/bugs.md PRV-1).
func limits(e *wire.Error, h http.Header) {
	const prefix = "Anthropic-Ratelimit-Unified-"
	if h.Get(prefix+"Status") != "rejected" {
		return
	}
	e.Class, e.Retryable = provider.ClassRateLimit, false
	switch h.Get(prefix + "Overage-Disabled-Reason") {
	case "out_of_credits", "credits_required":
		e.Class = provider.ClassQuota
	}
	if at, ok := instant(h.Get(prefix + "Reset")); ok {
		e.ResetsAt = at
	}
}

// instant reads seconds or milliseconds since 1970.
func instant(s string) (time.Time, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil || n <= 0:
		return time.Time{}, false
	case n >= 1e12:
		return time.UnixMilli(n), true
	}
	return time.Unix(n, 0), true
}

type errorObject struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// errOver ends the reading of a stream that is complete.
var errOver = errors.New("the answer is complete")

// reader puts the events of a stream together.
type reader struct {
	on      func(wire.Event)
	answer  wire.Answer
	current streamBlock
	partial strings.Builder // of the current block: text, thinking or arguments
	sign    strings.Builder
	open    bool
	over    bool
}

type streamBlock struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
}

type usage struct {
	Input       int64 `json:"input_tokens"`
	Output      int64 `json:"output_tokens"`
	CacheRead   int64 `json:"cache_read_input_tokens"`
	CacheCreate int64 `json:"cache_creation_input_tokens"`
}

type streamEvent struct {
	Type    string `json:"type"`
	Message struct {
		Usage usage `json:"usage"`
	} `json:"message"`
	Block streamBlock `json:"content_block"`
	Delta struct {
		Type       string `json:"type"`
		Text       string `json:"text"`
		Thinking   string `json:"thinking"`
		Signature  string `json:"signature"`
		Partial    string `json:"partial_json"`
		StopReason string `json:"stop_reason"`
	} `json:"delta"`
	Usage *usage      `json:"usage"`
	Error errorObject `json:"error"`
}

func (r *reader) event(_ string, data []byte) error {
	var e streamEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return wire.Unexpected("an event is no JSON", err)
	}
	r.on(wire.Event{})
	switch e.Type {
	case "message_start":
		r.count(e.Message.Usage)
	case "content_block_start":
		r.current, r.open = e.Block, true
		r.partial.Reset()
		r.sign.Reset()
		r.partial.WriteString(e.Block.Text + e.Block.Thinking)
		r.sign.WriteString(e.Block.Signature)
	case "content_block_delta":
		r.partial.WriteString(e.Delta.Text + e.Delta.Thinking + e.Delta.Partial) // one of them
		r.sign.WriteString(e.Delta.Signature)
	case "content_block_stop":
		if r.open {
			r.open = false
			return r.finish()
		}
	case "message_delta":
		if e.Usage != nil {
			r.count(*e.Usage)
		}
		switch e.Delta.StopReason {
		case "":
		case "max_tokens", "model_context_window_exceeded":
			r.answer.Stop = wire.Length
		case "refusal":
			r.answer.Stop = wire.Refused
		default:
			r.answer.Stop = wire.Done
		}
	case "message_stop":
		r.over = true
		return errOver
	case "error":
		status := map[string]int{"overloaded_error": 529, "rate_limit_error": 429, "invalid_request_error": 400, "authentication_error": 401}[e.Error.Type]
		if status == 0 {
			status = http.StatusInternalServerError
		}
		failed := wire.Failure(status, http.Header{}, e.Error.Type, e.Error.Message)
		failed.Status = 0
		return failed
	}
	return nil
}

// count takes the numbers that an event has; later ones are of the whole answer.
func (r *reader) count(u usage) {
	to := &r.answer.Usage
	for _, n := range []struct {
		to   *int64
		from int64
	}{{&to.InputTokens, u.Input}, {&to.OutputTokens, u.Output}, {&to.CacheReadTokens, u.CacheRead}, {&to.CacheCreationTokens, u.CacheCreate}} {
		if n.from > 0 {
			*n.to = n.from
		}
	}
}

func (r *reader) finish() error {
	var b history.Block
	switch r.current.Type {
	case "text":
		b = history.Block{Kind: history.Text, Text: r.partial.String()}
		if strings.TrimSpace(b.Text) == "" {
			return nil
		}
		r.on(wire.Event{Text: b.Text})
	case "tool_use":
		b = wire.Call(r.current.ID, r.current.Name, r.partial.String())
	case "thinking":
		r.current.Thinking, r.current.Signature = r.partial.String(), r.sign.String()
		return r.keep(thinkingBlock{Type: "thinking", Thinking: r.current.Thinking, Signature: r.current.Signature})
	case "redacted_thinking":
		return r.keep(redactedBlock{Type: "redacted_thinking", Data: r.current.Data})
	default: // of a tool of the server, or newer than this program
		return nil
	}
	r.answer.Blocks = append(r.answer.Blocks, b)
	return nil
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type redactedBlock struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

func (r *reader) keep(thought any) error {
	raw, err := json.Marshal(thought)
	if err != nil {
		return wire.Unexpected("a thought", err)
	}
	r.answer.Blocks = append(r.answer.Blocks, history.Block{Kind: history.Thinking, Wire: Name, Raw: raw})
	return nil
}
