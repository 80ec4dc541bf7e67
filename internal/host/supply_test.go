package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
	"nanoclaw/internal/vault"
)

// shipped is what images say they have, by name.
type shipped map[string]string

func (s shipped) ImageLabel(_ context.Context, image, _ string) (string, bool, error) {
	if image == "broken" {
		return "", false, errors.New("no daemon")
	}
	v, ok := s[image]
	return v, ok, nil
}

func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Where a sandbox gets the program of a provider from.
func TestSourceOfPrograms(t *testing.T) {
	t.Parallel()
	codex := program(t, "codex")
	images := shipped{"full": "claude codex opencode", "slim": "claude", "none": ""}
	for name, c := range map[string]struct {
		set     config.Settings
		images  labeled
		program string
		image   string
		want    source
	}{
		"machine":                        {config.Settings{CodexProgram: codex}, nil, "codex", "", source{file: codex}},
		"machine, not there":             {config.Settings{CodexProgram: "/nowhere/codex"}, nil, "codex", "", source{missing: "the setting codex.program names /nowhere/codex"}},
		"machine, in no PATH":            {config.Settings{}, nil, "opencode", "", source{missing: "the opencode program is not on this machine"}},
		"machine, acp":                   {config.Settings{ACPProgram: codex}, nil, acpName, "", source{file: codex}},
		"acp, not named":                 {config.Settings{}, images, acpName, "", source{missing: "no agent is named"}},
		"image":                          {config.Settings{}, images, "codex", "full", source{command: "codex"}},
		"shared image":                   {config.Settings{Image: "full"}, images, "codex", "", source{command: "codex"}},
		"image without it":               {config.Settings{}, images, "codex", "slim", source{missing: "the agent image slim has no codex program"}},
		"image with nothing":             {config.Settings{}, images, "claude", "none", source{missing: "the agent image none has no claude program"}},
		"image that says nothing":        {config.Settings{}, images, "codex", "other", source{command: "codex"}},
		"image that cannot be looked at": {config.Settings{}, images, "codex", "broken", source{command: "codex"}},
		"path goes before the image":     {config.Settings{CodexProgram: codex}, images, "codex", "full", source{file: codex}},
		"path for an image without":      {config.Settings{CodexProgram: codex}, images, "codex", "slim", source{file: codex}},
		"path that is not there":         {config.Settings{CodexProgram: "/nowhere/codex"}, images, "codex", "full", source{command: "codex"}},
		"acp, path":                      {config.Settings{ACPProgram: codex}, images, acpName, "slim", source{file: codex}},
		"acp, of the image":              {config.Settings{ACPProgram: "opencode"}, images, acpName, "full", source{command: "opencode"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "machine, in no PATH" && realProgram("opencode") != "" {
				t.Skip("this machine has opencode")
			}
			got := supply{c.set, c.images}.find(t.Context(), c.program, c.image)
			if got.file != c.want.file || got.command != c.want.command || !strings.HasPrefix(got.missing, c.want.missing) || (got.missing == "") != (c.want.missing == "") {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if (got.missing == "") != (got.fix == "") {
				t.Errorf("what is missing without what to do: %+v", got)
			}
		})
	}
}

// status names who lacks what, and who answers instead.
func TestStatusOfPrograms(t *testing.T) {
	t.Parallel()
	s := supply{config.Settings{Image: "slim"}, shipped{"slim": "claude"}}
	groups := []store.AgentGroup{
		{Name: "Ann", Provider: "claude"},
		{Name: "Bob", Provider: "codex"},
		{Name: "Cay", Provider: "codex", Fallbacks: []store.Fallback{{Provider: "opencode"}, {Provider: "ollama"}}},
		{Name: "Dan", Provider: "claude", Fallbacks: []store.Fallback{{Provider: "codex"}}},
		{Name: "Eve", Provider: "anthropic"},
	}
	programs, lacks := s.status(t.Context(), groups)
	codex, opencode := "the agent image slim has no codex program", "the agent image slim has no opencode program"
	if d := cmp.Diff([]control.ProgramStatus{
		{Name: "claude", Agents: []string{"Ann", "Dan"}},
		{Name: "codex", Agents: []string{"Bob", "Cay", "Dan"}, Missing: codex},
		{Name: "opencode", Agents: []string{"Cay"}, Missing: opencode},
	}, programs); d != "" {
		t.Error(d)
	}
	fix := " (nanoclaw image build makes one that has it)"
	if d := cmp.Diff([]string{
		"agent Bob cannot be started: " + codex + fix,
		"agent Cay: " + codex + "; " + opencode + "; ollama answers instead" + fix,
		"agent Dan lacks a fallback: " + codex + fix,
	}, lacks); d != "" {
		t.Error(d)
	}
}

// A path of this machine in the settings is mounted into a docker sandbox, and comes first on its PATH; what the image has is named.
func TestProgramsInDocker(t *testing.T) {
	t.Parallel()
	codex := program(t, "codex")
	l := &launcher{runtime: named{name: sandbox.Docker}, settings: config.Settings{ACPArgs: "acp --fast", ACPAPI: apiAnthropic},
		supply: supply{config.Settings{CodexProgram: codex, ACPProgram: "opencode", Image: "full"}, shipped{"full": "claude codex opencode"}}}
	group := store.AgentGroup{Provider: "codex", Fallbacks: []store.Fallback{{Provider: "acp"}, {Provider: "mock"}}}
	fit, err := l.outfit(t.Context(), chain(group), "")
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(filepath.Join(t.TempDir(), "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Put(t.Context(), apiAnthropic, vault.OAuthToken, obs.NewSecret("sk-ant-oat-secret")); err != nil {
		t.Fatal(err)
	}
	l.vault = v
	if got := strings.Join(fit.apis(), " "); got != "openai anthropic" {
		t.Errorf("its sandbox reaches %s", got)
	}
	c, err := l.container(t.Context(), store.Session{}, group, 1, fit)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"codex": "/opt/nanoclaw/codex", "acp": "opencode acp --fast"}, c.Programs); d != "" {
		t.Error(d)
	}
	if f := c.Fallbacks[0].Credential; c.AgentAPI != apiAnthropic || f.Kind != string(vault.OAuthToken) || f.Placeholder == "" || strings.Contains(f.Placeholder, "secret") {
		t.Errorf("the agent of acp gets %q, %+v", c.AgentAPI, f)
	}
}

