package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
)

// Tracer follows messages.
type Tracer interface {
	Trace(ctx context.Context, q control.TraceQuery) (control.Trace, error)
}

// Trace is the command that follows one message; times in words are those of zone.
func Trace(t Tracer, zone *time.Location) Command {
	return Command{
		Name: "trace", Short: "Follow one message from its receipt to the platform's acknowledgement, or to where it stopped",
		Target: "an id of a message (ours or the platform's) or of a delivery", Flags: []string{"last", "message", "session", "text"},
		Run: func(ctx context.Context, _ Caller, a Args) (Result, error) {
			q, err := traceQuery(a)
			if err != nil {
				return Result{}, err
			}
			found, err := t.Trace(ctx, q)
			if err != nil {
				return Result{}, err
			}
			res, err := result(found)
			res.Human = traceText(found, zone)
			return res, err
		},
	}
}

func traceQuery(a Args) (control.TraceQuery, error) {
	q := control.TraceQuery{ID: a.Target}
	named, err := a.Text("message")
	if err != nil {
		return q, err
	}
	if q.Session, err = a.Text("session"); err != nil {
		return q, err
	}
	if q.Last, err = a.given("last"); err != nil {
		return q, err
	}
	if q.Text, err = a.given("text"); err != nil {
		return q, err
	}
	if named != "" && q.ID != "" {
		return q, control.Invalid("message", "is named twice")
	}
	if q.ID += named; q.ID == "" && !q.Last || q.ID != "" && q.Last {
		e := control.Invalid("", "trace needs the id of a message or --last")
		e.Hint = "ncl trace --last, ncl trace ID, or ncl trace --message=ID for one with odd characters"
		return q, e
	}
	return q, nil
}

// given is a flag without a value; absent is false.
func (a Args) given(name string) (bool, error) {
	raw, ok := a.values[name]
	if !ok {
		return false, nil
	}
	var b bool
	if json.Unmarshal([]byte(strings.Trim(string(raw), `"`)), &b) != nil {
		return false, control.Invalid(name, "takes no value")
	}
	return b, nil
}

// traceText is a trace as people read it: a line for each step and the verdict.
func traceText(t control.Trace, zone *time.Location) string {
	var b strings.Builder
	for i, w := range t.Ways {
		if i > 0 {
			b.WriteString("\n")
		}
		day := ""
		for _, s := range w.Steps {
			clock, after := "", ""
			if !s.At.IsZero() {
				at := s.At.In(zone)
				if d := at.Format("2006-01-02"); d != day {
					day = d
					fmt.Fprintf(&b, "%s\n", at.Format("2006-01-02 MST"))
				}
				clock, after = at.Format("15:04:05.000"), fmt.Sprintf("+%d ms", s.AfterMS)
			}
			fmt.Fprintf(&b, "%-12s %10s  %s\n", clock, after, printable(s.What))
			for line := range strings.Lines(s.Text) {
				fmt.Fprintf(&b, "%-12s %10s    | %s\n", "", "", printable(strings.TrimRight(line, "\n")))
			}
		}
		fmt.Fprintf(&b, "=> %s\n", printable(w.Verdict))
	}
	return strings.TrimRight(b.String(), "\n")
}

// printable keeps what others wrote from steering a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

type levelRow struct {
	Level string `json:"level"`
}

// LogLevel is the command that shows and changes what the host's log holds, until the host ends.
func LogLevel(log *slog.Logger) Command {
	return Command{
		Name: "log level", Short: "Show the level of the host's log, or change it until the host ends", Target: "debug, info, warn or error",
		Run: func(_ context.Context, _ Caller, a Args) (Result, error) {
			if a.Target != "" {
				level, err := obs.ParseLevel(a.Target)
				if err != nil {
					return Result{}, control.Invalid("", err.Error())
				}
				if !obs.SetLevel(log, level) {
					return Result{}, &control.Error{Code: control.CodeUnavailable, Message: "this host's log has no level"}
				}
				log.Info("log level set", obs.KeyLevel, a.Target)
			}
			now := obs.LevelName(obs.Level(log))
			res, err := result(levelRow{now})
			res.Human = now
			return res, err
		},
	}
}
