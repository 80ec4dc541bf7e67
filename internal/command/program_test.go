package command

import (
	"encoding/json"
	"strings"
	"testing"

	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
)

// What doctor says of the program of a provider, where it is missing and where not.
func TestDoctorProgram(t *testing.T) {
	t.Parallel()
	used := control.Status{State: control.HostRunning, Programs: []control.ProgramStatus{{Name: "codex", Agents: []string{"Ann", "Bob"}}}}
	slim := DockerState{Daemon: true, Image: true, Labeled: true, Programs: []string{"claude"}}
	for name, c := range map[string]struct {
		set     config.Settings
		kind    string
		docker  DockerState
		st      control.Status
		program string
		result  string
		says    []string
	}{
		"missing, used":           {config.Settings{}, "bubblewrap", DockerState{}, used, "codex", checkFail, []string{"codex is not on this machine", "needed by Ann, Bob", "scripts/fetch-codex", "codex.program"}},
		"missing, not used":       {config.Settings{}, "bubblewrap", DockerState{}, used, "opencode", checkSkipped, []string{"no agent uses it", "scripts/fetch-opencode"}},
		"missing, no host":        {config.Settings{}, "bubblewrap", DockerState{}, control.Status{}, "codex", checkWarn, []string{"not on this machine", "scripts/fetch-codex"}},
		"setting names nothing":   {config.Settings{CodexProgram: "/none"}, "bubblewrap", DockerState{}, used, "codex", checkFail, []string{"/none is not on this machine"}},
		"there":                   {config.Settings{CodexProgram: "/codex"}, "bubblewrap", DockerState{}, used, "codex", checkOK, []string{"/codex, 1.2.3; tested was "}},
		"acp, not named":          {config.Settings{}, "bubblewrap", DockerState{}, control.Status{}, "acp", checkWarn, []string{"no agent is named", "acp.program", "acp.args"}},
		"acp":                     {config.Settings{ACPProgram: "/codex"}, "bubblewrap", DockerState{}, control.Status{}, "acp", checkOK, []string{"/codex"}},
		"does not run":            {config.Settings{CodexProgram: "/broken"}, "bubblewrap", DockerState{}, used, "codex", checkFail, []string{"does not run: no node"}},
		"image has it":            {config.Settings{}, "docker", slim, used, "claude", checkSkipped, []string{"comes with the image"}},
		"image lacks it, used":    {config.Settings{Image: "i:1"}, "docker", slim, used, "codex", checkFail, []string{"the image i:1 has none", "Ann, Bob", "nanoclaw image build"}},
		"image says nothing":      {config.Settings{}, "docker", DockerState{Daemon: true, Image: true}, used, "codex", checkSkipped, []string{"comes with the image"}},
		"path for an image":       {config.Settings{CodexProgram: "/codex"}, "docker", slim, used, "codex", checkOK, []string{"/codex"}},
		"acp, of the image":       {config.Settings{ACPProgram: "opencode"}, "docker", slim, used, "acp", checkSkipped, []string{"looked up in the image"}},
		"name for an image lacks": {config.Settings{CodexProgram: "codex"}, "docker", slim, used, "codex", checkFail, []string{"has none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fakeMachine{programs: map[string]string{"/codex": "/codex", "/broken": "/broken"}, broken: map[string]string{"/broken": "no node"}, docker: c.docker}
			a := &app{Deps: Deps{Machine: m, Getenv: func(string) string { return "" }}}
			got := a.checkProgram(t.Context(), c.set, choice{kind: c.kind}, c.st, c.program)
			if got.Result != c.result || got.ID != c.program {
				t.Errorf("%+v, want %s", got, c.result)
			}
			for _, s := range c.says {
				if !strings.Contains(got.Detail+" "+got.Fix, s) {
					t.Errorf("%q is missing in %+v", s, got)
				}
			}
		})
	}
}

// doctor without a provider looks for the programs that settings name; with one for its program and its API.
func TestDoctorNamesMissingPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["NANOCLAW_CODEX_PROGRAM"] = "/none/codex"
	var all struct{ Checks []check }
	if r := w.run("doctor", "--json"); json.Unmarshal([]byte(r.out), &all) != nil {
		t.Fatalf("%+v", r)
	}
	var ids []string
	for _, c := range all.Checks {
		ids = append(ids, c.ID)
	}
	if got := strings.Join(ids, " "); !strings.Contains(got, "claude codex key") {
		t.Errorf("checks %s", got)
	}
	if r := w.run("doctor", "--provider", "acp"); r.code != 9 || !strings.Contains(r.out, "no agent is named") || !strings.Contains(r.out, "acp.program") {
		t.Errorf("%+v", r)
	}
	w.env["NANOCLAW_ACP_PROGRAM"] = "/a"
	w.machine.programs["/a"] = "/a"
	if r := w.run("doctor", "--provider", "acp"); r.code != 0 || !strings.Contains(r.out, "finds model and key by itself") {
		t.Errorf("%+v", r)
	}
	w.env["OPENAI_API_KEY"], w.env["NANOCLAW_OPENAI_BASE_URL"] = "sk-marker", "http://127.0.0.1:9"
	if r := w.run("doctor", "--provider", "codex"); r.code != 9 || !strings.Contains(r.out, "/none/codex is not on this machine") || !strings.Contains(r.out, "nothing answers at") {
		t.Errorf("%+v", r)
	}
}
