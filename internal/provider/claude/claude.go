// Package claude drives the real claude CLI over its stream-json protocol: one process for each query, JSON lines both
// ways (spec/providers.md section 3; tested with the version that scripts/fetch-claude pins).
//
// What the CLI does and a caller must know: a turn may start without any input (a background task ended); text of a turn
// is only in its assistant lines; an API error looks like a success but for is_error; closing its input does not stop a
// turn; its shell children survive it; it runs a slash command only as the first characters of a prompt (commands says which ones);
// a compaction that failed is told by a status line only. docs/decisions.md has what else was found by trying.
package claude

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
const Name = "claude"

// Defaults of Options.
const (
	DefaultPath          = "/usr/local/bin:/usr/bin:/bin"
	DefaultInitWait      = 60 * time.Second
	DefaultInterruptWait = 2 * time.Second
	DefaultCloseWait     = 5 * time.Second
	DefaultTermWait      = 5 * time.Second
	DefaultEndWait       = 10 * time.Second
	DefaultSilence       = 10 * time.Minute
	DefaultKeepAlive     = 20 * time.Second
	DefaultRotateBytes   = 12 << 20
	DefaultRotateAge     = 14 * 24 * time.Hour
)

// compactWindow is the number of tokens from which the CLI reckons when to summarise, unless Env says another.
const compactWindow = "165000"

// The versions of the CLI that this driver was run with. Others get a warning in the log.
const (
	OldestTested = "2.1.261"
	NewestTested = "2.1.332"
)

// Options of the provider. Program and Home are required; zero values of the others are defaults.
type Options struct {
	Program string // the CLI, an absolute path
	Home    string // HOME: settings and transcripts of the conversations
	// Env is the whole environment of the CLI apart from HOME and a few switches of its own; nothing is inherited. It
	// holds what the process needs to reach its API: base URL, placeholder key, proxy variables, PATH, TZ, LANG.
	Env      map[string]string
	Model    string   // alias or id; "": the CLI's default
	Fallback string   // the model that is asked while the other is overloaded; "": none
	Effort   string   // low, medium, high, xhigh, max; "": the model's default
	Tools    []string // nil: DefaultTools
	// Compaction gives the instructions for the summary of a long conversation; it is called at each. nil: none.
	Compaction func() string
	// Conversations is where conversations are archived as Markdown before they are summarised or given up; "": the folder
	// conversations of the agent's.
	Conversations string
	RotateBytes   int64         // a transcript that is larger is not resumed any more
	RotateAge     time.Duration // nor one that began earlier; negative: whatever its age
	Log           *slog.Logger

	InitWait      time.Duration // for the CLI to answer its first request
	InterruptWait time.Duration // for a turn to end after an interrupt
	CloseWait     time.Duration // for an idle CLI to exit once its input is closed
	TermWait      time.Duration // between SIGTERM and SIGKILL
	EndWait       time.Duration // after End: for a CLI that finished its work to exit by itself
	Silence       time.Duration // no line for that long, no tool in flight: the turn is interrupted
	KeepAlive     time.Duration // between signs of life while a tool runs
	// IdleClose ends a CLI that had nothing to do for that long, as End does: it gives 200 MB back, and to resume costs less than a
	// second. Zero: never. A CLI that still has background work stays.
	IdleClose time.Duration
}

// Provider starts CLIs.
type Provider struct{ opt Options }

