// Package tool holds the built-in tools of the native loop: shell, files, search, web. They see what the sandbox shows them; the
// sandbox is the wall, not this package.
package tool

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider/native/wire"
)

// Tool is one tool that the model may call.
type Tool struct {
	wire.Tool
	// ReadOnly: it changes nothing, so several may run at once.
	ReadOnly bool
	// Timeout is what a call declares; nil, and zero, mean that none is known.
	Timeout func(args json.RawMessage) time.Duration
	// Run blocks until the call is over or ctx ends; then everything it started is gone, unless the call asked for more.
	Run func(ctx context.Context, args json.RawMessage) Result
}

// Result is what the model gets.
type Result struct {
	Text    string
	IsError bool
	Files   []File
}

// File is a picture or a PDF for the model to look at.
type File struct {
	Name     string
	MimeType string
	Content  []byte
}

func failed(format string, args ...any) Result {
	return Result{Text: fmt.Sprintf(format, args...), IsError: true}
}

// Options of a box.
type Options struct {
	Cwd    string            // the agent's folder; relative paths start there
	Env    map[string]string // the whole environment of commands
	Output string            // folder for outputs that are too long; made when needed
	Web    *http.Client      // nil: there is no WebFetch
	Log    *slog.Logger
}

// Box is the tools of one query and what they hold: background commands, and which files were read. Its tools may be called
// from several goroutines.
type Box struct {
	opt     Options
	mark    string        // in the environment of all it starts
	changed chan struct{} // capacity 1

	mu     sync.Mutex
	jobs   map[string]*job
	next   int
	read   map[string]time.Time // path → time of change when it was last read or written
	ended  []string             // background commands that ended and were not told yet
	closed bool
}

// NewBox makes the tools of one query. Close must be called.
func NewBox(opt Options) *Box {
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	var mark [12]byte
	_, _ = rand.Read(mark[:]) // never fails
	return &Box{opt: opt, changed: make(chan struct{}, 1), mark: hex.EncodeToString(mark[:]), jobs: map[string]*job{}, read: map[string]time.Time{}}
}

// Tools in a stable order.
func (b *Box) Tools() []Tool {
	tools := []Tool{
		b.bash(), b.bashOutput(), b.bashKill(), b.readFile(), b.writeFile(), b.editFile(), b.glob(), b.grep(),
	}
	if b.opt.Web != nil {
		tools = append(tools, b.webFetch())
	}
	return tools
}

// path is an absolute, clean path.
func (b *Box) path(p string) string {
	if !filepath.IsAbs(p) {
		p = filepath.Join(b.opt.Cwd, p)
	}
	return filepath.Clean(p)
}

// shown is a path as the model gets to see it.
func (b *Box) shown(p string) string {
	if rel, err := filepath.Rel(b.opt.Cwd, p); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return p
}

// typed makes a tool whose arguments are decoded strictly enough to tell the model of a wrong name.
func typed[T any](t Tool, run func(ctx context.Context, in T) Result) Tool {
	t.Run = func(ctx context.Context, args json.RawMessage) Result {
		var in T
		if err := decode(args, &in); err != nil {
			return failed("The arguments cannot be used: %v", err)
		}
		return run(ctx, in)
	}
	return t
}

func decode(args json.RawMessage, into any) error {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		return fmt.Errorf("%s must be %s, not %s", kind.Field, kind.Type, kind.Value)
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// schema of an object whose properties are JSON too.
func schema(required, properties string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":[` + required + `],"additionalProperties":false}`)
}
