package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// GroupStore is what changes the configuration of agents.
type GroupStore interface {
	AgentGroups(ctx context.Context) ([]store.AgentGroup, error)
	UpdateGroup(ctx context.Context, actor string, group id.AgentGroup, c store.GroupChange) (after store.AgentGroup, changed bool, err error)
}

// Runtime is what the host knows of providers and of what runs.
type Runtime interface {
	// Provider says in plain words what stands in the way of a provider, and whether a model must be named. An unknown name is an
	// error that lists the known ones.
	Provider(ctx context.Context, name, model string) (missing []string, needsModel bool, err error)
	// Restart has the running sandboxes of an agent end when they have done what they do, and returns how many there are.
	Restart(group id.AgentGroup) int
	// Operator is the user who runs the host.
	Operator() string
}

// providerDefault as a value of --model, --effort and --fallback means: none of ours.
const providerDefault = "default"

// maxFallbacks of one agent.
const maxFallbacks = 4

// GroupConfig is the commands about the configuration of agents.
func GroupConfig(st GroupStore, a Runtime) []Command {
	s := configShelf{st, a}
	return []Command{
		{Name: "groups config get", Short: "Show how an agent is configured", Target: "id, name or folder of the agent", Flags: []string{"id"}, Run: s.get},
		{Name: "groups config update", Short: "Choose provider, model, effort and fallbacks of an agent", Target: "id, name or folder of the agent",
			Flags: append([]string{"id", "provider", "model", "effort", "fallback"}, setupFlags()...), Run: s.update},
	}
}

type configShelf struct {
	store  GroupStore
	agents Runtime
}

// configRow is the configuration of an agent as it counts at the next start.
type configRow struct {
	ID        string           `json:"id"`
	Name      string           `json:"name"`
	Folder    string           `json:"folder"`
	Provider  string           `json:"provider"`
	Model     string           `json:"model"`
	Effort    string           `json:"effort"`
	Fallbacks []store.Fallback `json:"fallbacks"`
	Setup     store.Setup      `json:"setup,omitzero"`
	Changed   bool             `json:"changed,omitempty"`
	Applies   string           `json:"applies,omitempty"` // when a change takes effect
	Missing   []string         `json:"missing,omitempty"` // what stands in the way
}

func rowOf(g store.AgentGroup) configRow {
	return configRow{
		ID: string(g.ID), Name: g.Name, Folder: g.Folder, Provider: g.Provider, Model: g.Model, Effort: g.Effort,
		Fallbacks: append([]store.Fallback{}, g.Fallbacks...), Setup: g.Setup,
	}
}

func (r configRow) words() string {
	orDefault := func(s string) string {
		if s == "" {
			return "the provider's own"
		}
		return s
	}
	lines := []string{fmt.Sprintf("agent %s (%s)\nprovider %s\nmodel %s\neffort %s", r.Name, r.ID, r.Provider, orDefault(r.Model), orDefault(r.Effort))}
	for _, f := range r.Fallbacks {
		lines = append(lines, "fallback "+f.Provider+", model "+orDefault(f.Model))
	}
	lines = append(lines, setupLines(r.Setup)...)
	for _, m := range r.Missing {
		lines = append(lines, "missing: "+m)
	}
	if r.Applies != "" {
		lines = append(lines, r.Applies)
	}
	return strings.Join(lines, "\n")
}

func (s configShelf) get(ctx context.Context, _ Caller, a Args) (Result, error) {
	g, err := s.group(ctx, a)
	if err != nil {
		return Result{}, err
	}
	row := rowOf(g)
	row.Missing = s.missing(ctx, g)
	res, err := result(row)
	res.Human = row.words()
	return res, err
}

// group is the one that --id or the word behind the command names; without either, the only one there is.
func (s configShelf) group(ctx context.Context, a Args) (store.AgentGroup, error) {
	wanted, err := a.Text("id")
	if err != nil {
		return store.AgentGroup{}, err
	}
	if wanted == "" {
		wanted = a.Target
	} else if a.Target != "" {
		return store.AgentGroup{}, control.Invalid("id", "the agent is named twice")
	}
	all, err := s.store.AgentGroups(ctx)
	if err != nil {
		return store.AgentGroup{}, err
	}
	var names []string
	var found []store.AgentGroup
	for _, g := range all {
		if string(g.ID) == wanted || g.Folder == wanted || strings.EqualFold(g.Name, wanted) || wanted == "" {
			found = append(found, g)
		}
		names = append(names, fmt.Sprintf("%s (%s)", g.Name, g.ID))
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		e := control.Invalid("id", "more than one agent could be meant")
		e.Hint = strings.Join(names, ", ")
		return store.AgentGroup{}, e
	}
	return store.AgentGroup{}, &control.Error{Code: control.CodeNotFound, Field: "id", Message: fmt.Sprintf("there is no agent %q", wanted), Hint: "there are: " + strings.Join(names, ", ")}
}