// New checks the options; whether the program works is found by Query.
func New(opt Options) (*Provider, error) {
	if !filepath.IsAbs(opt.Program) {
		return nil, fmt.Errorf("claude: program %q must be an absolute path", opt.Program)
	}
	if !filepath.IsAbs(opt.Home) {
		return nil, fmt.Errorf("claude: home %q must be an absolute path", opt.Home)
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	opt.Log = opt.Log.With(obs.KeyProvider, Name)
	if opt.Tools == nil {
		opt.Tools = DefaultTools()
	}
	if opt.RotateBytes <= 0 {
		opt.RotateBytes = DefaultRotateBytes
	}
	if opt.RotateAge == 0 {
		opt.RotateAge = DefaultRotateAge
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&opt.InitWait, DefaultInitWait}, {&opt.InterruptWait, DefaultInterruptWait}, {&opt.CloseWait, DefaultCloseWait},
		{&opt.TermWait, DefaultTermWait}, {&opt.EndWait, DefaultEndWait}, {&opt.Silence, DefaultSilence},
		{&opt.KeepAlive, DefaultKeepAlive},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	return &Provider{opt: opt}, nil
}

// Name is "claude".
func (p *Provider) Name() string { return Name }

// Caps of the CLI. Taken comes for every input, also for one that opens a turn of its own: it then stands between the
// result before and the result that answers it.
func (p *Provider) Caps() provider.Caps {
	return provider.Caps{
		Commands: commands(), MidTurnText: true, MidTurnInput: true, Receipts: true, Transcript: true, ToolEvents: true, Attachments: true,
	}
}

// IsSessionInvalid is true only for the CLI's own word that the conversation does not exist, and for a continuation that
// cannot be one of its ids.
func (p *Provider) IsSessionInvalid(err error) bool {
	var q *provider.QueryError
	return errors.As(err, &q) && q.Class == provider.ClassInvalidSession
}

// Session ids are checked before they become an argument: with anything else the CLI looks for a conversation of that title.
var sessionID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// Query starts a CLI. An error from here means that none runs.
func (p *Provider) Query(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	if in.Continuation != "" && !sessionID.MatchString(in.Continuation) {
		return nil, &provider.QueryError{
			Op: "resume the conversation", Class: provider.ClassInvalidSession, Retryable: true,
			Err: errors.New("the continuation is no session id of the claude CLI"),
		}
	}
	setup, err := initialize(in)
	if err != nil {
		return nil, &provider.QueryError{Op: "set up the tool servers", Class: provider.ClassOther, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return nil, &provider.QueryError{Op: "start the claude CLI", Class: provider.ClassOther, Retryable: true, Err: err}
	}
	if info, err := os.Stat(p.opt.Program); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		if err == nil {
			err = fmt.Errorf("%s is no program", p.opt.Program)
		}
		return nil, &provider.QueryError{Op: "find the claude CLI", Class: provider.ClassMissing, Hint: "nanoclaw doctor says how to install it", Err: err}
	}
	return p.start(ctx, in, setup)
}

// arguments of the CLI. No secret may stand here: every process can read them.
func (p *Provider) arguments(in provider.QueryInput, rules rules) []string {
	args := []string{
		"--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--include-partial-messages",
		"--await-initialize", "--setting-sources=project,user", "--strict-mcp-config",
		"--permission-mode=bypassPermissions", "--allow-dangerously-skip-permissions",
		"--tools=" + strings.Join(p.opt.Tools, ","),
		"--allowedTools=" + strings.Join(rules.allowed(p.opt.Tools), ","), "--disallowedTools=" + strings.Join(rules.disallowed(), ","),
	}
	for _, o := range []struct{ flag, value string }{
		{"--model=", p.opt.Model}, {"--fallback-model=", p.opt.Fallback}, {"--effort=", p.opt.Effort}, {"--resume=", in.Continuation},
	} {
		if o.value != "" {
			args = append(args, o.flag+o.value)
		}
	}
	for _, d := range in.Dirs {
		args = append(args, "--add-dir="+d)
	}
	return args
}

// environment of the CLI.
func (p *Provider) environment() []string {
	env := map[string]string{
		"PATH": DefaultPath, "LANG": "C.UTF-8",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"CLAUDE_CODE_ENTRYPOINT":                   "sdk-cli",
		"CLAUDE_CODE_AUTO_COMPACT_WINDOW":          compactWindow,
		"CLAUDE_CODE_DISABLE_AUTO_MEMORY":          "1", // the agent's own memory takes its place
	}
	if os.Getuid() == 0 {
		env["IS_SANDBOX"] = "1" // without it the CLI refuses to bypass permissions as root
	}
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
