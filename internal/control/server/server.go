// Package server answers the control socket: HTTP and JSON for the programs of this machine's operator
// (internal/control has the wire types). It believes nobody: another user is refused whatever the socket's mode says,
// bodies and times are bounded, and bad input gets an error that names the field.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

// Backend is the host. Its errors reach the client: an *control.Error as it is, any other as CodeFailed with its text.
type Backend interface {
	// Status must not block on sandboxes or channels.
	Status(ctx context.Context) (control.Status, error)
	// Stop begins to stop the host and returns; the answer still reaches the client. With sandboxes, they end too.
	Stop(ctx context.Context, sandboxes bool) error
	// PutSecret is durable on return; the next request to the provider uses the new key.
	PutSecret(ctx context.Context, s control.Secret) error
	// Bootstrap is idempotent.
	Bootstrap(ctx context.Context, r control.BootstrapRequest) (control.Bootstrap, error)
	// Admin carries out a command of the operator. What the command itself says, failures too, is in the frame.
	Admin(ctx context.Context, r control.AdminRequest) (control.Frame, error)
}

// Chat is the terminal channel. Conversations are checked platform ids (control.ConversationID).
type Chat interface {
	// Say returns when the message is on disk.
	Say(ctx context.Context, conversation string, m control.Say) (control.Accepted, error)
	// Events calls on from one goroutine until ctx ends, on fails or the channel stops. after may be control.FromCursor.
	Events(ctx context.Context, conversation string, after int64, on func([]control.Event) error) error
	Ack(ctx context.Context, conversation string, seq int64) error
	// Answer returns when the answer is on disk.
	Answer(ctx context.Context, conversation string, a control.Answer) (control.Answered, error)
	// File opens a file of a message and returns its size. name comes unchecked from outside.
	File(ctx context.Context, conversation, message, name string) (io.ReadCloser, int64, error)
	History(ctx context.Context, conversation string, before int64, limit int) (control.History, error)
}

// Bounds of one exchange with a client.
const (
	headerTime = 5 * time.Second  // for the request's head
	readTime   = 20 * time.Second // for the whole request
	writeTime  = 30 * time.Second // for one answer, or one batch of events: a client that does not read is dropped
	idleTime   = 2 * time.Minute
	drainTime  = 2 * time.Second // for open requests when the server stops
)

// Options of a server.
type Options struct {
	Backend Backend
	Chat    Chat // nil: the chat endpoints answer unavailable
	Version string
	Log     *slog.Logger
	Metrics http.Handler // of GET /metrics; nil: not found
	// Observe hears each request's pattern and status; nil: nobody. It must not block.
	Observe func(route string, status int)
	// PeerUID tells who is at the other end; nil is socket.PeerUID. Allowed are the process's own user and root.
	PeerUID func(net.Conn) (int, error)
}

// Server of one control socket.
type Server struct {
	opt    Options
	closed chan struct{} // streams end when it closes
	once   sync.Once
}

// New makes a server; Serve runs it.
func New(opt Options) *Server {
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	if opt.PeerUID == nil {
		opt.PeerUID = socket.PeerUID
	}
	return &Server{opt: opt, closed: make(chan struct{})}
}

// Listen binds the control socket of home, mode 0600, and makes its folder (0700) if it is missing. The caller holds the
// home's lock: a socket that is there is taken for a dead one.
func Listen(home string) (*socket.Listener, error) {
	dir := control.SocketDir(home)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	l, err := socket.Listen(dir, control.SocketName, 0o600)
	if err != nil {
		return nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	return l, nil
}

type peerKey struct{}

// Serve answers on l until ctx ends, then ends streams, lets open requests finish for a few seconds, closes l and returns
// nil. A Server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			uid, err := s.opt.PeerUID(c)
			return context.WithValue(ctx, peerKey{}, err == nil && (uid == 0 || uid == os.Getuid()))
		},
	}
	ended := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-ended:
		}
		s.once.Do(func() { close(s.closed) })
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		if h.Shutdown(drain) != nil {
			_ = h.Close()
		}
	}()
	err := h.Serve(l)
	close(ended)
	<-done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the control socket: %w", err)
}
