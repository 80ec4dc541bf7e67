package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"nanoclaw/internal/socket"
)

// The runner's own socket inside a sandbox. A connection says in its first line what it wants.
const (
	RunnerSocket = "runner.sock"
	RunnerDir    = "/run/nanoclaw" // of the socket, where the sandbox is one
	// RunnerVariable names the socket's path to programs of a sandbox that has no place of its own for it.
	RunnerVariable = "NANOCLAW_RUNNER_SOCKET"
	HelloTools     = "mcp 1" // the tools: one JSON message of the Model Context Protocol a line
	HelloAdmin     = "ncl 1" // one AdminRequest in a line, one Frame in a line
)

// Limits of a command, whoever gives it.
const (
	MaxCommand = 200      // bytes of its name
	MaxArgs    = 64 << 10 // bytes of its arguments as JSON
	// MaxAdminLine is the longest request line on the runner's socket, in bytes.
	MaxAdminLine = 64 << 10
	// AdminPatience is how long the host may take over a command from inside.
	AdminPatience = 30 * time.Second
)

// AdminRequest is one command of ncl. Command is its words joined with `-`, as they were typed: the host finds the command in
// them and takes the rest for its target.
type AdminRequest struct {
	Command string                     `json:"command"`
	Args    map[string]json.RawMessage `json:"args,omitempty"`
}

// Check says what no host would accept, as an *Error of code invalid or too-large.
func (r AdminRequest) Check() error {
	switch {
	case r.Command == "":
		return Invalid("command", "is empty")
	case len(r.Command) > MaxCommand:
		return &Error{Code: CodeTooLarge, Field: "command", Message: fmt.Sprintf("has %d bytes, at most %d are allowed", len(r.Command), MaxCommand)}
	}
	b, err := json.Marshal(r.Args)
	if err != nil {
		return Invalid("args", "is not an object of JSON values")
	}
	if len(b) > MaxArgs {
		return &Error{Code: CodeTooLarge, Field: "args", Message: fmt.Sprintf("has %d bytes, at most %d are allowed", len(b), MaxArgs)}
	}
	return nil
}

// Fail is the answer of a command that failed; err that is no *Error becomes one of code failed.
func Fail(requestID string, err error) Frame {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeFailed, Message: err.Error()}
	}
	return Frame{ID: requestID, Error: e}
}

// Admin runs a command on the host. The error is that of the connection; what the command itself says is in the frame.
func (c *Client) Admin(ctx context.Context, r AdminRequest) (Frame, error) {
	var f Frame
	return f, c.call(ctx, http.MethodPost, "/v1/admin", r, &f)
}

// Runner is the way to the host for a program inside a sandbox: through the runner's socket and the mailbox.
type Runner struct{ path string }

// NewRunner makes a client of the runner that listens on the socket path. It does not connect.
func NewRunner(path string) *Runner { return &Runner{path} }

// Close is there for the likeness with Client.
func (r *Runner) Close() {}

// Admin has the host run a command, scoped to the agent of this sandbox. Every error is an *Error: of code unreachable when
// there is no runner or it has ended, of code timeout when no answer came.
func (r *Runner) Admin(ctx context.Context, req AdminRequest) (Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, AdminPatience+5*time.Second) // the runner itself gives up before
	defer cancel()
	c, err := socket.Dial(ctx, filepath.Dir(r.path), filepath.Base(r.path))
	if err != nil {
		return Frame{}, r.broken(ctx, err)
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	b, err := json.Marshal(req)
	if err != nil {
		return Frame{}, &Error{Code: CodeFailed, Message: "encode the request: " + err.Error(), Err: err}
	}
	if _, err := c.Write([]byte(HelloAdmin + "\n" + string(b) + "\n")); err != nil {
		return Frame{}, r.broken(ctx, err)
	}
	line, err := bufio.NewReader(io.LimitReader(c, maxLine)).ReadBytes('\n')
	if err != nil {
		return Frame{}, r.broken(ctx, err)
	}
	var f Frame
	if err := json.Unmarshal(line, &f); err != nil {
		return Frame{}, &Error{Code: CodeFailed, Message: "the runner's answer cannot be read: " + err.Error(), Err: err}
	}
	return f, nil
}

func (r *Runner) broken(ctx context.Context, err error) *Error {
	switch cause := ctx.Err(); {
	case errors.Is(cause, context.DeadlineExceeded):
		return &Error{Code: CodeTimeout, Message: "the host did not answer in time", Err: err}
	case cause != nil:
		return &Error{Code: CodeCancelled, Message: "cancelled", Err: err}
	case errors.Is(err, io.EOF):
		return &Error{Code: CodeUnreachable, Message: "the runner closed the connection without an answer", Hint: "too many commands at a time, or the agent is ending: try again", Err: err}
	}
	return &Error{Code: CodeUnreachable, Message: "no runner answers on " + r.path, Err: err}
}