// What stands in the way of a provider: no key, a key of a kind that it cannot use, no program.
func TestKeysOfProviders(t *testing.T) {
	t.Parallel()
	v, err := vault.Open(filepath.Join(t.TempDir(), "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	codex := program(t, "codex")
	settings := config.Settings{CodexProgram: codex, ClaudeProgram: codex, OpencodeProgram: codex, ACPProgram: codex, ACPAPI: apiAnthropic}
	h := &Host{opt: Options{Settings: settings}, vault: v, supply: supply{settings: settings}}
	missing := func() map[string]string {
		all := map[string]string{}
		for _, name := range providerNames() {
			m, _, err := h.Provider(t.Context(), name, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(m) > 0 {
				all[name] = strings.Join(m, "|")
			}
		}
		return all
	}
	const none, other = "the host has no key for ", "the host has a subscription token for anthropic, and "
	if d := cmp.Diff(map[string]string{"claude": none + "anthropic", "anthropic": none + "anthropic", "opencode": none + "anthropic", "acp": none + "anthropic", "openai": none + "openai", "codex": none + "openai"}, missing()); d != "" {
		t.Error(d)
	}
	if err := v.Put(t.Context(), apiAnthropic, vault.OAuthToken, obs.NewSecret("sk-ant-oat-secret")); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"anthropic": other + "anthropic needs an API key", "opencode": other + "opencode needs an API key", "openai": none + "openai", "codex": none + "openai"}, missing()); d != "" {
		t.Error(d)
	}
}
