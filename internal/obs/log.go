package obs

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Logger writes to w as text or JSON, times in UTC with milliseconds. level is where it begins; nil is info. SetLevel changes
// it later, for everything derived from the logger, too, and Hide makes it blind to a value.
func Logger(w io.Writer, level slog.Leveler, json bool) *slog.Logger {
	s := &state{}
	if level != nil {
		s.level.Set(level.Level())
	}
	opt := &slog.HandlerOptions{Level: &s.level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
			return a
		}
		return s.redact(a)
	}}
	if json {
		return slog.New(&handler{slog.NewJSONHandler(w, opt), s})
	}
	return slog.New(&handler{slog.NewTextHandler(w, opt), s})
}

// handler carries what loggers that were derived from each other share.
type handler struct {
	slog.Handler
	state *state
}

func (h *handler) WithAttrs(a []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(a), h.state}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.state}
}

type state struct {
	level   slog.LevelVar
	mu      sync.Mutex
	values  []string
	replace atomic.Pointer[strings.Replacer]
}

// shortest value that is looked for: the replacement of a shorter one would tell it, and shred other words.
const shortest = 8

// Hide makes the logger, and all that was or will be derived from it, replace a secret's value wherever it stands: in messages,
// texts and errors. It is for values that come back in the words of others; our own code logs the Secret itself.
func Hide(log *slog.Logger, s Secret) {
	h, ok := log.Handler().(*handler)
	if !ok || len(s.Reveal()) < shortest {
		return
	}
	h.state.mu.Lock()
	defer h.state.mu.Unlock()
	if slices.Contains(h.state.values, s.Reveal()) {
		return
	}
	h.state.values = append(h.state.values, s.Reveal())
	pairs := make([]string, 0, 2*len(h.state.values))
	for _, v := range h.state.values {
		pairs = append(pairs, v, redacted)
	}
	h.state.replace.Store(strings.NewReplacer(pairs...))
}

// redact replaces known secret values in an attribute of whatever kind.
func (s *state) redact(a slog.Attr) slog.Attr {
	r := s.replace.Load()
	if r == nil {
		return a
	}
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(r.Replace(a.Value.String()))
	case slog.KindAny:
		text := fmt.Sprintf("%+v", a.Value.Any())
		if clean := r.Replace(text); clean != text {
			a.Value = slog.StringValue(clean)
		}
	}
	return a
}

// SetLevel changes what the logger, and all that was derived from it, writes. It reports whether the logger takes it.
func SetLevel(log *slog.Logger, level slog.Level) bool {
	h, ok := log.Handler().(*handler)
	if ok {
		h.state.level.Set(level)
	}
	return ok
}

// Level of a logger; info for one that Logger did not make.
func Level(log *slog.Logger) slog.Level {
	if h, ok := log.Handler().(*handler); ok {
		return h.state.level.Level()
	}
	return slog.LevelInfo
}

// ParseLevel reads debug, info, warn or error.
func ParseLevel(word string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if word == LevelName(l) {
			return l, nil
		}
	}
	return 0, fmt.Errorf("log level %q must be debug, info, warn or error", word)
}

// LevelName is the word for a level.
func LevelName(l slog.Level) string { return strings.ToLower(l.String()) }

// Discard is a logger that writes nothing.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Error is the attribute for err.
func Error(err error) slog.Attr { return slog.Any(KeyError, err) }

// Elapsed is the attribute for the time since start, in milliseconds.
func Elapsed(start time.Time) slog.Attr {
	return slog.Float64(KeyElapsed, float64(time.Since(start).Microseconds())/1000)
}
