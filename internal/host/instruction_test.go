package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/config"
	"nanoclaw/internal/config/container"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// runtimeNamed is a runtime of which only the name counts.
type runtimeNamed struct {
	sandbox.Runtime
	name string
}

func (n runtimeNamed) Name() string { return n.name }

// An agent is told what it has: its persona, its folders, its skills, its servers, and what lies in its own files that the
// composed one covers. A link in its folder shows the host nothing.
func TestInstruct(t *testing.T) {
	t.Parallel()
	home, dir := t.TempDir(), t.TempDir()
	groupDir, secret := filepath.Join(home, "groups", "main"), filepath.Join(home, "secrets", "key")
	write(t, secret, "do not show")
	write(t, filepath.Join(groupDir, personaName), "You are a gardener.")
	write(t, filepath.Join(groupDir, "CLAUDE.md"), "my own notes")
	write(t, filepath.Join(home, "skills", "garden", "SKILL.md"), "---\nname: garden\n---\n")
	write(t, filepath.Join(home, "skills", "garden", "instructions.md"), "water at night")
	if err := os.Symlink(secret, filepath.Join(groupDir, "AGENTS.md")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"in", "home"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	shelf, err := shelve(home)
	if err != nil {
		t.Fatal(err)
	}
	g := store.AgentGroup{Setup: store.Setup{MCPServers: map[string]container.MCPServer{"seeds": {Command: "seeds", Instructions: "ask it for seeds"}}}}
	folders := []folder{{Mount: store.Mount{Name: "plans"}, problem: os.ErrNotExist}}
	l := &launcher{settings: config.Settings{Home: home}, gid: os.Getgid(), log: obs.Discard(), shelf: shelf, runtime: runtimeNamed{name: sandbox.Bubblewrap}}
	mounts, err := l.instruct(dir, groupDir, g, folders)
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]string{}
	for _, m := range mounts {
		if m.Writable {
			t.Errorf("%s is writable", m.Target)
		}
		targets[m.Target] = m.Source
	}
	b, err := os.ReadFile(targets["/workspace/agent/CLAUDE.md"])
	if err != nil || targets["/workspace/agent/AGENTS.md"] != targets["/workspace/agent/CLAUDE.md"] {
		t.Fatal(targets, err)
	}
	for _, want := range []string{"You are a gardener.", "my own notes", "water at night", "ask it for seeds", "extra/plans` is not there"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%q is not said", want)
		}
	}
	if strings.Contains(string(b), "do not show") {
		t.Error("a link led out of the agent's folder")
	}
	for _, s := range []string{"ncl", "garden"} {
		if targets["/home/agent/.claude/skills/"+s] == "" {
			t.Errorf("skill %s is not mounted: %v", s, targets)
		}
	}

	l.runtime = runtimeNamed{name: sandbox.Process}
	if mounts, err := l.instruct(dir, groupDir, g, nil); err != nil || len(mounts) != 0 {
		t.Fatal(mounts, err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "home")); err != nil || len(entries) != 0 {
		t.Errorf("the process runtime left %v, %v", entries, err)
	}
	l.runtime = runtimeNamed{name: sandbox.Docker}
	g.Setup.Skills = &[]string{}
	if mounts, err := l.instruct(dir, groupDir, g, nil); err != nil || len(mounts) != 2 {
		t.Errorf("without skills: %v, %v", mounts, err)
	}
}
