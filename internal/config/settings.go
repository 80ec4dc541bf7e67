// Package config is the settings of the programs: the host's table of options with file, environment and flags, and
// container.json, all that a runner is told.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Settings of a host. Load fills every field.
type Settings struct {
	Home string // absolute

	Sandbox         string // docker, bubblewrap, process, auto
	SandboxUID      int    // uid and gid of sandboxes when the host is root
	Image           string // agent image of docker
	DockerHost      string // API socket; empty: the usual places
	DockerRuntime   string // OCI runtime by name; empty: the daemon's default
	DockerBuildNet  string // network of the build steps of agents' images; empty: the daemon's default
	DockerRelabel   bool   // SELinux relabel of mounts
	MemoryBytes     int64
	PIDs            int64
	CPUs            float64
	TmpBytes        int64
	MaxLive         int           // sandboxes at a time; 0: as many as the machine's memory takes
	IdleStop        time.Duration // an idle sandbox is ended after this
	ClaudeProgram   string        // the claude CLI on the host, for bubblewrap and process; empty: looked up in PATH
	AnthropicURL    string        // base URL of the Anthropic API
	OpenAIURL       string        // base URL of the OpenAI API, or of a server that speaks it
	OllamaURL       string        // base URL of the server of local models
	OpenAIWire      string        // chat: the server speaks nothing but chat completions
	ContextTokens   int64         // of the model, where our own loop does not know it; 0: what is known
	UploadTrace     bool          // /upload-trace may hand a transcript out
	UploadURL       string        // base URL of where transcripts go
	CodexProgram    string        // the codex CLI on the host, as ClaudeProgram
	OpencodeProgram string        // the opencode program on the host, as ClaudeProgram
	ACPProgram      string        // an agent that speaks the Agent Client Protocol, as ClaudeProgram; empty: there is none
	ACPArgs         string        // its arguments, separated by spaces
	ACPAPI          string        // the API that it reaches with the host's key: anthropic, openai, ollama; empty: none
	EgressAllow     []string      // host:port a sandbox may CONNECT to
	Zone            string        // IANA name; empty: TZ, /etc/timezone, /etc/localtime, UTC
	AssistantName   string
	MaxTries        int           // tries of an inbound row before it is given up
	ClaimTolerance  time.Duration // a claim without sign of life is stuck after this
	Ceiling         time.Duration // a working runner without sign of life is ended after this
	MaxAttachment   int64         // bytes of one attachment of an incoming message
	Sweep           time.Duration // period of the resync
	Retention       time.Duration // of final rows
	LogLevel        string
	LogFormat       string // text or json
	LogFile         string // empty: standard error
	LogMaxBytes     int64  // of the log file and of each one put aside
	LogMaxAge       time.Duration
	MetricsListen   string // loopback host:port; empty: the control socket only
}

type option struct {
	key   string // dotted: table.name of nanoclaw.toml
	value string // default
	help  string
	set   func(*Settings, string) error
}

// Environ is the environment variable of an option: NANOCLAW_ and the key in upper case with _ for dots.
func environ(key string) string {
	return "NANOCLAW_" + strings.ToUpper(strings.NewReplacer(".", "_").Replace(key))
}

