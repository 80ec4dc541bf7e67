// Package openai speaks the Responses API of OpenAI and, by option or when a server does not know it, chat completions, which
// every compatible server speaks.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/wire"
)

// Name of the provider.
const Name = "openai"

// DefaultModel is asked when none is set.
const DefaultModel = "gpt-5.5"

// Options of the wire. Endpoint's URL and client are required.
type Options struct {
	Endpoint wire.Endpoint
	Key      string // as bearer token; "" sends none
	Chat     bool   // chat completions from the start
}

// Wire speaks the API.
type Wire struct {
	opt  Options
	chat atomic.Bool
	// what a model of this conversation did not take is not sent again
	noEffort, noThoughts, noKey, noUsage atomic.Bool
}

// New makes a wire for one conversation.
func New(opt Options) *Wire {
	w := &Wire{opt: opt}
	w.chat.Store(opt.Chat)
	w.opt.Endpoint.Header = opt.Endpoint.Header.Clone()
	if w.opt.Endpoint.Header == nil {
		w.opt.Endpoint.Header = http.Header{}
	}
	if opt.Key != "" {
		w.opt.Endpoint.Header.Set("Authorization", "Bearer "+opt.Key)
	}
	return w
}

// Name is "openai".
func (w *Wire) Name() string { return Name }

// Window goes by the name; a name that nothing is known of gets what most models have.
func (w *Wire) Window(_ context.Context, name string) int64 {
	switch name = model(name); {
	case strings.HasPrefix(name, "gpt-5"):
		return 272_000
	case strings.HasPrefix(name, "gpt-4.1"):
		return 1_000_000
	case strings.HasPrefix(name, "o3"), strings.HasPrefix(name, "o4"):
		return 200_000
	}
	return 128_000
}

func model(name string) string {
	if name == "" {
		return DefaultModel
	}
	return name
}

// Send asks once, and again without what the model or the server says that it does not know.
func (w *Wire) Send(ctx context.Context, r wire.Request, on func(wire.Event)) (wire.Answer, error) {
	for {
		var a wire.Answer
		var err error
		if w.chat.Load() {
			a, err = w.sendChat(ctx, r, on)
		} else {
			a, err = w.sendResponses(ctx, r, on)
		}
		var e *wire.Error
		if !errors.As(err, &e) || !w.adapt(r, e) {
			return a, err
		}
	}
}

// adapt reports whether the complaint is about something that can be left out or said in another way, and does so from now on.
func (w *Wire) adapt(r wire.Request, e *wire.Error) bool {
	low := strings.ToLower(e.Message)
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return !strings.Contains(low, "model") && w.chat.CompareAndSwap(false, true)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		switch {
		case strings.Contains(low, "encrypted"), strings.Contains(low, "include"):
			return w.noThoughts.CompareAndSwap(false, true)
		case r.Effort != "" && (strings.Contains(low, "reasoning") || strings.Contains(low, "effort")):
			return w.noEffort.CompareAndSwap(false, true)
		case strings.Contains(low, "prompt_cache_key"):
			return w.noKey.CompareAndSwap(false, true)
		case strings.Contains(low, "stream_options"):
			return w.noUsage.CompareAndSwap(false, true)
		}
	}
	return false
}

// effort maps the setting to what the API calls it.
func effort(s string) string {
	if s == "max" {
		return "xhigh"
	}
	return s
}

type errorObject struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"` // a string; some servers send a number
	Message string          `json:"message"`
}

func (o errorObject) kind() string {
	var code string
	if json.Unmarshal(o.Code, &code) == nil && code != "" {
		return code
	}
	return o.Type
}

func failure(status int, h http.Header, body []byte) *wire.Error {
	var in struct {
		Error errorObject `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil || in.Error.Message == "" {
		in.Error.Message = strings.TrimSpace(string(body[:min(len(body), 500)]))
	}
	return wire.Failure(status, h, in.Error.kind(), in.Error.Message)
}

// streamed is an error that came within a stream.
func streamed(o errorObject) *wire.Error {
	status := map[string]int{"rate_limit_exceeded": 429, "invalid_request_error": 400, "invalid_prompt": 400, "server_is_overloaded": 529}[o.kind()]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	e := wire.Failure(status, http.Header{}, o.kind(), o.Message)
	e.Status = 0
	return e
}

// errOver ends the reading of a stream that is complete.
var errOver = errors.New("the answer is complete")

// post sends a request and reads its events; over says whether the last one was there.
func (w *Wire) post(ctx context.Context, path string, body any, event func(name string, data []byte) error, over *bool) error {
	return w.opt.Endpoint.Post(ctx, path, body, failure, func(_ http.Header, b io.Reader) error {
		err := wire.Events(b, event)
		switch {
		case *over: // whatever happened to the connection then
			return nil
		case err == nil:
			return io.ErrUnexpectedEOF
		}
		return err
	})
}

type tokens struct {
	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	Details struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

func (t tokens) usage() provider.Usage {
	cached := min(t.Details.Cached, t.Input)
	return provider.Usage{InputTokens: t.Input - cached, OutputTokens: t.Output, CacheReadTokens: cached}
}
