package store

import (
	"errors"
	"testing"
)

func TestUpdateGroup(t *testing.T) {
	t.Parallel()
	f := setup(t)
	text := func(s string) *string { return &s }
	chain := []Fallback{{Provider: "openai"}, {Provider: "ollama", Model: "qwen <3>"}}
	after, changed, err := f.UpdateGroup(t.Context(), "cli:ann", f.group, GroupChange{Provider: text("anthropic"), Model: text("m"), Fallbacks: &chain})
	if err != nil || !changed || after.Provider != "anthropic" {
		t.Fatalf("%+v %v %v", after, changed, err)
	}
	got, err := f.AgentGroup(t.Context(), f.group)
	if err != nil || got.Provider != "anthropic" || got.Model != "m" || len(got.Fallbacks) != 2 || got.Fallbacks[1] != chain[1] {
		t.Fatalf("%+v %v", got, err)
	}
	if _, changed, err := f.UpdateGroup(t.Context(), "cli:ann", f.group, GroupChange{Model: text("m")}); err != nil || changed {
		t.Errorf("the same again: %v, %v", changed, err)
	}
	if _, _, err := f.UpdateGroup(t.Context(), "cli:ann", f.group, GroupChange{Effort: text("huge")}); err == nil {
		t.Error("an effort that does not exist was stored")
	}
	if _, _, err := f.UpdateGroup(t.Context(), "cli:ann", "ag-none", GroupChange{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such agent: %v", err)
	}
	var n int
	if err := f.r.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM audit WHERE action = 'group.config' AND actor = 'cli:ann'`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d entries in the audit log, %v", n, err)
	}
}