func options() []option {
	return []option{
		{"sandbox.kind", "auto", "docker, bubblewrap, process or auto", func(s *Settings, v string) error {
			return oneOf(&s.Sandbox, v, "auto", "docker", "bubblewrap", "process")
		}},
		{"sandbox.uid", "62018", "uid and gid that sandboxes run as when the host is root; never 0", func(s *Settings, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n <= 0 || n > 1<<31-2 {
				return errors.New("must be a user id above 0")
			}
			s.SandboxUID = n
			return nil
		}},
		{"sandbox.image", "nanoclaw-agent:latest", "agent image of docker", text(func(s *Settings) *string { return &s.Image })},
		{"sandbox.memory_mb", "2048", "memory of one sandbox in MiB; 0: no limit", mebibytes(func(s *Settings) *int64 { return &s.MemoryBytes })},
		{"sandbox.tmp_mb", "256", "size of /tmp and of /run in MiB", mebibytes(func(s *Settings) *int64 { return &s.TmpBytes })},
		{"sandbox.pids", "512", "processes of one sandbox; 0: no limit", count(func(s *Settings) *int64 { return &s.PIDs })},
		{"sandbox.cpus", "2", "processors of one sandbox; 0: no limit", func(s *Settings, v string) error {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil || f < 0 || f > 1024 {
				return errors.New("must be a number of processors")
			}
			s.CPUs = f
			return nil
		}},
		{"sandbox.max_live", "auto", "sandboxes at a time; auto: one for each 512 MiB of the machine's memory, at least 2", func(s *Settings, v string) error {
			if v == "auto" {
				s.MaxLive = 0
				return nil
			}
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > 100_000 {
				return errors.New("must be auto or a number from 1 to 100000")
			}
			s.MaxLive = n
			return nil
		}},
		{"sandbox.idle", "10m", "an idle sandbox is ended after this", duration(time.Second, func(s *Settings) *time.Duration { return &s.IdleStop })},
		{"docker.host", "", "API socket of Docker or Podman", text(func(s *Settings) *string { return &s.DockerHost })},
		{"docker.runtime", "", "OCI runtime by name, for example runsc", text(func(s *Settings) *string { return &s.DockerRuntime })},
		{"docker.build_network", "", "network of the steps that build agents' images: host, none, or the daemon's default", text(func(s *Settings) *string { return &s.DockerBuildNet })},
		{"docker.relabel", "false", "relabel mounts for SELinux", func(s *Settings, v string) (err error) {
			if s.DockerRelabel, err = strconv.ParseBool(v); err != nil {
				return errors.New("must be true or false")
			}
			return nil
		}},
		{"claude.program", "", "path of the claude CLI on this machine", text(func(s *Settings) *string { return &s.ClaudeProgram })},
		{"codex.program", "", "path of the codex CLI on this machine", text(func(s *Settings) *string { return &s.CodexProgram })},
		{"opencode.program", "", "path of the opencode program on this machine", text(func(s *Settings) *string { return &s.OpencodeProgram })},
		{"acp.program", "", "path of an agent that speaks the Agent Client Protocol", text(func(s *Settings) *string { return &s.ACPProgram })},
		{"acp.args", "", "its arguments, separated by spaces", text(func(s *Settings) *string { return &s.ACPArgs })},
		{"acp.api", "", "the API that it reaches with the host's key: anthropic, openai or ollama; empty: none", func(s *Settings, v string) error {
			return oneOf(&s.ACPAPI, v, "", "anthropic", "openai", "ollama")
		}},
		{"anthropic.base_url", "https://api.anthropic.com", "base URL of the Anthropic API", baseURL(func(s *Settings) *string { return &s.AnthropicURL })},
		{"openai.base_url", "https://api.openai.com", "base URL of the OpenAI API, or of a server that speaks it", baseURL(func(s *Settings) *string { return &s.OpenAIURL })},
		{"openai.wire", "", "chat for a server that speaks nothing but chat completions", func(s *Settings, v string) error {
			return oneOf(&s.OpenAIWire, v, "", "chat")
		}},
		{"model.context_tokens", "0", "context of the model in tokens, for our own loop; 0: what is known of it", count(func(s *Settings) *int64 { return &s.ContextTokens })},
		{"ollama.base_url", "http://127.0.0.1:11434", "base URL of the server of local models", baseURL(func(s *Settings) *string { return &s.OllamaURL })},
		{"upload_trace.allow", "false", "whether /upload-trace may hand the transcript of a conversation out", func(s *Settings, v string) (err error) {
			if s.UploadTrace, err = strconv.ParseBool(v); err != nil {
				return errors.New("must be true or false")
			}
			return nil
		}},
		{"upload_trace.base_url", "https://huggingface.co", "base URL of where transcripts go", baseURL(func(s *Settings) *string { return &s.UploadURL })},
		{"egress.allow", "", "host:port pairs a sandbox may connect to, separated by commas", func(s *Settings, v string) error {
			for _, p := range strings.Split(v, ",") {
				if p = strings.TrimSpace(p); p != "" {
					s.EgressAllow = append(s.EgressAllow, p)
				}
			}
			return nil
		}},
		{"zone", "", "IANA time zone", func(s *Settings, v string) error {
			if v != "" {
				if _, err := time.LoadLocation(v); err != nil {
					return errors.New("must be an IANA zone such as Europe/Paris")
				}
			}
			s.Zone = v
			return nil
		}},
		{"assistant", "Nano", "name of the first agent", text(func(s *Settings) *string { return &s.AssistantName })},
		{"session.max_tries", "5", "tries of a message before it is given up", func(s *Settings, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > 100 {
				return errors.New("must be 1 to 100")
			}
			s.MaxTries = n
			return nil
		}},
		{"session.claim_tolerance", "1m", "a claim without sign of life is stuck after this", duration(time.Second, func(s *Settings) *time.Duration { return &s.ClaimTolerance })},
		{"session.ceiling", "30m", "a working agent without sign of life is ended after this", duration(time.Second, func(s *Settings) *time.Duration { return &s.Ceiling })},
		{"attachments.max_bytes", "104857600", "bytes of one attachment of an incoming message", func(s *Settings, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 1 || n > 1<<40 {
				return errors.New("must be a number of bytes, 1 or more")
			}
			s.MaxAttachment = n
			return nil
		}},
		{"sweep.period", "60s", "period of the resync", duration(100*time.Millisecond, func(s *Settings) *time.Duration { return &s.Sweep })},
		{"retention", "2160h", "final rows are kept this long", duration(time.Hour, func(s *Settings) *time.Duration { return &s.Retention })},
		{"log.level", "info", "debug, info, warn or error", func(s *Settings, v string) error {
			return oneOf(&s.LogLevel, v, "debug", "info", "warn", "error")
		}},
		{"log.format", "text", "text or json", func(s *Settings, v string) error {
			return oneOf(&s.LogFormat, v, "text", "json")
		}},
		{"log.file", "", "file that the log goes to; empty: standard error", text(func(s *Settings) *string { return &s.LogFile })},
		{"log.max_bytes", "20971520", "size at which a log file is put aside; 0: no limit", count(func(s *Settings) *int64 { return &s.LogMaxBytes })},
		{"log.max_age_days", "14", "days that log files are kept; 0: for ever", days(func(s *Settings) *time.Duration { return &s.LogMaxAge })},
		{"metrics.listen", "", "loopback host:port where metrics are served, too", loopback(func(s *Settings) *string { return &s.MetricsListen })},
	}
}

