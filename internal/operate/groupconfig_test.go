package operate

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// groups is a store of two agents.
type groups struct {
	all     []store.AgentGroup
	changed []store.GroupChange
}

func (g *groups) AgentGroups(context.Context) ([]store.AgentGroup, error) { return g.all, nil }

func (g *groups) UpdateGroup(_ context.Context, _ string, group id.AgentGroup, c store.GroupChange) (store.AgentGroup, bool, error) {
	g.changed = append(g.changed, c)
	i := slices.IndexFunc(g.all, func(a store.AgentGroup) bool { return a.ID == group })
	before := g.all[i]
	for _, f := range []struct{ from, to *string }{{c.Provider, &g.all[i].Provider}, {c.Model, &g.all[i].Model}, {c.Effort, &g.all[i].Effort}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if c.Fallbacks != nil {
		g.all[i].Fallbacks = *c.Fallbacks
	}
	if c.Setup != nil && !reflect.DeepEqual(g.all[i].Setup, *c.Setup) {
		g.all[i].Setup = *c.Setup
		return g.all[i], true, nil
	}
	return g.all[i], before.Provider != g.all[i].Provider || before.Model != g.all[i].Model || before.Effort != g.all[i].Effort || c.Fallbacks != nil, nil
}

// machine is a host that knows three providers and runs two conversations.
type machine struct{}

func (machine) Provider(_ context.Context, name, _ string) ([]string, bool, error) {
	switch name {
	case "claude":
		return nil, false, nil
	case "openai":
		return []string{"the host has no key for openai"}, false, nil
	case "ollama":
		return nil, true, nil
	}
	return nil, false, control.Invalid("provider", name+" is not one of claude, openai, ollama")
}
func (machine) Restart(id.AgentGroup) int { return 2 }
func (machine) Operator() string          { return "cli:ann" }

func update(t *testing.T, args string) (configRow, *groups, *control.Error, string) {
	t.Helper()
	st := &groups{all: []store.AgentGroup{{ID: "ag-1", Name: "Nano", Folder: "main", Provider: "claude", Model: "big"}, {ID: "ag-2", Name: "Two", Folder: "two", Provider: "ollama", Model: "small"}}}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &raw); err != nil {
		t.Fatal(err)
	}
	f := New(GroupConfig(st, machine{})...).Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: "groups-config-update", Args: raw})
	var row configRow
	if f.OK {
		if err := json.Unmarshal(f.Data, &row); err != nil {
			t.Fatal(err)
		}
	}
	return row, st, f.Error, f.Human
}

// One command switches the provider for the next start, and says when that is and what is missing. A model belongs to its
// provider.
func TestGroupsConfigUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, args string
		provider   string
		model      string
		says       string
	}{
		{"provider", `{"id":"ag-1","provider":"OpenAI"}`, "openai", "", "no key for openai"},
		{"provider and model", `{"id":"main","provider":"ollama","model":"qwen"}`, "ollama", "qwen", "2 running conversations"},
		{"model alone", `{"id":"nano","model":"small"}`, "claude", "small", "next start"},
		{"the model it has", `{"id":"ag-1","model":"default"}`, "claude", "", "the provider's own"},
		{"the same again", `{"id":"ag-1","provider":"claude"}`, "claude", "big", "nothing has changed"},
		{"effort", `{"id":"ag-1","effort":"high"}`, "claude", "big", "effort high"},
		{"fallbacks", `{"id":"ag-1","fallback":"openai, ollama:qwen"}`, "claude", "big", "fallback ollama, model qwen"},
	} {
		row, _, err, human := update(t, c.args)
		if err != nil || row.Provider != c.provider || row.Model != c.model || !strings.Contains(human, c.says) {
			t.Errorf("%s: %+v, %v\n%s", c.name, row, err, human)
		}
	}
}

func TestGroupsConfigRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, args, says string }{
		{"unknown provider", `{"id":"ag-1","provider":"gpt"}`, "claude, openai, ollama"},
		{"no model", `{"id":"ag-1","provider":"ollama"}`, "name one"},
		{"model taken away", `{"id":"ag-2","model":"default"}`, "name one"},
		{"effort", `{"id":"ag-1","effort":"huge"}`, "low, medium"},
		{"nothing", `{"id":"ag-1"}`, "nothing to change"},
		{"unknown agent", `{"id":"ag-9","provider":"claude"}`, "Nano (ag-1)"},
		{"which agent", `{"provider":"claude"}`, "more than one"},
		{"fallback to itself", `{"id":"ag-1","fallback":"claude"}`, "twice"},
		{"fallback without a model", `{"id":"ag-1","fallback":"ollama"}`, "ollama:MODEL"},
		{"unknown fallback", `{"id":"ag-1","fallback":"gpt"}`, "claude, openai, ollama"},
		{"unknown flag", `{"id":"ag-1","colour":"fast"}`, "does not take"},
	} {
		_, st, err, _ := update(t, c.args)
		if err == nil || !strings.Contains(err.Error()+err.Hint, c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if len(st.changed) > 0 {
			t.Errorf("%s: %+v was written", c.name, st.changed)
		}
	}
}

// What a fallback lacks is told as what the first provider lacks is, and one that becomes the first leaves the chain.
func TestFallbacksOfAnUpdate(t *testing.T) {
	t.Parallel()
	row, _, err, human := update(t, `{"id":"ag-1","fallback":"openai,ollama:local"}`)
	if err != nil || !strings.Contains(human, "missing: for the fallback openai: the host has no key for openai") || len(row.Missing) != 1 {
		t.Errorf("%+v, %v: %s", row, err, human)
	}
	st := &groups{all: []store.AgentGroup{{ID: "ag-1", Provider: "claude", Fallbacks: []store.Fallback{{Provider: "ollama", Model: "local"}, {Provider: "openai"}}}}}
	f := New(GroupConfig(st, machine{})...).Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: "groups-config-update",
		Args: map[string]json.RawMessage{"provider": json.RawMessage(`"ollama"`), "model": json.RawMessage(`"local"`)}})
	if !f.OK || !slices.Equal(st.all[0].Fallbacks, []store.Fallback{{Provider: "openai"}}) {
		t.Errorf("%+v: %+v", f.Error, st.all[0])
	}
}
