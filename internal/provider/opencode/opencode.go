// Package opencode drives the real opencode program through `opencode serve`: one process for each query, HTTP and server-sent events
// on loopback behind a password of its own (spec/providers.md section 5; tested with the version that scripts/fetch-opencode pins).
//
// What it does and a caller must know: a session is idle twice after an interrupt or an error, the first time while it still cleans
// up, and a prompt that comes then lies there unanswered; so does one that was not taken when the turn was interrupted. A turn is over
// here when the session is idle and its last answer is closed, and what lies there unanswered is taken back and given again. Failed
// requests are repeated by the program without end; this driver ends that. It is by far the heaviest of the providers (4 s and
// 350 MB to start), so it is never a default.
package opencode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// Name is the provider's key.
const Name = "opencode"

// Tested is the version that this driver was run with.
const Tested = "1.18.33"

// DefaultModel is asked for where none is set.
const DefaultModel = "claude-sonnet-5-5"

// APIs that the program reaches a model by.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai" // Responses
	Ollama    = "ollama" // chat completions, as any server of local models has them
)

// packageOf an API is the part of the program that speaks it: bundled, nothing is fetched.
func packageOf(api string) string {
	switch api {
	case Anthropic:
		return "@ai-sdk/anthropic"
	case OpenAI:
		return "@ai-sdk/openai"
	case Ollama:
		return "@ai-sdk/openai-compatible"
	}
	return ""
}

// alias is the model that a short name means.
func alias(api, model string) string {
	if api != Anthropic {
		return model
	}
	switch strings.ToLower(model) {
	case "", "sonnet", "default":
		return DefaultModel
	case "opus":
		return "claude-opus-5-5"
	case "haiku":
		return "claude-haiku-5-5"
	}
	return model
}

// compact is the command that summarises the conversation. The program takes no wish about what to keep.
const compact = "/compact"

// Defaults of Options.
const (
	DefaultPath          = "/usr/local/bin:/usr/bin:/bin"
	DefaultRetries       = 4
	DefaultInitWait      = 90 * time.Second
	DefaultInterruptWait = 3 * time.Second
	DefaultSilence       = 10 * time.Minute
	DefaultKeepAlive     = 20 * time.Second
)

// Options of the provider. Program, Home and BaseURL are required; zero values of the others are defaults.
type Options struct {
	Program string // absolute path
	Home    string // HOME: the sessions are in .local/share below it
	API     string // that BaseURL speaks: Anthropic, OpenAI or Ollama; "": Anthropic
	BaseURL string // of the API, with its version: http://…/v1
	Key     string // sent to BaseURL; a placeholder
	// Env is the whole environment of the program apart from HOME and its own switches; nothing is inherited.
	Env    map[string]string
	Model  string // "": DefaultModel; the other APIs have no default
	Effort string // a variant of the model; "": its default
	// ContextTokens is how much the model takes, where the program does not know it: near that it summarises the conversation. 0: unknown.
	ContextTokens int64
	// Retries is how often a failed request is repeated before its turn fails; 0: DefaultRetries; negative: never.
	Retries int
	Log     *slog.Logger

	InitWait      time.Duration // for the program to open the session
	InterruptWait time.Duration // for a turn to end after an interrupt
	Silence       time.Duration // no event for that long, no tool in flight: the turn is interrupted
	KeepAlive     time.Duration // between signs of life while a tool runs
	// IdleClose ends a program that had nothing to do for that long, as End does. Zero: never.
	IdleClose time.Duration
}

// Provider starts the program.
type Provider struct{ opt Options }

// New checks the options; whether the program works is found by Query.
func New(opt Options) (*Provider, error) {
	if !filepath.IsAbs(opt.Program) {
		return nil, fmt.Errorf("opencode: program %q must be an absolute path", opt.Program)
	}
	if !filepath.IsAbs(opt.Home) {
		return nil, fmt.Errorf("opencode: home %q must be an absolute path", opt.Home)
	}
	if opt.BaseURL == "" {
		return nil, errors.New("opencode: the base URL of the API is missing")
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	opt.Log = opt.Log.With(obs.KeyProvider, Name)
	if opt.Retries == 0 {
		opt.Retries = DefaultRetries
	}
	if opt.API == "" {
		opt.API = Anthropic
	}
	if packageOf(opt.API) == "" {
		return nil, fmt.Errorf("opencode: unknown API %q; known are %s, %s, %s", opt.API, Anthropic, OpenAI, Ollama)
	}
	if opt.Model = alias(opt.API, opt.Model); opt.Model == "" {
		return nil, fmt.Errorf("opencode: the API %s has no default model, one must be named", opt.API)
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&opt.InitWait, DefaultInitWait}, {&opt.InterruptWait, DefaultInterruptWait}, {&opt.Silence, DefaultSilence}, {&opt.KeepAlive, DefaultKeepAlive},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	return &Provider{opt: opt}, nil
}

// Name is "opencode".
func (p *Provider) Name() string { return Name }

// Caps of the program. Taken comes for every input, also for one that opens a turn.
func (p *Provider) Caps() provider.Caps {
	return provider.Caps{
		MidTurnText: true, MidTurnInput: true, Receipts: true, Transcript: true, ToolEvents: true, Attachments: true, Commands: []string{compact},
	}
}

// IsSessionInvalid is true only for the program's own word that the session does not exist, and for a continuation that
// cannot be one of its ids.
func (p *Provider) IsSessionInvalid(err error) bool {
	var q *provider.QueryError
	return errors.As(err, &q) && q.Class == provider.ClassInvalidSession
}

var sessionID = regexp.MustCompile(`^ses_[0-9a-zA-Z]{8,64}$`)

// Query starts the program. An error from here means that none runs.
func (p *Provider) Query(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	if in.Continuation != "" && !sessionID.MatchString(in.Continuation) {
		return nil, &provider.QueryError{
			Op: "resume the conversation", Class: provider.ClassInvalidSession, Retryable: true,
			Err: errors.New("the continuation is no session id of opencode"),
		}
	}
	settings, err := p.settings(in)
	if err != nil {
		return nil, &provider.QueryError{Op: "set up the tool servers", Class: provider.ClassOther, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return nil, &provider.QueryError{Op: "start opencode", Class: provider.ClassOther, Retryable: true, Err: err}
	}
	if info, err := os.Stat(p.opt.Program); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		if err == nil {
			err = fmt.Errorf("%s is no program", p.opt.Program)
		}
		return nil, &provider.QueryError{Op: "find the opencode program", Class: provider.ClassMissing, Hint: "install it, or name its path in the settings of the provider", Err: err}
	}
	return p.start(ctx, in, settings)
}
