// Package native is the agent loop of our own: it asks a model over one of the wires, runs the tools that the model calls, and keeps the
// conversation on disk (spec/providers.md section 6.3). It starts no program but those that the model asks for.
package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/memory"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/tool"
	"nanoclaw/internal/provider/native/wire"
	"nanoclaw/internal/slash"
)

// Defaults of Options.
const (
	DefaultSteps   = 200
	DefaultTries   = 6
	DefaultBackoff = time.Second
	DefaultMCPWait = 5 * time.Second
	DefaultPulse   = 15 * time.Second
)

// Options of the provider. Wire, Home and HTTP are required; zero values of the others are defaults.
type Options struct {
	Wire     func() wire.Wire  // makes the wire of one conversation
	Home     string            // HOME: conversations are below native/
	Env      map[string]string // the whole environment of commands and stdio servers apart from HOME
	HTTP     *http.Client      // to MCP servers with a URL
	Web      *http.Client      // of WebFetch, through the way out of the sandbox; nil: there is no WebFetch
	Model    string            // "": the wire's default
	Fallback string            // asked when Model is overloaded for longer; "": none
	Effort   string            // low, medium, high, xhigh, max; "": the model's default
	Dirs     []string          // more folders that the model may work in
	Window   int64             // tokens of the model's context; 0: what the wire says
	Log      *slog.Logger
	// Compaction gives the instructions for the summary of a long conversation; it is called at each. nil: none.
	Compaction func() string

	Steps   int           // answers of the model in one turn
	Tries   int           // of one request that fails in a way that may pass
	Backoff time.Duration // before the second try; doubled after each
	MCPWait time.Duration // for tool servers before the first turn
	Pulse   time.Duration // between signs of life while a model or a tool is waited for
}

// Provider starts conversations.
type Provider struct {
	opt  Options
	name string
}

// New checks the options.
func New(opt Options) (*Provider, error) {
	if opt.Wire == nil || opt.HTTP == nil {
		return nil, errors.New("native: no wire or no HTTP client")
	}
	if !filepath.IsAbs(opt.Home) {
		return nil, fmt.Errorf("native: home %q must be an absolute path", opt.Home)
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	p := &Provider{name: opt.Wire().Name()}
	opt.Log = opt.Log.With(obs.KeyProvider, p.name)
	if opt.Steps <= 0 {
		opt.Steps = DefaultSteps
	}
	if opt.Tries <= 0 {
		opt.Tries = DefaultTries
	}
	if opt.Backoff <= 0 {
		opt.Backoff = DefaultBackoff
	}
	if opt.Pulse <= 0 {
		opt.Pulse = DefaultPulse
	}
	if opt.MCPWait <= 0 {
		opt.MCPWait = DefaultMCPWait
	}
	p.opt = opt
	return p, nil
}

// Name is that of the wire.
func (p *Provider) Name() string { return p.name }

// Caps of the loop. Taken comes for every input, also for one that opens a turn.
func (p *Provider) Caps() provider.Caps {
	return provider.Caps{
		Commands:    []string{slash.Compact, slash.Context},
		MidTurnText: true, MidTurnInput: true, Receipts: true, Transcript: true, ToolEvents: true, Attachments: true,
	}
}

// IsSessionInvalid is true only where no conversation of that id is on disk.
func (p *Provider) IsSessionInvalid(err error) bool {
	var q *provider.QueryError
	return errors.As(err, &q) && q.Class == provider.ClassInvalidSession
}

// folder of all conversations. They are the same for every wire, so that an agent keeps them when its model changes.
func (p *Provider) folder() string { return filepath.Join(p.opt.Home, "native") }

// Query loads or starts a conversation and its first turn.
func (p *Provider) Query(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	if err := ctx.Err(); err != nil {
		return nil, &provider.QueryError{Op: "start the conversation", Class: provider.ClassOther, Retryable: true, Err: err}
	}
	var conv *history.Conversation
	var err error
	if in.Continuation == "" {
		conv = history.Create(p.folder())
	} else if conv, err = history.Open(p.folder(), in.Continuation); errors.Is(err, history.ErrUnknown) {
		return nil, &provider.QueryError{Op: "resume the conversation", Class: provider.ClassInvalidSession, Retryable: true, Err: err}
	} else if err != nil {
		return nil, &provider.QueryError{Op: "resume the conversation", Class: provider.ClassOther, Retryable: true, Hint: "folder " + p.folder(), Err: err}
	}
	if n := conv.Lost(); n > 0 {
		p.opt.Log.Warn("lines of the conversation could not be read and are left out", obs.KeyCount, n, slog.String(obs.KeyContinuation, conv.ID()))
	}
	return p.start(ctx, in, conv), nil
}

// places is where memory files and skills are looked for.
func (p *Provider) places(in provider.QueryInput) memory.Places {
	return memory.Places{Cwd: in.Cwd, Dirs: p.dirs(in), Home: p.opt.Home, Log: p.opt.Log}
}

func (p *Provider) dirs(in provider.QueryInput) []string {
	return append(append([]string(nil), p.opt.Dirs...), in.Dirs...)
}

// box makes the tools of one query.
func (p *Provider) box(in provider.QueryInput, conv *history.Conversation) *tool.Box {
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
	for k, v := range p.opt.Env {
		env[k] = v
	}
	env["HOME"] = p.opt.Home
	return tool.NewBox(tool.Options{Cwd: in.Cwd, Env: env, Output: conv.Output(), Web: p.opt.Web, Log: p.opt.Log})
}
