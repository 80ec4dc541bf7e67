// Package modelserver is a scripted Anthropic Messages API on loopback, for tests: it answers what a script says, streams
// like the real thing and records every request. The same scripts are served over the Responses and chat completions APIs of OpenAI
// and over Ollama's. It imports nothing of ours, so that any suite can use it.
//
// The script stands in the prompt itself, so that the server keeps no state of a conversation and any number of them run
// at once:
//
//	please SCRIPT:[{"text":"Looking.","tools":[{"name":"Bash","input":{"command":"date"}}]},{"text":"Done."}]:END
//
// A list of steps, one per answer; the step that is played is the number of assistant turns after the message that holds
// the script. The text may be escaped as in XML. A request without a script gets Options.Steps, counted over the whole
// conversation; without those, and after the last step, it is answered "ok".
package modelserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Step is one answer. With Status it is an error of the API and is not followed by the next step: the step counts when
// the conversation grows, and it does not.
type Step struct {
	Text  string   `json:"text,omitempty"`
	Texts []string `json:"texts,omitempty"` // more text blocks, after Text
	// Repeat says Text that often, in pieces that grow with it: a long answer of a short script.
	Repeat int    `json:"repeat,omitempty"`
	Tools  []Tool `json:"tools,omitempty"`

	Status  int               `json:"status,omitempty"` // e.g. 429; the body is an error object
	Type    string            `json:"type,omitempty"`   // its type; by default the one that goes with Status
	Message string            `json:"message,omitempty"`
	Times   int               `json:"times,omitempty"` // fail that often, then answer; 0: always
	Headers map[string]string `json:"headers,omitempty"`

	DelayMS      int    `json:"delay_ms,omitempty"` // before the first byte
	PaceMS       int    `json:"pace_ms,omitempty"`  // between the pieces of a text
	Gate         string `json:"gate,omitempty"`     // wait for Open with this name before the first byte
	Cut          bool   `json:"cut,omitempty"`      // drop the connection in the middle of the stream
	InputTokens  int64  `json:"input_tokens,omitempty"`
	OutputTokens int64  `json:"output_tokens,omitempty"`
}

// Tool is one call that the model makes.
type Tool struct {
	Name      string          `json:"name"`
	Namespace string          `json:"namespace,omitempty"` // of the Responses API: the group of tools that Name is one of
	Input     json.RawMessage `json:"input,omitempty"`
	Custom    string          `json:"custom,omitempty"` // of the Responses API: the text that a tool of type custom is called with, instead of Input
}

// Options of a server.
type Options struct {
	Steps []Step // for conversations without a script
	Addr  string // default 127.0.0.1:0
	// OnlyOffered: a request that offers no tools, such as one for a summary, is answered without calls, as a real model would.
	OnlyOffered bool
}

// Server is a running API. Its methods may be called from any goroutine. It is an http.Handler too, for tests that serve
// it themselves.
type Server struct {
	opt  Options
	http *http.Server
	url  string
	done chan struct{}

	mu       sync.Mutex
	requests []Request
	grown    chan struct{} // closed and replaced at each request
	failed   map[string]int
	gates    map[string]chan struct{}
	next     int
}

// New makes a server that listens nowhere.
func New(opt Options) *Server {
	return &Server{opt: opt, grown: make(chan struct{}), failed: map[string]int{}, gates: map[string]chan struct{}{}, done: make(chan struct{})}
}

// Start listens on loopback.
func Start(opt Options) (*Server, error) {
	if opt.Addr == "" {
		opt.Addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", opt.Addr)
	if err != nil {
		return nil, fmt.Errorf("model server: %w", err)
	}
	s := New(opt)
	s.url = "http://" + l.Addr().String()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("model server: %v", err)) // only a broken test gets here
		}
	}()
	return s, nil
}

// URL is the base URL for the clients.
func (s *Server) URL() string { return s.url }

// Close cuts every connection and returns when the listener is gone.
func (s *Server) Close() {
	if s.http == nil {
		return
	}
	_ = s.http.Close()
	<-s.done
}

// Open lets every step pass that waits, or will wait, at the gate.
func (s *Server) Open(gate string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.gate(gate)
	select {
	case <-c:
	default:
		close(c)
	}
}

func (s *Server) gate(name string) chan struct{} {
	c := s.gates[name]
	if c == nil {
		c = make(chan struct{})
		s.gates[name] = c
	}
	return c
}

// Requests are all requests so far, in the order of their arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Wait returns the first request that match accepts, now or later.
func (s *Server) Wait(ctx context.Context, match func(Request) bool) (Request, error) {
	for from := 0; ; {
		s.mu.Lock()
		have, grown := s.requests, s.grown
		s.mu.Unlock()
		if i := slices.IndexFunc(have[from:], match); i >= 0 {
			return have[from+i], nil
		}
		from = len(have)
		select {
		case <-grown:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("model server: no such request among %d: %w", from, context.Cause(ctx))
		}
	}
}

func (s *Server) record(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	close(s.grown)
	s.grown = make(chan struct{})
}

// number gives the parts of an answer ids that are unique in the server.
func (s *Server) number() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return fmt.Sprintf("%06d", s.next)
}

// fails reports whether a step with Times must fail once more.
func (s *Server) fails(key string, step Step) bool {
	if step.Status == 0 || step.Times == 0 {
		return step.Status != 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[key]++
	return s.failed[key] <= step.Times
}

// ServeHTTP is the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, err := readRequest(r)
	if err != nil {
		failure(w, http.StatusBadRequest, "", err.Error())
		return
	}
	s.record(req)
	if d, ok := dialectOf(r); ok {
		s.answerIn(d, w, r, req)
		return
	}
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/api/show"):
		showOllama(w)
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusOK)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/v1/messages/count_tokens"):
		writeJSON(w, http.StatusOK, map[string]int{"input_tokens": len(req.Body) / 4})
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/v1/messages"):
		s.answer(w, r, req)
	default:
		failure(w, http.StatusNotFound, "", r.Method+" "+r.URL.Path)
	}
}
