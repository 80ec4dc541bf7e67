// Package container is container.json, the settings of a runner. It stands apart from the host's settings so that the runner
// carries no library for their file.
package container

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"
)

// Config is container.json: all that the runner is told. The host writes it by rename before each spawn; nothing else
// configures the runner but TZ (design.md section 5). It holds no secret: Credential is a placeholder.
type Config struct {
	Provider             string               `json:"provider"`      // registry name, lower case; default "claude"
	AssistantName        string               `json:"assistantName"` // identity in the system prompt
	GroupName            string               `json:"groupName"`
	AgentGroupID         string               `json:"agentGroupId"`
	SessionID            string               `json:"sessionId"`
	Incarnation          int64                `json:"incarnation"`
	MaxMessagesPerPrompt int                  `json:"maxMessagesPerPrompt"` // 1 to 100; default 10
	MCPServers           map[string]MCPServer `json:"mcpServers"`
	Model                string               `json:"model"`
	Effort               string               `json:"effort"` // low, medium, high, xhigh, max
	Credential           Credential           `json:"credential"`
	// Fallbacks are the providers that stand in, in this order, when the one before cannot answer.
	Fallbacks     []Choice `json:"fallbacks,omitempty"`
	Relay         Relay    `json:"relay"`
	Speed         string   `json:"speed,omitempty"`         // tier of the model's API: standard, fast; empty: the provider's own
	FastMode      bool     `json:"fastMode,omitempty"`      // older form of Speed; after Load: Speed is fast
	FallbackModel string   `json:"fallbackModel,omitempty"` // when Model is overloaded; empty: none
	UploadTrace   bool     `json:"uploadTrace,omitempty"`   // /upload-trace may send a transcript away
	Wire          string   `json:"wire,omitempty"`          // of provider openai: chat for chat completions; empty: Responses, where the server has them
	ContextTokens int64    `json:"contextTokens,omitempty"` // of the model, for the native loop and as num_ctx of ollama; 0: what is known of it
	// ScriptTimeoutSeconds is how long the script of a task may take: 1 to 300; default 30.
	ScriptTimeoutSeconds int `json:"scriptTimeoutSeconds,omitempty"`
	// Programs maps a provider program (claude, codex, …) to its path inside.
	Programs map[string]string `json:"programs"`
	// AgentAPI is the API that the agent of the provider acp reaches by way of the host: anthropic, openai or ollama; empty: none.
	AgentAPI string `json:"agentApi,omitempty"`
}

// UploadAPI is the name under which the host's reverse proxy reaches the account that transcripts go to.
const UploadAPI = "huggingface"

// Choice is a provider with what belongs to it.
type Choice struct {
	Provider   string     `json:"provider"`
	Model      string     `json:"model,omitempty"`
	Effort     string     `json:"effort,omitempty"`
	Credential Credential `json:"credential,omitzero"`
}

// Chain is the providers of the agent, the first one first.
func (c Config) Chain() []Choice {
	return append([]Choice{{c.Provider, c.Model, c.Effort, c.Credential}}, c.Fallbacks...)
}

// With is the settings as the provider of one choice sees them.
func (c Config) With(choice Choice) Config {
	c.Provider, c.Model, c.Effort, c.Credential = choice.Provider, choice.Model, choice.Effort, choice.Credential
	return c
}

// API splits the model of a provider that reaches models by several APIs: "openai/gpt" is gpt by the API openai. A model without one
// of these names before it is one of fallback.
func API(model, fallback string, known ...string) (api, name string) {
	if api, name, ok := strings.Cut(model, "/"); ok && slices.Contains(known, api) {
		return api, name
	}
	return fallback, model
}

// Credential is what the provider child gets instead of a key: of the same kind, worthless away from its socket.
type Credential struct {
	Kind        string `json:"kind,omitempty"` // api_key or oauth_token; empty: none
	Placeholder string `json:"placeholder,omitempty"`
}

// Relay is where the runner listens for its children. In a sandbox with its own network it is 127.0.0.1:3128 without a
// token; the process runtime uses a random port and a token, since other programs of the machine see the port.
type Relay struct {
	Listen string `json:"listen,omitempty"`
	Token  string `json:"token,omitempty"`
}

// Limits of container.json.
const (
	DefaultProvider    = "claude"
	DefaultMaxMessages = 10
	maxMessages        = 100
	// DefaultScriptTimeout is Config.ScriptTimeoutSeconds where nothing else is set.
	DefaultScriptTimeout = 30
	maxScriptTimeout     = 300
	maxContainerBytes    = 1 << 20
	// RelayAddress is the relay's address wherever the sandbox has a network of its own.
	RelayAddress = "127.0.0.1:3128"
)

// ExitNoProgram is the exit code of a runner whose provider's program is not in its sandbox (EX_UNAVAILABLE).
const ExitNoProgram = 69

// WireChat is Config.Wire for a server that speaks nothing but chat completions.
const WireChat = "chat"

// Values of Config.Speed.
const (
	SpeedStandard = "standard"
	SpeedFast     = "fast"
)

// model reports whether s may become an argument of a provider's program.
func model(s string) bool {
	return len(s) <= 128 && named(strings.TrimLeft(s, "0123456789")+"x", 128, "._:/@[]-") && !strings.ContainsRune("._:/@[]-", rune(s[0]))
}

