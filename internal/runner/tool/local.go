package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/control"
	"nanoclaw/internal/runner/door"
	"nanoclaw/internal/socket"
)

// Handler serves the tools to programs of the sandbox over the runner's socket: the protocol, one JSON message a line.
func (s *Server) Handler() door.Handler {
	return door.Handler{Hello: control.HelloTools, Serve: func(ctx context.Context, c *door.Conn) error {
		return s.protocol(func() context.Context { return ctx }).Run(ctx, patient{&mcp.IOTransport{Reader: io.NopCloser(c), Writer: c}})
	}}
}

// Stdio connects stdin and stdout to the tools of the runner that listens in dir: the whole of `agent-runner mcp`. It returns
// nil when stdin has ended and every answer was written.
func Stdio(ctx context.Context, dir string, stdin io.Reader, stdout io.Writer) error {
	dialled, err := socket.Dial(ctx, dir, control.RunnerSocket)
	if err != nil {
		return fmt.Errorf("reach the runner: %w (is one running in this sandbox?)", err)
	}
	c, ok := dialled.(*net.UnixConn)
	if !ok {
		return errors.New("reach the runner: not a unix socket")
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, control.HelloTools+"\n"); err != nil {
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
