// Package door is the runner's own socket: programs of the sandbox connect, say in one line what they want, and are handed
// to the part that serves it. The parts do not know each other.
package door

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

const (
	// helloPatience is how long a connection may take to say what it wants.
	helloPatience = 2 * time.Second
	// maxConnections are open at a time; another one is closed at once.
	maxConnections = 16
	readBuffer     = 4096 // bytes; a longer hello is refused
)

// Handler serves the connections that begin with its hello.
type Handler struct {
	Hello string // first line, without its end: a name and a version
	// Serve owns the conversation; the connection is closed when it returns, and when ctx ends. An error is for the log.
	Serve func(ctx context.Context, c *Conn) error
}

// Conn is a connection behind its hello.
type Conn struct {
	*net.UnixConn
	r *bufio.Reader
}

// Read reads what follows the hello.
func (c *Conn) Read(p []byte) (int, error) { return c.r.Read(p) }

// Door is the listening socket.
type Door struct {
	log      *slog.Logger
	handlers []Handler
	running  sync.WaitGroup
}

// Listen serves dir/runner.sock, mode 0600, until ctx ends. It returns when listening; Wait waits for what it started. log may
// be nil.
func Listen(ctx context.Context, dir string, log *slog.Logger, handlers ...Handler) (*Door, error) {
	if log == nil {
		log = obs.Discard()
	}
	l, err := socket.Listen(dir, control.RunnerSocket, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the runner's socket: %w", err)
	}
	d := &Door{log: log, handlers: handlers}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	d.running.Go(func() {
		defer func() { _ = l.Close() }()
		defer stop()
		d.accept(ctx, l)
	})
	return d, nil
}

// Wait returns when every connection has ended after the context of Listen did.
func (d *Door) Wait() { d.running.Wait() }

func (d *Door) accept(ctx context.Context, l *socket.Listener) {
	slots := make(chan struct{}, maxConnections)
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				d.log.Error("the runner's socket takes no more connections", obs.Error(err))
			}
			return
		}
		select {
		case slots <- struct{}{}:
			d.running.Go(func() {
				defer func() { <-slots }()
				d.serve(ctx, c)
			})
		default:
			_ = c.Close()
		}
	}
}

func (d *Door) serve(ctx context.Context, c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetReadDeadline(time.Now().Add(helloPatience))
	r := bufio.NewReaderSize(c, readBuffer)
	line, err := r.ReadSlice('\n')
	hello := strings.TrimSuffix(string(line), "\n")
	for _, h := range d.handlers {
		if err != nil || h.Hello != hello {
			continue
		}
		_ = c.SetReadDeadline(time.Time{})
		if err := h.Serve(ctx, &Conn{c, r}); err != nil && ctx.Err() == nil {
			d.log.Debug("a client of the runner's socket has left", obs.KeyHello, h.Hello, obs.Error(err))
		}
		return
	}
	d.log.Warn("a connection to the runner's socket did not say what it wants")
}
