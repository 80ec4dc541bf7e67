package store

import (
	"encoding/json"
	"errors"
	"time"

	"nanoclaw/internal/config/container"
)

// Setup is what the sandboxes of an agent are made of, beyond its provider: the column of that name, a JSON object. Zero fields
// are the host's own settings. It takes effect at the next start of a sandbox.
type Setup struct {
	IdleMinutes int      `json:"idle_minutes,omitempty"` // an idle sandbox is ended after this
	MemoryMB    int64    `json:"memory_mb,omitempty"`    // limit of memory
	Mounts      []Mount  `json:"mounts,omitempty"`
	Packages    Packages `json:"packages,omitzero"`
	// Skills are the shipped skills that the agent gets: all of them (nil), or these.
	Skills               *[]string                      `json:"skills,omitempty"`
	MCPServers           map[string]container.MCPServer `json:"mcp_servers,omitempty"`
	Speed                string                         `json:"speed,omitempty"`
	FallbackModel        string                         `json:"fallback_model,omitempty"`
	ScriptTimeoutSeconds int                            `json:"script_timeout_seconds,omitempty"`
}

// Mount is a folder or file of this machine that an agent asks for. It is looked at when a sandbox starts: package mount says
// what is granted.
type Mount struct {
	Path     string `json:"path"`
	Name     string `json:"name"` // below /workspace/extra
	Writable bool   `json:"writable,omitempty"`
}

// Packages are what the agent's image has beyond the one all agents share.
type Packages struct {
	Apt []string `json:"apt,omitempty"`
	NPM []string `json:"npm,omitempty"`
}

// None reports whether the shared image is enough.
func (p Packages) None() bool { return len(p.Apt)+len(p.NPM) == 0 }

// Idle is after how long an idle sandbox of the agent is ended; usual is the host's own setting.
func (s Setup) Idle(usual time.Duration) time.Duration {
	if s.IdleMinutes <= 0 {
		return usual
	}
	return time.Duration(s.IdleMinutes) * time.Minute
}

// Scan implements sql.Scanner.
func (s *Setup) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return errors.New("setup: not a text")
	}
	*s = Setup{}
	return json.Unmarshal([]byte(text), s)
}