// clip is a value of a setting as a warning may show it.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Load reads a container.json. A field of the wrong type, out of range or reserved falls back to its default and
// is named in warnings; the rest of the file counts. A missing or unreadable file, or one that is not a JSON object,
// is an error.
func Load(path string) (c Config, warnings []string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, nil, fmt.Errorf("read container settings: %w", err)
	}
	if len(b) > maxContainerBytes {
		return Config{}, nil, fmt.Errorf("read container settings %s: larger than %d bytes", path, maxContainerBytes)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return Config{}, nil, fmt.Errorf("read container settings %s: not a JSON object: %w", path, err)
	}
	if raw == nil {
		return Config{}, nil, fmt.Errorf("read container settings %s: null is not a JSON object", path)
	}
	fields := reader{raw: raw}
	read(&fields, "provider", &c.Provider)
	read(&fields, "assistantName", &c.AssistantName)
	read(&fields, "groupName", &c.GroupName)
	read(&fields, "agentGroupId", &c.AgentGroupID)
	read(&fields, "sessionId", &c.SessionID)
	read(&fields, "model", &c.Model)
	read(&fields, "effort", &c.Effort)
	read(&fields, "incarnation", &c.Incarnation)
	read(&fields, "maxMessagesPerPrompt", &c.MaxMessagesPerPrompt)
	read(&fields, "credential", &c.Credential)
	read(&fields, "fallbacks", &c.Fallbacks)
	read(&fields, "relay", &c.Relay)
	read(&fields, "programs", &c.Programs)
	read(&fields, "agentApi", &c.AgentAPI)
	read(&fields, "fastMode", &c.FastMode)
	read(&fields, "uploadTrace", &c.UploadTrace)
	read(&fields, "scriptTimeoutSeconds", &c.ScriptTimeoutSeconds)
	read(&fields, "speed", &c.Speed)
	read(&fields, "fallbackModel", &c.FallbackModel)
	read(&fields, "wire", &c.Wire)
	read(&fields, "contextTokens", &c.ContextTokens)
	var servers map[string]json.RawMessage
	read(&fields, "mcpServers", &servers)
	c.MCPServers, warnings = readServers(servers)
	warnings = append(fields.warnings, warnings...)
	warnings = append(warnings, c.normalize()...)
	for i, w := range warnings {
		warnings[i] = plain(w)
	}
	return c, warnings, nil
}

// reader reads the fields of a file one by one.
type reader struct {
	raw      map[string]json.RawMessage
	warnings []string
}

// read sets into from a field, as a whole or not at all.
func read[T any](r *reader, name string, into *T) {
	raw, ok := r.raw[name]
	if !ok || string(raw) == "null" {
		return
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		r.warnings = append(r.warnings, fmt.Sprintf("%s: %v; the default applies", name, err))
		return
	}
	*into = v
}

// plain is a warning that fits on a line of a log, whatever the file held.
func plain(s string) string {
	const most = 500
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func (c *Config) normalize() (warnings []string) {
	if c.Provider = strings.ToLower(strings.TrimSpace(c.Provider)); c.Provider == "" {
		c.Provider = DefaultProvider
	}
	switch n := c.MaxMessagesPerPrompt; {
	case n == 0:
		c.MaxMessagesPerPrompt = DefaultMaxMessages
	case n < 0 || n > maxMessages:
		warnings = append(warnings, fmt.Sprintf("maxMessagesPerPrompt: %d is not 1 to %d; %d applies", n, maxMessages, DefaultMaxMessages))
		c.MaxMessagesPerPrompt = DefaultMaxMessages
	}
	switch c.Effort {
	case "", "low", "medium", "high", "xhigh", "max":
	default:
		warnings = append(warnings, fmt.Sprintf("effort: %q is not one of low, medium, high, xhigh, max; the provider's default applies", clip(c.Effort)))
		c.Effort = ""
	}
	switch n := c.ScriptTimeoutSeconds; {
	case n == 0:
		c.ScriptTimeoutSeconds = DefaultScriptTimeout
	case n < 0 || n > maxScriptTimeout:
		warnings = append(warnings, fmt.Sprintf("scriptTimeoutSeconds: %d is not 1 to %d; %d applies", n, maxScriptTimeout, DefaultScriptTimeout))
		c.ScriptTimeoutSeconds = DefaultScriptTimeout
	}
	switch c.Speed = strings.ToLower(strings.TrimSpace(c.Speed)); c.Speed {
	case "":
		if c.FastMode {
			c.Speed = SpeedFast
		}
	case SpeedStandard, SpeedFast:
	default:
		warnings = append(warnings, fmt.Sprintf("speed: %q is not one of %s, %s; the provider's default applies", clip(c.Speed), SpeedStandard, SpeedFast))
		c.Speed = ""
	}
	c.FastMode = c.Speed == SpeedFast
	for _, m := range []struct {
		field string
		model *string
	}{{"model", &c.Model}, {"fallbackModel", &c.FallbackModel}} {
		if *m.model = strings.TrimSpace(*m.model); *m.model != "" && !model(*m.model) {
			warnings = append(warnings, fmt.Sprintf("%s: %q is not the name of a model; the provider's default applies", m.field, clip(*m.model)))
			*m.model = ""
		}
	}
	if c.FallbackModel != "" && c.FallbackModel == c.Model {
		warnings = append(warnings, "fallbackModel: it is the model itself; none applies")
		c.FallbackModel = ""
	}
	if c.Wire != "" && c.Wire != WireChat {
		warnings = append(warnings, fmt.Sprintf("wire: %q is not %s; the provider's own applies", clip(c.Wire), WireChat))
		c.Wire = ""
	}
	if c.ContextTokens < 0 {
		warnings = append(warnings, "contextTokens: negative; what is known of the model applies")
		c.ContextTokens = 0
	}
	if c.Incarnation < 0 {
		warnings = append(warnings, "incarnation: negative; 0 applies")
		c.Incarnation = 0
	}
	return warnings
}
