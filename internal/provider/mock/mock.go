// Package mock is the provider without a model: it echoes, or plays a script. It needs no network and no key, and is what
// a fresh installation talks to until it is given a model.
//
// # Echo
//
// The newest message of the prompt goes back to where it came from, as an addressed block. A prompt without one is
// answered with bare text.
//
// # Script
//
// mock.jsonl in the agent's folder holds one JSON object a line, one line for each exchange:
//
//	{"match":"regexp on the prompt (optional)","events":[
//	  {"type":"text","text":"…"},                    streamed at once, cut where the script cuts
//	  {"type":"tool","name":"send_message","args":{}}, the runner's own tool; an unknown one is a tool error
//	  {"type":"sleep","ms":50},
//	  {"type":"activity"},
//	  {"type":"error","message":"…","retryable":true},
//	  {"type":"exit","code":1},                      ends the process
//	  {"type":"take"},                               waits for a pushed input and takes it into this turn
//	  {"type":"result","text":"…","isError":false}]}
//
// For each exchange the first unused line is played whose match accepts the prompt; lines passed over stay unused. None
// left: echo. The text of a result that was not streamed yet is streamed before it; a line without a result ends with
// the text streamed last, or as an error if an error event came last. What follows a result is a turn nobody asked for.
//
// Which lines are used is part of the continuation (mock-2 is the first two, mock-2.5 the fifth too), so that a respawned
// runner goes on where it was and an exchange that is run again gets its line again. A line that ends the process is
// remembered in HOME as well; otherwise it would be played for ever.
package mock

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// Name is the provider's key.
const Name = "mock"

// ScriptName is the file in the agent's folder.
const ScriptName = "mock.jsonl"

// Options of the provider. All may be zero.
type Options struct {
	Script string // path of the script; a missing file, and "", mean echo
	Home   string // HOME of the sandbox; "": lines that end the process are not remembered
	// CallTool runs one of the runner's tools and returns what the model would see. nil: every tool is unknown.
	CallTool func(ctx context.Context, name string, args json.RawMessage) (string, error)
	Exit     func(code int) // default os.Exit
	// KeepAlive is the time between signs of life while a tool runs; default 20 s.
	KeepAlive time.Duration
	Log       *slog.Logger
}

// Provider plays scripts.
type Provider struct {
	opt  Options
	caps provider.Caps
}

// New never fails: what is wrong with a script is told by Query, to those who can act on it.
func New(opt Options) *Provider {
	if opt.Exit == nil {
		opt.Exit = os.Exit
	}
	if opt.KeepAlive <= 0 {
		opt.KeepAlive = 20 * time.Second
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	p := &Provider{opt: opt, caps: provider.Caps{MidTurnText: true, ToolEvents: true}}
	if script, err := ReadScript(opt.Script); err == nil && script.takes() {
		p.caps.MidTurnInput, p.caps.Receipts = true, true
	}
	return p
}

// Name is "mock".
func (p *Provider) Name() string { return Name }

// Caps: a script that takes pushed input makes a provider with receipts; the file is read for that when the provider is made.
func (p *Provider) Caps() provider.Caps { return p.caps }

// IsSessionInvalid reports a continuation that is not one of ours.
func (p *Provider) IsSessionInvalid(err error) bool {
	var q *provider.QueryError
	return errors.As(err, &q) && q.Class == provider.ClassInvalidSession
}

// Query fails on a bad script; no retry mends that. The script is read again for each exchange.
func (p *Provider) Query(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	used, err := parseContinuation(in.Continuation)
	if err != nil {
		return nil, &provider.QueryError{Op: "resume the conversation", Class: provider.ClassInvalidSession, Retryable: true, Err: err}
	}
	if _, err := ReadScript(p.opt.Script); err != nil {
		return nil, badScript(err)
	}
	used.add(p.exited()...)
	return start(ctx, p, used, in.Input), nil
}

func badScript(err error) *provider.QueryError {
	return &provider.QueryError{Op: "read the script of the mock provider", Class: provider.ClassOther, Hint: "correct the line and send again", Err: err}
}

func (p *Provider) exitFile() string { return filepath.Join(p.opt.Home, ".nanoclaw-mock-exits") }

// exited are the numbers of the lines that ended a process.
func (p *Provider) exited() []int {
	if p.opt.Home == "" {
		return nil
	}
	var lines []int
	b, err := os.ReadFile(p.exitFile())
	if err == nil {
		err = json.Unmarshal(b, &lines)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.opt.Log.Warn("mock: lines that ended the process are forgotten", obs.Error(err))
		return nil
	}
	return lines
}

func (p *Provider) rememberExit(line int) {
	lines := p.exited()
	if p.opt.Home == "" || slices.Contains(lines, line) {
		return
	}
	b, err := json.Marshal(append(lines, line))
	if err == nil {
		next := p.exitFile() + ".new"
		if err = os.WriteFile(next, b, 0o600); err == nil {
			err = os.Rename(next, p.exitFile())
		}
	}
	if err != nil {
		p.opt.Log.Warn("mock: could not remember a line that ends the process", obs.Error(err))
	}
}
