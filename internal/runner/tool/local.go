package tool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

const (
	// SocketName is the runner's own socket, in the folder for the programs of the sandbox.
	SocketName = "runner.sock"
	hello      = "mcp 1\n"
	// helloPatience is how long a connection may take to say what it wants.
	helloPatience  = 2 * time.Second
	maxConnections = 16
)

// Listen serves the tools on dir/runner.sock, for programs of the same user, until ctx ends. A connection says `mcp 1` and a
// newline; the rest is the protocol, one JSON message a line. It returns when listening and serves in the background; Close
// waits for it.
func (s *Server) Listen(ctx context.Context, dir string) error {
	l, err := socket.Listen(dir, SocketName, 0o600)
	if err != nil {
		return fmt.Errorf("serve tools to programs of the sandbox: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	slots := make(chan struct{}, maxConnections)
	s.running.Go(func() {
		defer stop()
		defer func() { _ = l.Close() }()
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
					s.log.Error("the runner's socket takes no more connections", obs.Error(err))
				}
				return
			}
			select {
			case slots <- struct{}{}:
				s.running.Go(func() {
					defer func() { <-slots }()
					s.serve(ctx, c)
				})
			default:
				_ = c.Close()
			}
		}
	})
	return nil
}

func (s *Server) serve(ctx context.Context, c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetReadDeadline(time.Now().Add(helloPatience))
	r := bufio.NewReaderSize(c, 4096)
	line, err := r.ReadSlice('\n')
	if err != nil || string(line) != hello {
		s.log.Warn("a connection to the runner's socket did not say what it wants")
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	err = s.protocol().Run(ctx, patient{&mcp.IOTransport{Reader: io.NopCloser(r), Writer: c}})
	if err != nil && ctx.Err() == nil {
		s.log.Debug("a client of the runner's socket has left", obs.Error(err))
	}
}

// Stdio connects stdin and stdout to the tools of the runner that listens in dir: the whole of `agent-runner mcp`. It returns
// nil when stdin has ended and every answer was written.
func Stdio(ctx context.Context, dir string, stdin io.Reader, stdout io.Writer) error {
	dialled, err := socket.Dial(ctx, dir, SocketName)
	if err != nil {
		return fmt.Errorf("reach the runner: %w (is one running in this sandbox?)", err)
	}
	c, ok := dialled.(*net.UnixConn)
	if !ok {
		return errors.New("reach the runner: not a unix socket")
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, hello); err != nil {
		return fmt.Errorf("reach the runner: %w", err)
	}
	go func() {
		_, _ = io.Copy(c, stdin)
		_ = c.CloseWrite()
	}()
	if _, err := io.Copy(stdout, c); err != nil && ctx.Err() == nil {
		return fmt.Errorf("pass on the runner's answers: %w", err)
	}
	return nil
}
