// Package obs is how the programs speak to their operators: structured logs with constant keys, and secrets that cannot
// be printed. Message text never appears at info or above.
package obs

import (
	"io"
	"log/slog"
	"time"
)

// Keys of log attributes, the same everywhere.
const (
	KeyComponent   = "component"
	KeySession     = "session"
	KeyGroup       = "agent_group"
	KeyIncarnation = "incarnation"
	KeyExchange    = "exchange"
	KeyMessage     = "message"
	KeyLedger      = "ledger"
	KeyChannel     = "channel"
	KeyDestination = "destination"
	KeyProvider    = "provider"
	KeyTool        = "tool"
	KeyError       = "error"
	KeyReason      = "reason"
	KeyCount       = "count"
	KeyElapsed     = "elapsed_ms"
	KeyPath        = "path"
	KeyPID         = "pid"
)

// Logger writes to w as text or JSON, times in UTC with milliseconds.
func Logger(w io.Writer, level slog.Leveler, json bool) *slog.Logger {
	opt := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
		}
		return a
	}}
	if json {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// Discard is a logger that writes nothing.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Error is the attribute for err.
func Error(err error) slog.Attr { return slog.Any(KeyError, err) }

// Elapsed is the attribute for the time since start, in milliseconds.
func Elapsed(start time.Time) slog.Attr {
	return slog.Float64(KeyElapsed, float64(time.Since(start).Microseconds())/1000)
}

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
