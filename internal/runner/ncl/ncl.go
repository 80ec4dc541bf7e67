// Package ncl serves the commands of ncl that programs of the sandbox give: one request in a line, one frame in a line. The
// host runs them, and decides what an agent may.
package ncl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/runner/door"
)

// Bounds of one conversation.
const (
	readPatience  = 5 * time.Second // for the request
	writePatience = 5 * time.Second // for a client that does not read
)

// Admin has the host run a command and waits for its answer.
type Admin func(ctx context.Context, command string, args map[string]json.RawMessage) (control.Frame, error)

// Handler serves requests with admin. A client that leaves ends the wait.
func Handler(admin Admin) door.Handler {
	return door.Handler{Hello: control.HelloAdmin, Serve: func(ctx context.Context, c *door.Conn) error { return serve(ctx, c, admin) }}
}

func serve(ctx context.Context, c *door.Conn, admin Admin) error {
	_ = c.SetReadDeadline(time.Now().Add(readPatience))
	line, err := readLine(c)
	if err != nil {
		return answer(c, control.Fail("", err))
	}
	var req control.AdminRequest
	if err := decode(line, &req); err != nil {
		return answer(c, control.Fail("", err))
	}
	_ = c.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() { // a second request is no part of the protocol: anything that comes means that nobody waits
		defer close(gone)
		defer cancel()
		_, _ = c.Read(make([]byte, 1))
	}()
	defer func() {
		_ = c.Close()
		<-gone
	}()
	f, err := admin(ctx, req.Command, req.Args)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("nobody waits for the answer to %q: %w", req.Command, cause)
		}
		f = control.Fail(f.ID, failure(err))
	}
	return answer(c, f)
}

// readLine reads up to a line's end and at most a request's size.
func readLine(r io.Reader) ([]byte, error) {
	b := make([]byte, 0, 512)
	for {
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return b[:i], nil
		}
		if len(b) > control.MaxAdminLine {
			return nil, &control.Error{Code: control.CodeTooLarge, Message: fmt.Sprintf("the request is larger than %d bytes", control.MaxAdminLine)}
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if n == 0 && err != nil {
			return nil, control.Invalid("", "the request did not come as one line of JSON")
		}
	}
}

func decode(line []byte, req *control.AdminRequest) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(req); err != nil {
		return control.Invalid("", "the request is no JSON object of command and args")
	}
	if _, err := d.Token(); err != io.EOF {
		return control.Invalid("", "the request has something behind its JSON object")
	}
	return req.Check()
}

// failure names what a failed wait means.
func failure(err error) error {
	var e *control.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return &control.Error{Code: control.CodeTimeout, Message: fmt.Sprintf("the host did not answer within %v", control.AdminPatience),
			Hint: "the command may still be carried out; ask again for its result", Err: err}
	case errors.Is(err, context.Canceled):
		return &control.Error{Code: control.CodeUnavailable, Message: "the agent is ending", Err: err}
	}
	return &control.Error{Code: control.CodeFailed, Message: err.Error(), Err: err}
}

func answer(c *door.Conn, f control.Frame) error {
	_ = c.SetWriteDeadline(time.Now().Add(writePatience))
	enc := json.NewEncoder(c)
	enc.SetEscapeHTML(false)
	return enc.Encode(f)
}
