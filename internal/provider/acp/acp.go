// Package acp drives any agent that speaks the Agent Client Protocol over its standard streams: one process for each query
// (spec/providers.md section 5.4; tested with `opencode acp`).
//
// What the protocol leaves out and a caller must know: it has no system prompt, so instructions stand before the first prompt of each
// query; a prompt waits for the turn before it; an agent that cannot load a session, or answers its load with an error, has lost it. The
// agent finds its model and its key by itself: by what Options.Env tells it.
package acp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// Name is the provider's key.
const Name = "acp"

// Defaults of Options.
const (
	DefaultPath          = "/usr/local/bin:/usr/bin:/bin"
	DefaultInitWait      = 90 * time.Second
	DefaultInterruptWait = 3 * time.Second
	DefaultEndWait       = 10 * time.Second
	DefaultSilence       = 10 * time.Minute
	DefaultKeepAlive     = 20 * time.Second
)

// Options of the provider. Command and Home are required; zero values of the others are defaults.
type Options struct {
	Command []string // the agent's program, an absolute path, and its arguments
	Home    string   // HOME
	// Env is the whole environment of the agent apart from HOME; nothing is inherited.
	Env map[string]string
	Log *slog.Logger

	InitWait      time.Duration // for the agent to open the session
	InterruptWait time.Duration // for a turn to end after an interrupt
	EndWait       time.Duration // after End: for an agent that finished its work to exit by itself
	Silence       time.Duration // no line for that long, no tool in flight: the turn is interrupted
	KeepAlive     time.Duration // between signs of life while a tool runs
	// IdleClose ends an agent that had nothing to do for that long, as End does. Zero: never.
	IdleClose time.Duration
}

// Provider starts agents.
type Provider struct{ opt Options }

// New checks the options; whether the program works is found by Query.
func New(opt Options) (*Provider, error) {
	if len(opt.Command) == 0 || !filepath.IsAbs(opt.Command[0]) {
		return nil, fmt.Errorf("acp: the command %q must begin with an absolute path", opt.Command)
	}
	if !filepath.IsAbs(opt.Home) {
		return nil, fmt.Errorf("acp: home %q must be an absolute path", opt.Home)
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

// Name is "acp".
func (p *Provider) Name() string { return Name }

// Caps are what every agent has.
func (p *Provider) Caps() provider.Caps {
	return provider.Caps{MidTurnText: true, Transcript: true, ToolEvents: true}
}

// IsSessionInvalid is true for an agent that could not load the session, but not where it asks for a log-in.
func (p *Provider) IsSessionInvalid(err error) bool {
	var q *provider.QueryError
	return errors.As(err, &q) && q.Class == provider.ClassInvalidSession
}

// Query starts the agent. An error from here means that none runs.
func (p *Provider) Query(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	if err := ctx.Err(); err != nil {
		return nil, &provider.QueryError{Op: "start the agent", Class: provider.ClassOther, Retryable: true, Err: err}
	}
	return p.start(ctx, in)
}

func (p *Provider) environment() []string {
	env := map[string]string{"PATH": DefaultPath, "LANG": "C.UTF-8"}
	for k, v := range p.opt.Env {
		env[k] = v
	}
	env["HOME"] = p.opt.Home
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}