// FileName of the settings in the home folder.
const FileName = "nanoclaw.toml"

// Error of one setting: where it stands, its name and what is wrong.
type Error struct {
	Source, Key, Problem string
}

func (e *Error) Error() string {
	if e.Key == "" { // the file cannot be read at all
		return fmt.Sprintf("settings %s: %s", e.Source, e.Problem)
	}
	return fmt.Sprintf("setting %s (%s): %s", e.Key, e.Source, e.Problem)
}

// Wrong is the error of one setting whose value another package refuses, with where that value stands.
func Wrong(key, problem string, env func(string) string, flags map[string]string) error {
	source := FileName
	if env(environ(key)) != "" {
		source = environ(key)
	}
	if _, ok := flags[key]; ok {
		source = "flag"
	}
	return &Error{source, key, problem}
}

// Load reads the settings of a home: flag over environment over file over default. flags has dotted keys. All problems are
// reported at once, joined, each an *Error; nothing is written.
func Load(home string, env func(string) string, flags map[string]string) (Settings, error) {
	s := Settings{Home: home}
	file, err := readFile(filepath.Join(home, FileName))
	if err != nil {
		return Settings{}, err
	}
	var problems []error
	known := map[string]bool{}
	for _, o := range options() {
		known[o.key] = true
		value, source := o.value, "default"
		if v, ok := file[o.key]; ok {
			value, source = v, FileName
		}
		if v := env(environ(o.key)); v != "" {
			value, source = v, environ(o.key)
		}
		if v, ok := flags[o.key]; ok {
			value, source = v, "flag"
		}
		if err := o.set(&s, value); err != nil {
			problems = append(problems, &Error{source, o.key, fmt.Sprintf("%q %v", value, err)})
		}
	}
	for _, m := range []struct {
		source string
		values map[string]string
	}{{FileName, file}, {"flag", flags}} {
		for _, k := range sorted(m.values) {
			if !known[k] {
				problems = append(problems, &Error{m.source, k, "is not known; see docs/operations.md"})
			}
		}
	}
	if len(problems) > 0 {
		return Settings{}, errors.Join(problems...)
	}
	return s, nil
}

