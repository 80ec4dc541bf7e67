package program

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/control"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/acp"
	"nanoclaw/internal/provider/claude"
	"nanoclaw/internal/provider/codex"
	"nanoclaw/internal/provider/mock"
	"nanoclaw/internal/provider/native/wire/anthropic"
	"nanoclaw/internal/provider/native/wire/ollama"
	"nanoclaw/internal/provider/native/wire/openai"
	"nanoclaw/internal/provider/opencode"
	"nanoclaw/internal/runner/relay"
)

// setting is what a provider is made from.
type setting struct {
	config container.Config
	agent  string // the agent's folder
	home   string
	env    func(string) string
	call   func(ctx context.Context, name string, args json.RawMessage) (string, error)
	// relay is the way out of the sandbox, started on the first call.
	relay func() (*relay.Relay, error)
	// compaction says how a long conversation is to be summarised.
	compaction func() string
	log        *slog.Logger
}

// choice is one known provider.
type choice struct {
	name string
	make func(setting) (provider.Provider, error)
	// tools: it reaches the runner's tools over the network; the mock provider calls them directly.
	tools bool
}

// choices are all known providers. Adding one is a folder and a line here.
func choices() []choice {
	return []choice{
		{name: claude.Name, make: newClaude, tools: true},
		{name: anthropic.Name, make: newAnthropic, tools: true},
		{name: openai.Name, make: newOpenAI, tools: true},
		{name: ollama.Name, make: newOllama, tools: true},
		{name: codex.Name, make: newCodex, tools: true},
		{name: opencode.Name, make: newOpencode, tools: true},
		{name: acp.Name, make: newACP, tools: true},
		{name: mock.Name, make: newMock},
	}
}

func choose(name string) (choice, error) {
	var names []string
	for _, c := range choices() {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	slices.Sort(names)
	return choice{}, fmt.Errorf("unknown provider %q in container.json; known are: %s", name, strings.Join(names, ", "))
}

func newMock(s setting) (provider.Provider, error) {
	return mock.New(mock.Options{Script: filepath.Join(s.agent, mock.ScriptName), Home: s.home, CallTool: s.call, Log: s.log}), nil
}

func newClaude(s setting) (provider.Provider, error) {
	program, err := find(s, claude.Name)
	if err != nil {
		return nil, err
	}
	out, err := s.relay()
	if err != nil {
		return nil, err
	}
	return claude.New(claude.Options{
		Program: program, Home: s.home, Env: claudeEnv(s, out), Model: s.config.Model, Fallback: s.config.FallbackModel, Effort: s.config.Effort,
		Compaction: s.compaction, Conversations: s.env("NANOCLAW_CONVERSATIONS_DIR"), IdleClose: claudeIdle, Log: s.log,
		RotateBytes: rotateBytes(s.env("CLAUDE_TRANSCRIPT_ROTATE_BYTES")), RotateAge: rotateAge(s.env("CLAUDE_TRANSCRIPT_ROTATE_AGE_DAYS")),
	})
}

// rotateBytes is the size that a transcript may have; 0, the provider's own limit, for what is no number above it.
func rotateBytes(v string) int64 {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// rotateAge is the age that a conversation may have: negative, none, for days that are not above zero; 0, the provider's own limit,
// for what is no number (spec/runner.md section 1.4).
func rotateAge(v string) time.Duration {
	const most = 36500 // days; more would not fit
	days, err := strconv.ParseFloat(v, 64)
	switch {
	case err != nil || math.IsNaN(days):
		return 0
	case days <= 0:
		return -1
	}
	return time.Duration(min(days, most) * float64(24*time.Hour))
}

// claudeRetries is how often the CLI repeats a request by itself: about 15 s. Its own default goes on for minutes, in silence, also
// with a key that is refused; the loop retries after that, and then has something to say.
const claudeRetries = "5"

// claudeIdle is how long a CLI that has nothing to do keeps its 200 MB.
const claudeIdle = 3 * time.Minute

// claudeEnv is the whole environment of the CLI: where its API is, the placeholder that stands for the key, and what any program
// needs. Nothing else of the runner's environment is passed on.
func claudeEnv(s setting, out *relay.Relay) map[string]string {
	env := map[string]string{"ANTHROPIC_BASE_URL": out.BaseURL("anthropic"), "CLAUDE_CODE_MAX_RETRIES": claudeRetries}
	for _, v := range out.Environ() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	for _, name := range []string{"PATH", "TZ", "LANG", "TMPDIR", "CLAUDE_CODE_AUTO_COMPACT_WINDOW", control.RunnerVariable} {
		if v := s.env(name); v != "" {
			env[name] = v
		}
	}
	switch s.config.Credential.Kind {
	case "api_key":
		env["ANTHROPIC_API_KEY"] = s.config.Credential.Placeholder
	case "oauth_token":
		env["CLAUDE_CODE_OAUTH_TOKEN"] = s.config.Credential.Placeholder
	}
	return env
}

// servers are the tool servers of the agent's own settings, in order of name. Each stdio server gets environ, the way out, too.
func servers(c container.Config, environ []string) []provider.MCPServer {
	var out []provider.MCPServer
	for _, name := range slices.Sorted(maps.Keys(c.MCPServers)) {
		s := c.MCPServers[name]
		v := provider.MCPServer{Name: name, URL: s.URL, Headers: s.Headers, Only: s.EnabledTools, Without: s.DisabledTools}
		if s.Command != "" {
			v.Command, v.Args, v.Cwd, v.Env = s.Command, s.Args, s.Cwd, s.Environment(environ)
		}
		out = append(out, v)
	}
	return out
}
