package tool

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/obs"
)

const (
	serverName = "nanoclaw"
	// version of the tool server, announced to clients.
	version       = "1.0.0"
	path          = "/mcp"
	headerTimeout = 10 * time.Second
)

// Server serves a Set. Nothing runs before the first call of URL.
type Server struct {
	set *Set
	log *slog.Logger

	mu      sync.Mutex
	http    *http.Server
	server  *mcp.Server // behind http
	url     string
	token   string
	closed  bool
	running sync.WaitGroup
}

// NewServer makes a server; log may be nil.
func NewServer(set *Set, log *slog.Logger) *Server {
	if log == nil {
		log = obs.Discard()
	}
	return &Server{set: set, log: log}
}

// protocol is a fresh protocol server over the tools.
func (s *Server) protocol() *mcp.Server {
	m := mcp.NewServer(&mcp.Implementation{Name: serverName, Version: version}, nil)
	for _, t := range s.set.Tools() {
		m.AddTool(&mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				text, err := t.Call(ctx, req.Params.Arguments)
				if err != nil {
					s.log.Info("a tool refused", obs.KeyTool, t.Name, obs.Error(err))
					text = "Error: " + err.Error()
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: err != nil}, nil
			})
	}
	return m
}

// URL starts the loopback listener unless it runs, and returns its address and the bearer token that every request must
// carry. Both stay the same until Close.
func (s *Server) URL(ctx context.Context) (url, token string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", "", fmt.Errorf("serve tools: %w", net.ErrClosed)
	}
	if s.http != nil {
		return s.url, s.token, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", fmt.Errorf("serve tools: %w", err)
	}
	s.token = rand.Text()
	s.url = "http://" + l.Addr().String() + path
	s.server = s.protocol()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server }, nil)
	s.http = &http.Server{Handler: s.guard(handler), ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	s.running.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the tool server has ended", obs.Error(err))
		}
	})
	return s.url, s.token, nil
}

// guard lets only requests with the token in.
func (s *Server) guard(next http.Handler) http.Handler {
	want := []byte("Bearer " + s.token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Forget ends the protocol sessions of clients that are gone. The loop calls it when a query has ended.
func (s *Server) Forget() {
	s.mu.Lock()
	m := s.server
	s.mu.Unlock()
	if m == nil {
		return
	}
	for session := range m.Sessions() {
		_ = session.Close()
	}
}

// Close stops serving, ends all sessions and waits for what was started. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	h := s.http
	s.mu.Unlock()
	var err error
	if h != nil {
		s.Forget()
		err = h.Close()
	}
	s.running.Wait()
	return err
}
