package control

import "log/slog"

// Host states.
const (
	HostStarting = "starting"
	HostRunning  = "running"
	HostDegraded = "degraded" // works, but something needs a person; see Warnings
	HostStopping = "stopping"
)

// Status of a host and what it runs. Lists are never null.
type Status struct {
	State      string          `json:"state"`
	Version    string          `json:"version"`
	PID        int             `json:"pid"`
	Started    Time            `json:"started"`
	Home       string          `json:"home"`
	Sandbox    SandboxStatus   `json:"sandbox"`
	Provider   ProviderStatus  `json:"provider"`
	Programs   []ProgramStatus `json:"programs,omitempty"`
	Channels   []ChannelStatus `json:"channels"`
	Sessions   []SessionStatus `json:"sessions"` // live ones: with a sandbox or with work due
	Deliveries DeliveryStatus  `json:"deliveries"`
	Builds     []string        `json:"builds,omitempty"` // images that are made, and how far they are
	Warnings   []string        `json:"warnings"`
}

// SandboxStatus is the chosen runtime.
type SandboxStatus struct {
	Kind    string `json:"kind"`             // docker, bubblewrap, process
	Reason  string `json:"reason,omitempty"` // why, in one line
	Limits  string `json:"limits,omitempty"` // how limits are enforced, in words
	Live    int    `json:"live"`
	MaxLive int    `json:"max_live,omitempty"` // as many may run at a time
	Waiting int    `json:"waiting,omitempty"`  // sessions that wait for a place
}

// ProviderStatus is what answers.
type ProviderStatus struct {
	Name string `json:"name"`
	Key  bool   `json:"key"`            // the host holds a key for it
	Free bool   `json:"free,omitempty"` // it needs none
}

// ProgramStatus is the program of a provider that agents are set to use.
type ProgramStatus struct {
	Name    string   `json:"name"`
	Agents  []string `json:"agents"`            // names of those that have it as their provider's or as one that stands in
	Missing string   `json:"missing,omitempty"` // what is wrong, in words; empty: it is there
}

// ChannelStatus of one adapter instance.
type ChannelStatus struct {
	Type     string `json:"type"`
	Instance string `json:"instance"`
	State    string `json:"state"`
	Since    Time   `json:"since,omitzero"`
	Reason   string `json:"reason,omitempty"`
}

// SessionStatus of one live session.
type SessionStatus struct {
	ID          string `json:"id"`
	AgentGroup  string `json:"agent_group"`
	Incarnation int64  `json:"incarnation"`
	State       string `json:"state"` // starting, working, idle, waiting
	Tool        string `json:"tool,omitempty"`
	Due         int    `json:"due"` // rows that wait for the agent
	LastActive  Time   `json:"last_active,omitzero"`
}

// DeliveryStatus counts the ledger's open and dead rows.
type DeliveryStatus struct {
	Queued  int `json:"queued"`
	Retry   int `json:"retry"`
	Unknown int `json:"unknown"`
	Dead    int `json:"dead"`
}

// Stopping is the answer to stop: the host began to stop and answers nothing more.
type Stopping struct {
	PID       int  `json:"pid"`
	Sandboxes bool `json:"sandboxes"` // they are stopped too
}

// Kinds of secrets.
const (
	SecretAPIKey     = "api_key"
	SecretOAuthToken = "oauth_token"
)

// SecretAnthropic is the name under which the key of the Anthropic API is kept.
const SecretAnthropic = "anthropic"

// SecretHuggingFace is the name under which the token of the account is kept that transcripts are uploaded to.
const SecretHuggingFace = "huggingface"

// SecretOpenAI is the name under which the key of the OpenAI API is kept.
const SecretOpenAI = "openai"

// Secret is a key on its way to the host. No verb of fmt and no log shows its value.
type Secret struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Value string `json:"value"`
}

func (s Secret) String() string { return "secret " + s.Name + " (" + s.Kind + ")" }

// GoString keeps the value out of %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue keeps the value out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// BootstrapRequest asks for what a first conversation needs: owner, agent, terminal wiring. It may be repeated: what is
// there stays.
type BootstrapRequest struct {
	Conversation string `json:"conversation,omitempty"` // default: DefaultConversation
}

// Bootstrap says what is there now.
type Bootstrap struct {
	Created      bool   `json:"created"` // something was made by this call
	Conversation string `json:"conversation"`
	AgentGroup   string `json:"agent_group"`
	AgentName    string `json:"agent_name"`
	Provider     string `json:"provider"`         // claude with a key, else mock
	Offline      bool   `json:"offline"`          // the provider is the built-in one that asks no model
	Sandbox      string `json:"sandbox"`          // kind
	SandboxWhy   string `json:"sandbox_why"`      // in one line
	Notice       string `json:"notice,omitempty"` // for the person, in one line
}

// Empty answer.
type Empty struct{}
