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
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/obs"
)

const (
	serverName = "nanoclaw"
	// version of the tool server, announced to clients.
	version       = "1.0.0"
	path          = "/mcp"
	headerTimeout = 10 * time.Second
	maxBody       = 4 << 20 // bytes of one request
	// progressEvery is how often a client hears of a call that takes its time.
	progressEvery = 15 * time.Second
	// idleSession is when the protocol session of a client that neither came back nor said good-bye is dropped. It is a net
	// below Forget: longer than any client works between two calls.
	idleSession = 2 * time.Hour
)

// Server serves a Set. Nothing runs before the first call of URL.
type Server struct {
	set            *Set
	log            *slog.Logger
	progress, idle time.Duration

	mu      sync.Mutex
	http    *http.Server
	server  *mcp.Server        // behind http
	present context.Context    // of the calls over http, until Forget
	leave   context.CancelFunc // ends present
	address string
	token   string
	closed  bool
	running sync.WaitGroup
}

// NewServer makes a server; log may be nil.
func NewServer(set *Set, log *slog.Logger) *Server {
	if log == nil {
		log = obs.Discard()
	}
	return &Server{set: set, log: log, progress: progressEvery, idle: idleSession}
}

// protocol is a fresh protocol server over the tools. Calls also end with the context that alive returns when they begin:
// the library waits for running calls when a session is closed, but does not cancel them.
func (s *Server) protocol(alive func() context.Context) *mcp.Server {
	tools := &mcp.ToolCapabilities{} // the list never changes
	m := mcp.NewServer(&mcp.Implementation{Name: serverName, Version: version}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: tools}})
	for _, t := range s.set.Tools() {
		m.AddTool(&mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(alive(), cancel)()
				defer s.reportProgress(ctx, req)()
				text, err := t.Call(ctx, req.Params.Arguments)
				if err != nil {
					s.log.Info("a tool refused", obs.KeyTool, t.Name, obs.Error(err))
					text = "Error: " + err.Error()
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: err != nil}, nil
			})
	}
	m.AddReceivingMiddleware(s.knownTools)
	return m
}

// knownTools refuses a call of a tool that there is not, with the names of those that there are.
func (s *Server) knownTools(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if call, ok := req.(*mcp.CallToolRequest); ok {
			if err := s.set.known(call.Params.Name); err != nil {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
			}
		}
		return next(ctx, method, req)
	}
}

// reportProgress tells a client that asked for it, again and again, that the call goes on, so that it does not give up a tool
// that waits for a person. It ends when the function it returns has returned.
func (s *Server) reportProgress(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(s.progress)
		defer tick.Stop()
		for n := 1.0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// A client that is gone is noticed elsewhere.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: "still waiting"})
		}
	}()
	return func() { cancel(); <-done }
}

// URL starts the loopback listener unless it runs, and returns its address and the bearer token that every request must
// carry. Both stay the same until Close.
func (s *Server) URL(ctx context.Context) (address, token string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", "", fmt.Errorf("serve tools: %w", net.ErrClosed)
	}
	if s.http != nil {
		return s.address, s.token, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", fmt.Errorf("serve tools: %w", err)
	}
	s.token = rand.Text()
	s.address = "http://" + l.Addr().String() + path
	s.present, s.leave = context.WithCancel(context.Background())
	s.server = s.protocol(func() context.Context {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.present
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server },
		&mcp.StreamableHTTPOptions{MaxRequestBodyBytes: maxBody, SessionTimeout: s.idle})
	s.http = &http.Server{Handler: s.guard(handler), ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	s.running.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the tool server has ended", obs.Error(err))
		}
	})
	return s.address, s.token, nil
}

// guard lets only requests with the token in, and none that a page in a browser sends under another name.
func (s *Server) guard(next http.Handler) http.Handler {
	want := []byte("Bearer " + s.token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) || !loopbackOrigin(r.Header.Get("Origin")) {
			http.Error(w, "only for programs of this machine", http.StatusForbidden)
			return
		}
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

// loopback reports whether a host, with or without a port, names this machine.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

func loopbackOrigin(origin string) bool {
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && loopback(u.Host)
}

// Forget ends the protocol sessions of clients that are gone, and the calls that they left behind. The loop calls it when a
// query has ended. It does not wait for the calls: some want the loop before they return.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil && !s.closed {
		s.forget()
		s.present, s.leave = context.WithCancel(context.Background())
	}
}

// forget cancels all calls over HTTP and closes their sessions in the background. The caller holds mu.
func (s *Server) forget() {
	s.leave()
	for session := range s.server.Sessions() {
		s.running.Go(func() { _ = session.Close() }) // returns when the calls of the session have
	}
}

// Close stops serving, ends all sessions and waits for what was started, running calls too. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	h := s.http
	if h != nil && !s.closed {
		s.forget()
	}
	s.closed = true
	s.mu.Unlock()
	var err error
	if h != nil {
		err = h.Close()
	}
	s.running.Wait()
	return err
}
