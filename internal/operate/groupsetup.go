package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// Bounds of an agent's own settings.
const (
	maxIdleMinutes   = 7 * 24 * 60
	minMemoryMB      = 64
	maxMemoryMB      = 1 << 20
	maxScriptTimeout = 300
)

// setupFlags are those of `groups config update` that change an agent's setup.
func setupFlags() []string {
	return []string{"idle-minutes", "memory-mb", "speed", "fallback-model", "script-timeout"}
}

// setup reads the flags of an agent's own settings; nil if none was given.
func setup(g store.AgentGroup, a Args) (*store.Setup, error) {
	s, given := g.Setup, false
	number := func(flag string, least, most int, into func(int)) error {
		text, err := a.Text(flag)
		if err == nil && strings.EqualFold(text, providerDefault) {
			given = true
			into(0)
			return nil
		}
		n, err := a.Number(flag, -1, least, most)
		if err != nil {
			e := control.Invalid(flag, fmt.Sprintf("must be a whole number from %d to %d, or %s", least, most, providerDefault))
			return e
		}
		if n >= 0 {
			given = true
			into(n)
		}
		return nil
	}
	for _, f := range []struct {
		flag        string
		least, most int
		into        func(int)
	}{
		{"idle-minutes", 1, maxIdleMinutes, func(n int) { s.IdleMinutes = n }},
		{"memory-mb", minMemoryMB, maxMemoryMB, func(n int) { s.MemoryMB = int64(n) }},
		{"script-timeout", 1, maxScriptTimeout, func(n int) { s.ScriptTimeoutSeconds = n }},
	} {
		if err := number(f.flag, f.least, f.most, f.into); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		flag string
		into *string
	}{{"speed", &s.Speed}, {"fallback-model", &s.FallbackModel}} {
		v, err := a.Text(f.flag)
		if err != nil {
			return nil, err
		}
		if v == "" {
			continue
		}
		given = true
		if *f.into = strings.TrimSpace(v); strings.EqualFold(*f.into, providerDefault) {
			*f.into = ""
		}
	}
	switch s.Speed = strings.ToLower(s.Speed); s.Speed {
	case "", "standard", "fast":
	default:
		return nil, control.Invalid("speed", fmt.Sprintf("%q is not one of standard, fast, %s", s.Speed, providerDefault))
	}
	if !given {
		return nil, nil
	}
	return &s, nil
}

// setupLines are an agent's own settings in words; what is the host's own is left out.
func setupLines(s store.Setup) (lines []string) {
	add := func(set bool, format string, v ...any) {
		if set {
			lines = append(lines, fmt.Sprintf(format, v...))
		}
	}
	add(s.IdleMinutes > 0, "idle: ended after %d minutes", s.IdleMinutes)
	add(s.MemoryMB > 0, "memory %d MiB", s.MemoryMB)
	for _, m := range s.Mounts {
		lines = append(lines, "sees "+m.Path+" as "+m.Name)
	}
	add(!s.Packages.None(), "packages %s", strings.Join(append(slices.Clone(s.Packages.Apt), s.Packages.NPM...), ", "))
	if s.Skills != nil {
		lines = append(lines, "skills: "+cmp.Or(strings.Join(*s.Skills, ", "), "none"))
	}
	for _, name := range slices.Sorted(maps.Keys(s.MCPServers)) {
		lines = append(lines, "MCP server "+name)
	}
	add(s.Speed != "", "speed %s", s.Speed)
	add(s.FallbackModel != "", "model when the model is overloaded: %s", s.FallbackModel)
	add(s.ScriptTimeoutSeconds > 0, "scripts of tasks: at most %d s", s.ScriptTimeoutSeconds)
	return lines
}

// Restarter ends sandboxes so that the next ones start anew.
type Restarter interface {
	// RestartTelling restarts what runs of an agent and, if text is not empty, tells the next incarnation; one row for each key. It
	// returns how many conversations that are.
	RestartTelling(ctx context.Context, group id.AgentGroup, key, text string) (int, error)
}

// maxNote is the most bytes of a word to a restarted agent.
const maxNote = 4000

// Restart is the command that restarts an agent.
func Restart(st GroupStore, a Runtime, r Restarter) Command {
	s := configShelf{st, a}
	return Command{Name: "groups restart", Short: "End what runs of an agent and start it anew, with a word for it if --message is given",
		Target: "id, name or folder of the agent", Flags: []string{"id", "message"}, Run: func(ctx context.Context, c Caller, a Args) (Result, error) {
			g, err := s.group(ctx, a)
			if err != nil {
				return Result{}, err
			}
			text, err := a.Text("message")
			if err != nil {
				return Result{}, err
			}
			if len(text) > maxNote {
				return Result{}, control.Invalid("message", fmt.Sprintf("has %d bytes, at most %d are allowed", len(text), maxNote))
			}
			key := c.Key
			if key == "" {
				key = "restart:" + time.Now().UTC().Format(time.RFC3339Nano)
			}
			n, err := r.RestartTelling(ctx, g.ID, key, text)
			if err != nil {
				return Result{}, err
			}
			res, err := result(restartRow{string(g.ID), n})
			res.Human = fmt.Sprintf("%d running conversations of %s start anew", n, g.Name)
			if n == 0 {
				res.Human = fmt.Sprintf("nothing of %s runs at the moment; the next message starts it anew", g.Name)
			}
			return res, err
		}}
}

type restartRow struct {
	ID        string `json:"id"`
	Restarted int    `json:"restarted"`
}
