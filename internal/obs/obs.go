// Package obs is how the programs speak to their operators: structured logs with constant keys, and secrets that cannot
// be printed. Message text never appears at info or above.
package obs

import "log/slog"

// Keys of log attributes, the same everywhere.
const (
	KeyComponent    = "component"
	KeySession      = "session"
	KeyGroup        = "agent_group"
	KeyIncarnation  = "incarnation"
	KeyExchange     = "exchange"
	KeyMessage      = "message"
	KeyLedger       = "ledger"
	KeyChannel      = "channel"
	KeyDestination  = "destination"
	KeyProvider     = "provider"
	KeyTool         = "tool"
	KeyError        = "error"
	KeyReason       = "reason"
	KeyCount        = "count"
	KeyElapsed      = "elapsed_ms"
	KeyPath         = "path"
	KeyPID          = "pid"
	KeyAddress      = "address"
	KeyAction       = "action"
	KeyClass        = "class"
	KeyCode         = "code"
	KeyCommand      = "command"
	KeyConcern      = "concern"
	KeyContainer    = "container"
	KeyGivenUp      = "given_up"
	KeyHello        = "hello"
	KeyHome         = "home"
	KeyKind         = "kind"
	KeyLevel        = "log_level"
	KeyLimits       = "limits"
	KeyMethod       = "method"
	KeyName         = "name"
	KeyOOM          = "oom"
	KeyPause        = "pause_ms"
	KeyRetryable    = "retryable"
	KeyRuntime      = "runtime"
	KeySandboxes    = "sandboxes"
	KeySetting      = "setting"
	KeySignal       = "signal"
	KeyStack        = "stack"
	KeyState        = "state"
	KeyStatus       = "status"
	KeyTested       = "tested"
	KeyBefore       = "before"
	KeyContinuation = "continuation"
	KeyFrom         = "from"
	KeyInstead      = "instead_of"
	KeyLimit        = "limit"
	KeyMessages     = "messages"
	KeyModel        = "model"
	KeyNames        = "names"
	KeyResumed      = "resumed"
	KeyServer       = "server"
	KeySubtype      = "subtype"
	KeyType         = "type"
	KeyWait         = "pause"
	KeyVersion      = "version"
	KeyWhat         = "what"
)

// Secret holds a value that no log, error or format verb shows. Reveal is the one way out.
type Secret struct{ value string }

// NewSecret wraps value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value: for the place that uses it, never for printing.
func (s Secret) Reveal() string { return s.value }

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == "" }

const redacted = "[secret]"

func (s Secret) String() string   { return redacted }
func (s Secret) GoString() string { return redacted }

// LogValue keeps the value out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText keeps the value out of JSON and TOML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
