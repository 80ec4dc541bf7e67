// Package codex drives the real codex CLI through its app-server: one process for each query, JSON-RPC lines both ways
// (spec/providers.md section 4; tested with the version that scripts/fetch-codex pins).
//
// What the app-server does and a caller must know: an input that comes while a turn runs is taken between two requests to the
// model, also before the very first one, so that two inputs may get one answer; what it had not taken when the turn was interrupted
// or failed is dropped, and this driver sends it again; a tool whose turn is interrupted never ends by itself; while a tool runs nothing is
// said. Developer instructions are frozen with the thread, base instructions are not: ours are always the latter. It finds instruction
// files by itself only under names of its own and imports nothing, so the agent's memory files are read here.
package codex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// Name is the provider's key.
const Name = "codex"

// Tested is the version of the CLI that this driver was run with.
const Tested = "0.171.0"

// Defaults of Options.
const (
	DefaultPath          = "/usr/local/bin:/usr/bin:/bin"
	DefaultInitWait      = 60 * time.Second
	DefaultInterruptWait = 2 * time.Second
	DefaultEndWait       = 10 * time.Second
	DefaultSilence       = 10 * time.Minute
	DefaultKeepAlive     = 20 * time.Second
)

// Options of the provider. Program, Home and BaseURL are required; zero values of the others are defaults.
type Options struct {
	Program string // the CLI, an absolute path
	Home    string // HOME; the threads are in .codex below it
	BaseURL string // of the Responses API, with its version: http://…/v1
	Key     string // sent to BaseURL as bearer; a placeholder
	// Env is the whole environment of the CLI apart from HOME, CODEX_HOME and the key; nothing is inherited.
	Env    map[string]string
	Model  string // "": the CLI's default
	Effort string // low, medium, high, xhigh, max; "": the model's default
	// Retries is how often a request, and a stream that broke, is tried again; 0: the CLI's own; negative: never.
	Retries int
	Log     *slog.Logger

	InitWait      time.Duration // for the CLI to open the thread
	InterruptWait time.Duration // for a turn to end after an interrupt
	EndWait       time.Duration // after End: for a CLI that finished its work to exit by itself
	Silence       time.Duration // no line for that long, no tool in flight: the turn is interrupted
	KeepAlive     time.Duration // between signs of life while a tool runs
	// IdleClose ends a CLI that had nothing to do for that long, as End does. Zero: never.
	IdleClose time.Duration
}

// Provider starts CLIs.
type Provider struct{ opt Options }

// New checks the options; whether the program works is found by Query.
func New(opt Options) (*Provider, error) {
	if !filepath.IsAbs(opt.Program) {
		return nil, fmt.Errorf("codex: program %q must be an absolute path", opt.Program)
	}
	if !filepath.IsAbs(opt.Home) {
		return nil, fmt.Errorf("codex: home %q must be an absolute path", opt.Home)
	}
	if opt.BaseURL == "" {
		return nil, errors.New("codex: the base URL of the API is missing")
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	opt.Log = opt.Log.With(obs.KeyProvider, Name)
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&opt.InitWait, DefaultInitWait}, {&opt.InterruptWait, DefaultInterruptWait}, {&opt.EndWait, DefaultEndWait},
		{&opt.Silence, DefaultSilence}, {&opt.KeepAlive, DefaultKeepAlive},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	return &Provider{opt: opt}, nil
}

// Name is "codex".
func (p *Provider) Name() string { return Name }

// Caps of the CLI. Taken comes for every input, also for one that opens a turn.
func (p *Provider) Caps() provider.Caps {
	return provider.Caps{
		Commands: []string{compact}, MidTurnText: true, MidTurnInput: true, Receipts: true, Transcript: true, ToolEvents: true, Attachments: true,
	}
}

// IsSessionInvalid is true only for the CLI's own word that the thread does not exist, and for a continuation that cannot be
// one of its ids.
func (p *Provider) IsSessionInvalid(err error) bool {
	var q *provider.QueryError
	return errors.As(err, &q) && q.Class == provider.ClassInvalidSession
}

var threadID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// Query starts a CLI. An error from here means that none runs.
func (p *Provider) Query(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	if in.Continuation != "" && !threadID.MatchString(in.Continuation) {
		return nil, &provider.QueryError{
			Op: "resume the conversation", Class: provider.ClassInvalidSession, Retryable: true,
			Err: errors.New("the continuation is no thread id of codex"),
		}
	}
	servers, err := mcpServers(in.MCP)
	if err != nil {
		return nil, &provider.QueryError{Op: "set up the tool servers", Class: provider.ClassOther, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return nil, &provider.QueryError{Op: "start codex", Class: provider.ClassOther, Retryable: true, Err: err}
	}
	if info, err := os.Stat(p.opt.Program); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		if err == nil {
			err = fmt.Errorf("%s is no program", p.opt.Program)
		}
		return nil, &provider.QueryError{Op: "find the codex CLI", Class: provider.ClassMissing, Hint: "install it, or name its path in the settings of the provider", Err: err}
	}
	if err := os.MkdirAll(p.codexHome(), 0o700); err != nil {
		return nil, &provider.QueryError{Op: "make the folder of the codex CLI", Class: provider.ClassOther, Err: err}
	}
	return p.start(ctx, in, servers)
}

func (p *Provider) codexHome() string { return filepath.Join(p.opt.Home, ".codex") }