// Defaults are the settings of a home without file, environment and flags.
func Defaults(home string) (Settings, error) {
	s := Settings{Home: home}
	for _, o := range options() {
		if err := o.set(&s, o.value); err != nil {
			return s, &Error{"default", o.key, fmt.Sprintf("%q %v", o.value, err)}
		}
	}
	return s, nil
}

func readFile(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	var tree map[string]any
	if err := toml.Unmarshal(b, &tree); err != nil {
		problem := strings.TrimPrefix(err.Error(), "toml: ")
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, column := at.Position()
			problem = fmt.Sprintf("line %d, column %d: %s", row, column, problem)
		}
		return nil, &Error{Source: path, Problem: problem}
	}
	out := map[string]string{}
	if err := flatten("", tree, out); err != nil {
		return nil, fmt.Errorf("read settings %s: %w", path, err)
	}
	return out, nil
}

func flatten(prefix string, tree map[string]any, out map[string]string) error {
	for k, v := range tree {
		key := prefix + k
		switch v := v.(type) {
		case map[string]any:
			if err := flatten(key+".", v, out); err != nil {
				return err
			}
		case []any:
			parts := make([]string, 0, len(v))
			for _, p := range v {
				parts = append(parts, fmt.Sprint(p))
			}
			out[key] = strings.Join(parts, ",")
		case string, bool, int64, float64:
			out[key] = fmt.Sprint(v)
		default:
			return &Error{FileName, key, fmt.Sprintf("has a value of a kind that no setting takes (%T)", v)}
		}
	}
	return nil
}

// Home is the home folder: NANOCLAW_HOME, else .nanoclaw in the user's home.
func Home(env func(string) string) (string, error) {
	h := env("NANOCLAW_HOME")
	if h == "" {
		user := env("HOME")
		if user == "" {
			return "", errors.New("find the home folder: neither NANOCLAW_HOME nor HOME is set")
		}
		h = filepath.Join(user, ".nanoclaw")
	}
	abs, err := filepath.Abs(h)
	if err != nil {
		return "", fmt.Errorf("find the home folder: %w", err)
	}
	return abs, nil
}

func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func baseURL(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		if !strings.HasPrefix(v, "https://") && !strings.HasPrefix(v, "http://") {
			return errors.New("must start with https:// or http://")
		}
		*field(s) = strings.TrimRight(v, "/")
		return nil
	}
}

func text(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = strings.TrimSpace(v)
		return nil
	}
}

func oneOf(field *string, v string, allowed ...string) error {
	for _, a := range allowed {
		if v == a {
			*field = v
			return nil
		}
	}
	return errors.New("must be one of " + strings.Join(allowed, ", "))
}

func duration(least time.Duration, field func(*Settings) *time.Duration) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least {
			return fmt.Errorf("must be a duration of at least %v, for example 90s", least)
		}
		*field(s) = d
		return nil
	}
}

func count(field func(*Settings) *int64) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return errors.New("must be a whole number, 0 or more")
		}
		*field(s) = n
		return nil
	}
}

func mebibytes(field func(*Settings) *int64) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 || n > 1<<40 {
			return errors.New("must be a number of MiB, 0 or more")
		}
		*field(s) = n << 20
		return nil
	}
}
