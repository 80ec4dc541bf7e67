// Package operate holds the admin commands of a host: what `ncl` can do, for the operator on this machine and for agents
// inside their sandboxes. Commands are values in one list (commands.go); who asks is known from where the request came,
// never from the request.
package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nanoclaw/internal/control"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// Caller is who gives a command. The zero Caller is the operator.
type Caller struct {
	Session store.Session // of the agent that asks; its ID is empty for the operator
	// Key is the id under which an agent's request is kept. A request may be carried out again under the same key after a crash
	// (P3): a command that changes something must be idempotent under it.
	Key string
}

// Agent reports whether the command came from inside a sandbox.
func (c Caller) Agent() bool { return c.Session.ID != "" }

// Scope says who may give a command.
type Scope int

// Scopes. A command that is open to agents shows an agent what belongs to its own agent group, nothing else.
const (
	Operator Scope = iota
	Agents
)

// Result of a command. Human, if set, is Data in words.
type Result struct {
	Data  json.RawMessage
	Human string
}

// Command is one thing that ncl can do.
type Command struct {
	Name   string // words, as people type them: "sessions list"
	Short  string // what it does, in one line
	Scope  Scope
	Target string   // what the word behind the name is; empty: there is none
	Flags  []string // names it takes; every other one is refused
	Run    func(ctx context.Context, c Caller, a Args) (Result, error)
}

// key is the name as it is sent.
func (c Command) key() string { return strings.ReplaceAll(c.Name, " ", "-") }

// keys are the name and its singular: `group list` is `groups list`.
func (c Command) keys() []string {
	keys := []string{c.key()}
	noun, verb, ok := strings.Cut(c.Name, " ")
	if one := strings.TrimSuffix(noun, "s"); ok && one != noun {
		keys = append(keys, strings.ReplaceAll(one+" "+verb, " ", "-"))
	}
	return keys
}

// Desk carries out commands. It holds no state and may be used at the same time.
type Desk struct{ commands []Command }

// New makes a desk of a list of commands; `help` is added.
func New(commands ...Command) *Desk {
	d := &Desk{commands: slices.Clone(commands)}
	d.commands = append(d.commands, Command{
		Name: "help", Short: "List the commands", Scope: Agents, Target: "the begin of a command", Run: d.help,
	})
	slices.SortFunc(d.commands, func(a, b Command) int { return strings.Compare(a.Name, b.Name) })
	return d
}

// Do carries a request out and answers it, whatever it holds. requestID goes into the answer.
func (d *Desk) Do(ctx context.Context, c Caller, requestID string, r control.AdminRequest) control.Frame {
	res, err := d.run(ctx, c, r)
	if err != nil {
		return control.Fail(requestID, err)
	}
	return control.Frame{ID: requestID, OK: true, Data: res.Data, Human: res.Human}
}

func (d *Desk) run(ctx context.Context, c Caller, r control.AdminRequest) (Result, error) {
	if err := r.Check(); err != nil {
		return Result{}, err
	}
	cmd, target, ok := d.find(r.Command)
	if !ok {
		e := control.Invalid("", fmt.Sprintf("unknown command %q", r.Command))
		e.Hint = "known: " + strings.Join(d.names(c), ", ")
		return Result{}, e
	}
	if c.Agent() && cmd.Scope != Agents {
		return Result{}, &control.Error{Code: control.CodeForbidden, Message: fmt.Sprintf("an agent may not use %q", cmd.Name),
			Hint: "open to agents: " + strings.Join(d.names(c), ", ")}
	}
	a, err := arguments(cmd, target, r.Args)
	if err != nil {
		return Result{}, err
	}
	return cmd.Run(ctx, c, a)
}

// find takes the longest name that the request begins with; what is left is the target.
func (d *Desk) find(command string) (cmd Command, target string, ok bool) {
	longest := 0
	for _, v := range d.commands {
		for _, key := range v.keys() {
			rest, has := strings.CutPrefix(command, key)
			if !has || len(key) < longest || rest != "" && rest[0] != '-' {
				continue
			}
			longest, cmd, target, ok = len(key), v, strings.TrimPrefix(rest, "-"), true
		}
	}
	return cmd, target, ok
}

// names of the commands that the caller may give.
func (d *Desk) names(c Caller) []string {
	var names []string
	for _, v := range d.commands {
		if !c.Agent() || v.Scope == Agents {
			names = append(names, v.Name)
		}
	}
	return names
}

type helpRow struct {
	Command string `json:"command"`
	Flags   string `json:"flags"`
	What    string `json:"what"`
}

func (d *Desk) help(_ context.Context, c Caller, a Args) (Result, error) {
	rows := []helpRow{}
	for _, v := range d.commands {
		if c.Agent() && v.Scope != Agents || !strings.HasPrefix(v.key(), a.Target) {
			continue
		}
		flags := make([]string, 0, len(v.Flags))
		for _, f := range v.Flags {
			flags = append(flags, "--"+f)
		}
		rows = append(rows, helpRow{v.Name, strings.Join(flags, " "), v.Short})
	}
	if len(rows) == 0 {
		e := control.Invalid("", fmt.Sprintf("no command begins with %q", a.Target))
		e.Hint = "known: " + strings.Join(d.names(c), ", ")
		return Result{}, e
	}
	return result(rows)
}

// Args of one command, checked against what it declares.
type Args struct {
	Target string
	values map[string]json.RawMessage // by name with dashes
}

func arguments(cmd Command, target string, raw map[string]json.RawMessage) (Args, error) {
	a := Args{Target: target, values: map[string]json.RawMessage{}}
	if target != "" && cmd.Target == "" {
		return a, control.Invalid("", fmt.Sprintf("%q takes nothing behind it, got %q", cmd.Name, target))
	}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		name := strings.ReplaceAll(key, "_", "-")
		_, twice := a.values[name]
		switch {
		case twice:
			return a, control.Invalid(name, "was given twice")
		case !slices.Contains(cmd.Flags, name):
			e := control.Invalid("", fmt.Sprintf("%q does not take --%s", cmd.Name, key))
			if len(cmd.Flags) > 0 {
				e.Hint = "it takes: --" + strings.Join(cmd.Flags, ", --")
			}
			return a, e
		}
		a.values[name] = raw[key]
	}
	return a, nil
}

// Text of a flag; absent is "".
func (a Args) Text(name string) (string, error) {
	raw, ok := a.values[name]
	if !ok {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil || s == "" {
		return "", control.Invalid(name, "must be a text")
	}
	return s, nil
}

// Number of a flag from least to most, given as a number or as its digits; absent is missing.
func (a Args) Number(name string, missing, least, most int) (int, error) {
	raw, ok := a.values[name]
	if !ok {
		return missing, nil
	}
	var n int
	if s := strings.Trim(string(raw), `"`); json.Unmarshal([]byte(s), &n) != nil || n < least || n > most {
		return 0, control.Invalid(name, fmt.Sprintf("must be a whole number from %d to %d", least, most))
	}
	return n, nil
}

// Switch is a flag that is given alone, or as true or false; absent is false.
func (a Args) Switch(name string) (bool, error) {
	switch string(a.values[name]) {
	case "", "false", `"false"`:
		return false, nil
	case "true", `"true"`:
		return true, nil
	}
	return false, control.Invalid(name, "must be true or false")
}

// result encodes the data of a command.
func result[T any](v T) (Result, error) {
	b, err := mailbox.EncodeContent(v)
	return Result{Data: b}, err
}
