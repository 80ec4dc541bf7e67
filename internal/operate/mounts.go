package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

// MountJudge decides about folders of this machine.
type MountJudge interface {
	// JudgeMount says what an agent that asks for a mount would get; a refusal is a *control.Error. An empty name is the last part
	// of the path.
	JudgeMount(ctx context.Context, m store.Mount) (MountVerdict, error)
}

// MountVerdict is what of a mount is granted.
type MountVerdict struct {
	Path     string   `json:"path"`
	Name     string   `json:"name"`
	Inside   string   `json:"inside"`
	Writable bool     `json:"writable"`
	Hidden   []string `json:"hidden,omitempty"` // below it, and never shown
	Notes    []string `json:"notes,omitempty"`
}

func (v MountVerdict) words() string {
	how := "read-only"
	if v.Writable {
		how = "writable"
	}
	lines := []string{fmt.Sprintf("%s: %s, inside as %s", v.Path, how, v.Inside)}
	if n := len(v.Hidden); n > 0 {
		const most = 8
		shown := strings.Join(v.Hidden[:min(n, most)], ", ")
		if n > most {
			shown += fmt.Sprintf(" and %d more", n-most)
		}
		lines = append(lines, "hidden: "+shown)
	}
	for _, n := range v.Notes {
		lines = append(lines, "note: "+n)
	}
	return strings.Join(lines, "\n")
}

// maxMounts of one agent.
const maxMounts = 20

// Mounts is the commands about folders of this machine that agents see. They are the operator's alone, and cannot allow more than
// the list of allowed mounts does, which no command changes.
func Mounts(st GroupStore, a Runtime, j MountJudge) []Command {
	s := mountShelf{configShelf{st, a}, j}
	return []Command{
		{Name: "mounts check", Short: "Say whether a folder or file could be shown to agents, and what of it would be hidden", Target: "the path",
			Flags: []string{"path", "writable"}, Run: s.check},
		{Name: "mounts list", Short: "List the folders that agents see beside their own", Target: "id, name or folder of the agent", Flags: []string{"id"}, Run: s.list},
		{Name: "mounts add", Short: "Show a folder or file of this machine to an agent", Target: "the path",
			Flags: []string{"path", "id", "name", "writable"}, Run: s.add},
		{Name: "mounts remove", Short: "Show a folder or file to an agent no longer", Target: "its name inside", Flags: []string{"name", "id"}, Run: s.remove},
	}
}

type mountShelf struct {
	configShelf
	judge MountJudge
}

// wanted reads a request from the arguments.
func (s mountShelf) wanted(a Args) (m store.Mount, err error) {
	if m.Path, err = a.Text("path"); err != nil {
		return m, err
	}
	if m.Path == "" {
		m.Path = a.Target
	} else if a.Target != "" {
		return m, control.Invalid("path", "is given twice")
	}
	if m.Path == "" {
		return m, control.Invalid("path", "is missing")
	}
	m.Writable, err = a.Switch("writable")
	return m, err
}

func (s mountShelf) check(ctx context.Context, _ Caller, a Args) (Result, error) {
	m, err := s.wanted(a)
	if err != nil {
		return Result{}, err
	}
	v, err := s.judge.JudgeMount(ctx, m)
	if err != nil {
		return Result{}, err
	}
	res, err := result(v)
	res.Human = v.words()
	return res, err
}

type mountRow struct {
	Agent    string `json:"agent"`
	Name     string `json:"name"`
	Path     string `json:"path"`
	Writable bool   `json:"writable"`
	State    string `json:"state"` // ok, or why it is left out
}

func (s mountShelf) list(ctx context.Context, _ Caller, a Args) (Result, error) {
	all, err := s.store.AgentGroups(ctx)
	if err != nil {
		return Result{}, err
	}
	if id, err := a.Text("id"); err != nil {
		return Result{}, err
	} else if id != "" || a.Target != "" {
		g, err := s.group(ctx, a)
		if err != nil {
			return Result{}, err
		}
		all = []store.AgentGroup{g}
	}
	rows := []mountRow{}
	for _, g := range all {
		for _, m := range g.Setup.Mounts {
			row := mountRow{g.Name, m.Name, m.Path, m.Writable, "ok"}
			if v, err := s.judge.JudgeMount(ctx, m); err != nil {
				row.State = err.Error()
			} else {
				row.Writable = v.Writable
			}
			rows = append(rows, row)
		}
	}
	return result(rows)
}

func (s mountShelf) add(ctx context.Context, _ Caller, a Args) (Result, error) {
	m, err := s.wanted(a)
	if err != nil {
		return Result{}, err
	}
	if m.Name, err = a.Text("name"); err != nil {
		return Result{}, err
	}
	g, err := s.group(ctx, Args{values: a.values})
	if err != nil {
		return Result{}, err
	}
	v, err := s.judge.JudgeMount(ctx, m)
	if err != nil {
		return Result{}, err
	}
	if m.Writable && !v.Writable {
		e := control.Invalid("writable", "the list of allowed mounts allows no writing there")
		e.Hint = strings.Join(v.Notes, "; ")
		return Result{}, e
	}
	m.Path, m.Name = v.Path, v.Name
	next := g.Setup
	next.Mounts = slices.DeleteFunc(slices.Clone(g.Setup.Mounts), func(o store.Mount) bool { return o.Name == m.Name })
	next.Mounts = append(next.Mounts, m)
	if len(next.Mounts) > maxMounts {
		return Result{}, control.Invalid("path", fmt.Sprintf("an agent sees at most %d folders", maxMounts))
	}
	return s.put(ctx, g, next, v.words())
}

func (s mountShelf) remove(ctx context.Context, _ Caller, a Args) (Result, error) {
	name, err := a.Text("name")
	if err != nil {
		return Result{}, err
	}
	if name == "" {
		name = a.Target
	}
	g, err := s.group(ctx, Args{values: a.values})
	if err != nil {
		return Result{}, err
	}
	next := g.Setup
	next.Mounts = slices.DeleteFunc(slices.Clone(g.Setup.Mounts), func(o store.Mount) bool { return o.Name == name })
	if len(next.Mounts) == len(g.Setup.Mounts) {
		return Result{}, &control.Error{Code: control.CodeNotFound, Field: "name", Message: fmt.Sprintf("%s sees no folder of the name %q", g.Name, name)}
	}
	return s.put(ctx, g, next, name+" is taken away")
}

// put stores a changed setup and says when it applies.
func (s configShelf) put(ctx context.Context, g store.AgentGroup, next store.Setup, words string) (Result, error) {
	after, changed, err := s.store.UpdateGroup(ctx, s.agents.Operator(), g.ID, store.GroupChange{Setup: &next})
	if err != nil {
		return Result{}, err
	}
	row := rowOf(after)
	row.Changed = changed
	row.Applies = s.applies(changed, s.restart(g.ID, changed))
	res, err := result(row)
	res.Human = words + "\n" + row.Applies
	return res, err
}

// applies says when a change takes effect.
func (configShelf) applies(changed bool, running int) string {
	switch {
	case !changed:
		return "nothing has changed"
	case running == 0:
		return "it applies to the next message; nothing of this agent runs at the moment"
	}
	return fmt.Sprintf("it applies to the next start: %d running conversations go on with what they do and start anew after that", running)
}
