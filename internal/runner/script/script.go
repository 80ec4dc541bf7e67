// Package script runs the gate of a task: a short program that says whether the agent is to be woken, and with which data
// (spec/runner.md section 3.7).
//
// A script says so with the last line of its output that is not blank: a JSON object with the boolean wakeAgent and, if it
// likes, data of any type. What it prints before that does not matter, however much it is (W30): only the last line is
// kept, and only a last line that is itself over the limit is an error.
package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Defaults of Options.
const (
	DefaultTimeout   = 30 * time.Second
	DefaultMaxOutput = 1 << 20
)

// Options say how scripts are run. The zero value of a field is its default.
type Options struct {
	Dir       string        // where scripts start: the agent's folder
	Env       []string      // NAME=value, added to PATH, HOME, TZ, LANG and TMPDIR of this process; a script gets nothing else
	Timeout   time.Duration // DefaultTimeout
	MaxOutput int           // of the last line, in bytes; DefaultMaxOutput
	Temp      string        // folder for the script's file, and its TMPDIR; the system's
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	return o
}

// Outcome is what came of a script. With Err neither Wake nor Data counts: the row is skipped as script-skip:error, unless Err
// is that of the context; then the script was not heard to its end and the row is to be tried again.
type Outcome struct {
	Wake bool
	Data json.RawMessage // of a script that wakes, compact JSON; null if it gave none
	Err  error
}

// Why a script has said nothing that counts; match with errors.Is. The error's text is fit for a log and for the agent.
var (
	ErrStart    = errors.New("script could not be started")
	ErrTimeout  = errors.New("script took too long and was stopped")
	ErrExit     = errors.New("script failed") // an *ExitError
	ErrNoOutput = errors.New("script printed nothing")
	ErrTooMuch  = errors.New("the script's last line is too long")
	ErrNotJSON  = errors.New("the script's last line is not a JSON object")
	ErrNoWake   = errors.New("the script's last line has no wakeAgent that is true or false")
)

// ExitError is a script that ended with a code other than 0, or by a signal (Code is -1). It matches ErrExit.
type ExitError struct {
	Code   int
	Signal string // of a script that was killed
	Stderr string // the last 500 bytes, as valid UTF-8
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("%v with exit code %d", ErrExit, e.Code)
	if e.Signal != "" {
		s = fmt.Sprintf("%v: ended by %s", ErrExit, e.Signal)
	}
	if e.Stderr != "" {
		s += ": " + e.Stderr
	}
	return s
}

// Is makes errors.Is(err, ErrExit) true.
func (e *ExitError) Is(target error) bool { return target == ErrExit }

// Run runs a script and blocks until it and everything that it left running in its session have ended: by themselves, after the
// time-out, or when ctx ends, all but at once by SIGKILL. rowID names the script's file.
func Run(ctx context.Context, o Options, rowID, script string) Outcome {
	o = o.withDefaults()
	line, err := run(ctx, o, rowID, script)
	if err != nil {
		return Outcome{Err: err}
	}
	return verdict(line)
}

// verdict reads the last line of a script's output.
func verdict(line []byte) Outcome {
	var said map[string]json.RawMessage
	if !json.Valid(line) || json.Unmarshal(line, &said) != nil || said == nil {
		return Outcome{Err: fmt.Errorf("%w: %s", ErrNotJSON, excerpt(line))}
	}
	switch string(said["wakeAgent"]) {
	case "true":
	case "false":
		return Outcome{}
	default:
		return Outcome{Err: fmt.Errorf("%w: %s", ErrNoWake, excerpt(line))}
	}
	data := said["data"]
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	var b bytes.Buffer
	if err := json.Compact(&b, bytes.ToValidUTF8(data, []byte("\ufffd"))); err != nil {
		return Outcome{Err: fmt.Errorf("%w: %w", ErrNotJSON, err)}
	}
	return Outcome{Wake: true, Data: b.Bytes()}
}

const maxExcerpt = 200

// excerpt is the beginning of a line, for an error.
func excerpt(line []byte) string {
	if len(line) > maxExcerpt {
		return string(bytes.ToValidUTF8(line[:maxExcerpt], nil)) + "…"
	}
	return string(bytes.ToValidUTF8(line, []byte("\ufffd")))
}