func (s configShelf) update(ctx context.Context, _ Caller, a Args) (Result, error) {
	g, err := s.group(ctx, a)
	if err != nil {
		return Result{}, err
	}
	change, err := s.change(ctx, g, a)
	if err != nil {
		return Result{}, err
	}
	after, changed, err := s.store.UpdateGroup(ctx, s.agents.Operator(), g.ID, change)
	if err != nil {
		return Result{}, err
	}
	row := rowOf(after)
	row.Changed = changed
	row.Missing = s.missing(ctx, after)
	row.Applies = s.applies(changed, s.restart(g.ID, changed))
	res, err := result(row)
	res.Human = row.words()
	return res, err
}

// missing is what stands in the way of the provider of an agent, and of each that stands in for it.
func (s configShelf) missing(ctx context.Context, g store.AgentGroup) []string {
	var all []string
	for i := range len(g.Fallbacks) + 1 {
		name, model, of := g.Provider, g.Model, ""
		if i > 0 {
			name, model = g.Fallbacks[i-1].Provider, g.Fallbacks[i-1].Model
			of = "for the fallback " + name + ": "
		}
		missing, _, err := s.agents.Provider(ctx, name, model)
		if err != nil {
			missing = []string{err.Error()}
		}
		for _, m := range missing {
			all = append(all, of+m)
		}
	}
	return all
}

func (s configShelf) restart(group id.AgentGroup, changed bool) int {
	if !changed {
		return 0
	}
	return s.agents.Restart(group)
}

// change reads the flags. A model belongs to its provider: with another provider it is given anew or is that one's own.
func (s configShelf) change(ctx context.Context, g store.AgentGroup, a Args) (store.GroupChange, error) {
	var c store.GroupChange
	var err error
	text := func(flag string) *string {
		v, textErr := a.Text(flag)
		if textErr != nil && err == nil {
			err = textErr
		}
		if v == "" {
			return nil
		}
		if strings.EqualFold(v, providerDefault) {
			v = ""
		}
		return &v
	}
	provider, model, effort, fallback := text("provider"), text("model"), text("effort"), text("fallback")
	if err != nil {
		return c, err
	}
	own, err := setup(g, a)
	if err != nil {
		return c, err
	}
	if provider == nil && model == nil && effort == nil && fallback == nil && own == nil {
		return c, control.Invalid("", "nothing to change: give --provider, --model, --effort, --fallback or one of --"+strings.Join(setupFlags(), ", --"))
	}
	c = store.GroupChange{Model: model, Effort: effort, Setup: own}
	name := g.Provider
	if provider != nil {
		name = strings.ToLower(strings.TrimSpace(*provider))
		c.Provider = &name
		if name != g.Provider && model == nil {
			own := ""
			c.Model = &own
		}
		// The one that was a fallback and is now the first does not stand in for itself.
		if rest := slices.DeleteFunc(slices.Clone(g.Fallbacks), func(f store.Fallback) bool { return f.Provider == name }); len(rest) < len(g.Fallbacks) {
			c.Fallbacks = &rest
		}
	}
	_, needsModel, err := s.agents.Provider(ctx, name, g.Model)
	if err != nil {
		return c, err
	}
	if needsModel && (c.Model != nil && *c.Model == "" || c.Model == nil && g.Model == "") {
		return c, control.Invalid("model", name+" has no model of its own: name one")
	}
	if effort != nil {
		switch *effort {
		case "", "low", "medium", "high", "xhigh", "max":
		default:
			return c, control.Invalid("effort", fmt.Sprintf("%q is not one of low, medium, high, xhigh, max, default", *effort))
		}
	}
	if fallback != nil {
		list, err := s.fallbacks(ctx, name, *fallback)
		if err != nil {
			return c, err
		}
		c.Fallbacks = &list
	}
	return c, nil
}

// fallbacks reads `provider[:model],…`; the empty text is none.
func (s configShelf) fallbacks(ctx context.Context, first, text string) ([]store.Fallback, error) {
	list := []store.Fallback{}
	seen := map[string]bool{first: true}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, model, _ := strings.Cut(part, ":")
		f := store.Fallback{Provider: strings.ToLower(strings.TrimSpace(name)), Model: strings.TrimSpace(model)}
		_, needsModel, err := s.agents.Provider(ctx, f.Provider, f.Model)
		switch {
		case err != nil:
			return nil, err
		case needsModel && f.Model == "":
			return nil, control.Invalid("fallback", f.Provider+" has no model of its own: write "+f.Provider+":MODEL")
		case seen[f.Provider]:
			return nil, control.Invalid("fallback", f.Provider+" stands in the chain twice")
		}
		seen[f.Provider] = true
		list = append(list, f)
	}
	if len(list) > maxFallbacks {
		return nil, control.Invalid("fallback", fmt.Sprintf("at most %d", maxFallbacks))
	}
	return list, nil
}
