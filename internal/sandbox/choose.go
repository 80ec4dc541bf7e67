package sandbox

import (
	"context"
	"fmt"
	"strings"
)

// Candidate is a runtime that may be chosen. Probe says in one clause why the runtime can be used here ("a daemon answers
// and the image exists"), or returns an error that says what is missing; it starts nothing and builds nothing.
type Candidate interface {
	Name() string
	Probe(ctx context.Context) (reason string, err error)
}

// Names of the runtimes, as the setting spells them.
const (
	Auto       = "auto"
	Docker     = "docker"
	Bubblewrap = "bubblewrap"
	Process    = "process"
)

// Choose applies the rule of design.md section 4: `auto` (or "") takes docker if it can be used, else bubblewrap, and
// never process; any other name is taken if it can be used. It returns the candidate's name and one line that says why.
// The error is a *Failure: spec-invalid for a name nobody has, runtime-unavailable when the choice cannot be used.
func Choose(ctx context.Context, want string, candidates ...Candidate) (name, reason string, err error) {
	byName := map[string]Candidate{}
	for _, c := range candidates {
		byName[c.Name()] = c
	}
	if want != "" && want != Auto {
		c, ok := byName[want]
		if !ok {
			return "", "", &Failure{Class: SpecInvalid, Op: "choose sandbox", Hint: "use auto, docker, bubblewrap or process",
				Err: fmt.Errorf("no runtime is called %q", want)}
		}
		why, err := c.Probe(ctx)
		if err != nil {
			return "", "", &Failure{Class: RuntimeUnavailable, Op: "use sandbox " + want, Err: err}
		}
		return want, want + ": as set; " + why, nil
	}
	var missing []string
	for _, n := range []string{Docker, Bubblewrap} {
		c, ok := byName[n]
		if !ok {
			continue
		}
		why, err := c.Probe(ctx)
		if err == nil {
			line := n + ": " + why
			if len(missing) > 0 {
				line += "; not " + strings.Join(missing, ", not ")
			}
			return n, line, nil
		}
		missing = append(missing, n+" ("+err.Error()+")")
	}
	return "", "", &Failure{Class: RuntimeUnavailable, Op: "choose sandbox",
		Hint: "install bubblewrap (apt-get install bubblewrap), or choose --sandbox process, which isolates nothing",
		Err:  fmt.Errorf("no runtime can be used: %s", strings.Join(missing, ", "))}
}
