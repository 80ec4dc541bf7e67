package mock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Limits of a script.
const (
	MaxScript = 16 << 20  // bytes
	MaxSleep  = time.Hour // of one sleep
)

// Script is a parsed mock.jsonl.
type Script struct{ lines []line }

type line struct {
	number int // 1 is the first line with something in it
	match  *regexp.Regexp
	events []event
}

type event struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Name      string          `json:"name"`
	Args      json.RawMessage `json:"args"`
	MS        int64           `json:"ms"`
	Message   string          `json:"message"`
	Retryable bool            `json:"retryable"`
	Code      int             `json:"code"`
	IsError   bool            `json:"isError"`
}

// fields that each type of event knows, apart from type.
var fields = map[string][]string{
	"text": {"text"}, "tool": {"name", "args"}, "sleep": {"ms"}, "activity": nil, "error": {"message", "retryable"},
	"exit": {"code"}, "take": nil, "result": {"text", "isError", "message", "retryable"},
}

// ScriptError says what is wrong with a script and where.
type ScriptError struct {
	Line   int    // of the file, from 1
	Field  string // such as events[2].ms; "" if the line is no JSON object
	Reason string
}

func (e *ScriptError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("line %d: field %s: %s", e.Line, e.Field, e.Reason)
}

// ReadScript reads a file; no file is an empty script.
func ReadScript(path string) (Script, error) {
	if path == "" {
		return Script{}, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Script{}, nil
	}
	if err != nil {
		return Script{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxScript {
		return Script{}, fmt.Errorf("%s must be a regular file of at most %d bytes", path, MaxScript)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Script{}, err
	}
	s, err := ParseScript(b)
	if err != nil {
		return Script{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ParseScript parses the text of a script; errors are *ScriptError.
func ParseScript(text []byte) (Script, error) {
	var s Script
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 {
			continue
		}
		l, field, err := parseLine(raw)
		if err != nil {
			return Script{}, &ScriptError{Line: number, Field: field, Reason: err.Error()}
		}
		l.number = len(s.lines) + 1
		s.lines = append(s.lines, l)
	}
	return s, nil
}

func parseLine(raw []byte) (l line, field string, err error) {
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(raw, &outer); err != nil {
		return l, "", fmt.Errorf("no JSON object: %w", err)
	}
	for key := range outer {
		if key != "match" && key != "events" {
			return l, key, errors.New("unknown; a line has match and events")
		}
	}
	if m, ok := outer["match"]; ok {
		var pattern string
		if err := json.Unmarshal(m, &pattern); err != nil {
			return l, "match", errors.New("must be a string")
		}
		if l.match, err = regexp.Compile(pattern); err != nil {
			return l, "match", err
		}
	}
	var events []json.RawMessage
	if err := json.Unmarshal(outer["events"], &events); err != nil || outer["events"] == nil {
		return l, "events", errors.New("must be a list of events")
	}
	for i, e := range events {
		ev, field, err := parseEvent(e)
		if err != nil {
			at := fmt.Sprintf("events[%d]", i)
			if field != "" {
				at += "." + field
			}
			return l, at, err
		}
		l.events = append(l.events, ev)
	}
	return l, "", nil
}

func parseEvent(raw json.RawMessage) (e event, field string, err error) {
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil || keys == nil {
		return e, "", errors.New("must be an object")
	}
	if json.Unmarshal(keys["type"], &e.Type) != nil {
		return e, "type", errors.New("must be a string")
	}
	known, ok := fields[e.Type]
	if !ok {
		return e, "type", fmt.Errorf("unknown type %q", e.Type)
	}
	for key := range keys {
		if key != "type" && !slices.Contains(known, key) {
			return e, key, fmt.Errorf("not known for an event of type %s", e.Type)
		}
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return e, kind.Field, fmt.Errorf("must be of type %s, not %s", kind.Type, kind.Value)
		}
		return e, "", err
	}
	switch e.Type {
	case "text":
		if keys["text"] == nil {
			return e, "text", errors.New("is missing")
		}
	case "tool":
		if e.Name == "" {
			return e, "name", errors.New("is missing")
		}
		if args := strings.TrimSpace(string(e.Args)); args == "" || args == "null" {
			e.Args = json.RawMessage("{}")
		} else if args[0] != '{' {
			return e, "args", errors.New("must be an object")
		}
	case "sleep":
		if e.MS < 0 || e.MS > MaxSleep.Milliseconds() {
			return e, "ms", fmt.Errorf("must be 0 to %d", MaxSleep.Milliseconds())
		}
	case "exit":
		if e.Code < 0 || e.Code > 255 {
			return e, "code", errors.New("must be 0 to 255")
		}
	}
	return e, "", nil
}

func (s Script) takes() bool {
	return slices.ContainsFunc(s.lines, func(l line) bool {
		return slices.ContainsFunc(l.events, func(e event) bool { return e.Type == "take" })
	})
}

// pick is the first unused line that accepts the prompt.
func (s Script) pick(used lineSet, prompt string) (line, bool) {
	for _, l := range s.lines {
		if !used.has(l.number) && (l.match == nil || l.match.MatchString(prompt)) {
			return l, true
		}
	}
	return line{}, false
}
