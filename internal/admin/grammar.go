package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"nanoclaw/internal/control"
)

// line is a command line. The names of flags are kept as they were typed and compared with `-` for `_`.
type line struct {
	words             []string
	flags             map[string]json.RawMessage
	json, stdin, help bool
	home              string
}

// parse reads arguments (spec/runner.md section 8): words are joined to the command; `--key value` and `--key=value` give a
// text, `--key` before another flag or the end gives true; a value that begins with `--` takes the form with `=` (W27).
// Behind `--` all are words. It returns what it read with an error, too.
func parse(args []string) (line, error) {
	l := line{flags: map[string]json.RawMessage{}}
	for len(args) > 0 && args[0] != "--" {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "-h" || arg == "--help":
			l.help = true
		case strings.HasPrefix(arg, "--"):
			name, value, given := strings.Cut(arg[2:], "=")
			taken, err := l.flag(name, value, given, args)
			if err != nil {
				return l, err
			}
			args = args[taken:]
		case strings.HasPrefix(arg, "-"):
			return l, control.Invalid("", fmt.Sprintf("%.40q is no flag: flags begin with --", arg))
		case arg == "":
			return l, control.Invalid("", "a word is empty")
		default:
			l.words = append(l.words, arg)
		}
	}
	if len(args) > 0 {
		l.words = append(l.words, args[1:]...)
	}
	return l, nil
}

// flag takes one flag and says how many of the following arguments it used.
func (l *line) flag(name, value string, given bool, next []string) (taken int, err error) {
	if !usable(name) {
		return 0, control.Invalid("", fmt.Sprintf("--%.40s is not a usable name of a flag", printable(name)))
	}
	switch same(name) {
	case "json", "stdin-json":
		if given {
			return 0, control.Invalid(name, "takes no value")
		}
		l.json = l.json || same(name) == "json"
		l.stdin = l.stdin || same(name) == "stdin-json"
		return 0, nil
	}
	follows := !given && len(next) > 0 && !strings.HasPrefix(next[0], "--")
	if follows {
		value, taken = next[0], 1
	}
	if same(name) == "home" {
		if value == "" {
			return 0, control.Invalid(name, "needs a folder")
		}
		l.home = value
		return taken, nil
	}
	if l.has(name) {
		return 0, control.Invalid(name, "was given twice")
	}
	l.flags[name] = json.RawMessage("true")
	if given || follows {
		b, err := json.Marshal(value)
		if err != nil {
			return 0, control.Invalid(name, "is not a text")
		}
		l.flags[name] = b
	}
	return taken, nil
}

// same is the form in which names of flags are compared.
func same(name string) string { return strings.ReplaceAll(name, "_", "-") }

func (l *line) has(name string) bool {
	for k := range l.flags {
		if same(k) == same(name) {
			return true
		}
	}
	return false
}

// usable reports whether a name may be sent: a letter or digit, then these and - and _.
func usable(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return name != ""
}

// merge adds the flags of --stdin-json: one JSON object, piped in, none of whose keys is there already.
func (l *line) merge(in io.Reader, terminal bool) error {
	const flag = "stdin-json"
	if terminal {
		return control.Invalid(flag, "reads a pipe, and nothing is piped in")
	}
	b, err := io.ReadAll(io.LimitReader(in, control.MaxArgs+1))
	switch {
	case err != nil:
		return control.Invalid(flag, "standard input cannot be read: "+err.Error())
	case len(b) > control.MaxArgs:
		return &control.Error{Code: control.CodeTooLarge, Field: flag, Message: fmt.Sprintf("standard input is larger than %d bytes", control.MaxArgs)}
	case len(strings.TrimSpace(string(b))) == 0:
		return control.Invalid(flag, "standard input is empty")
	}
	v, err := readTree(b)
	if err != nil {
		return control.Invalid(flag, "standard input is not one JSON value: "+err.Error())
	}
	if v.kind != object {
		return control.Invalid(flag, "standard input must be a JSON object")
	}
	for i, key := range v.keys {
		switch {
		case !usable(key):
			return control.Invalid(flag, fmt.Sprintf("the key %.40q cannot be used", key))
		case same(key) == "json" || same(key) == flag || same(key) == "home":
			return control.Invalid(flag, fmt.Sprintf("the key %q is a flag of ncl itself", key))
		case l.has(key):
			return control.Invalid(flag, fmt.Sprintf("the key %q is given twice", key))
		}
		l.flags[key] = v.items[i].raw
	}
	return nil
}

// request is what is sent.
func (l line) request() control.AdminRequest {
	r := control.AdminRequest{Command: strings.Join(l.words, "-"), Args: l.flags}
	if l.help {
		return control.AdminRequest{Command: "help-" + r.Command}
	}
	return r
}
