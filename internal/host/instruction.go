package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nanoclaw/container"
	"nanoclaw/internal/instruction"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// Names of instructions.
const (
	composedName = "instructions.md"         // in the session's in/
	personaName  = "instructions.prepend.md" // in the agent's folder
)

// instructionNames are what the composed file is called in the agent's folder: each provider knows one of them.
func instructionNames() []string { return []string{"CLAUDE.md", "AGENTS.md"} }

// shelve makes the shelf of skills: the shipped ones, and the operator's in <home>/skills.
func shelve(home string) (instruction.Shelf, error) {
	shipped, err := container.Skills()
	if err != nil {
		return instruction.Shelf{}, err
	}
	return instruction.Install(shipped, filepath.Join(home, "bin", "skills"), filepath.Join(home, "skills"))
}

// instruct writes the composed instructions into a session's in/ and returns the mounts that show them and the skills. The
// agent's own files of those names are not lost: what is in them is part of the composed text. The process runtime mounts nothing: its
// agents have their own files alone.
func (l *launcher) instruct(dir, groupDir string, g store.AgentGroup, folders []folder) ([]sandbox.Mount, error) {
	if l.runtime.Name() == sandbox.Process {
		return nil, nil
	}
	skills, missing := l.shelf.Choose(g.Setup.Skills)
	if len(missing) > 0 {
		l.log.Warn("an agent lacks skills that are not there any more", obs.KeyGroup, string(g.ID), obs.KeyWhat, strings.Join(missing, ", "))
	}
	in := instruction.Input{Persona: instruction.ReadBeneath(groupDir, personaName), Skills: instruction.Texts(skills), Servers: map[string]string{}}
	for name, s := range g.Setup.MCPServers {
		in.Servers[name] = s.Instructions
	}
	for _, f := range folders {
		v := instruction.Folder{Inside: insideExtra + "/" + f.Name, Writable: f.grant.Writable, Hidden: len(f.grant.Masked) > 0}
		if f.problem != nil {
			v.Problem = "the operator's list does not allow it, or it is gone"
		}
		in.Folders = append(in.Folders, v)
	}
	for _, name := range instructionNames() {
		if text := instruction.ReadBeneath(groupDir, name); text != "" && !slices.ContainsFunc(in.Own, func(o instruction.Own) bool { return o.Text == text }) {
			in.Own = append(in.Own, instruction.Own{Name: name, Text: text})
		}
	}
	text, dropped, err := instruction.Compose(in)
	if err != nil {
		return nil, fmt.Errorf("compose instructions: %w", err)
	}
	if len(dropped) > 0 {
		l.log.Warn("instructions of an agent are too long; parts are left out", obs.KeyGroup, string(g.ID), obs.KeyWhat, strings.Join(dropped, ", "))
	}
	path := filepath.Join(dir, "in", composedName)
	if err := replaceFile(path, []byte(text), l.gid); err != nil {
		return nil, fmt.Errorf("write instructions: %w", err)
	}
	var mounts []sandbox.Mount
	for _, name := range instructionNames() {
		mounts = append(mounts, sandbox.Mount{Class: sandbox.ClassConfig, Source: path, Target: insideRoot + "/agent/" + name})
	}
	for name, source := range skills {
		mounts = append(mounts, sandbox.Mount{Class: sandbox.ClassProgram, Source: source, Target: insideHome + "/.claude/skills/" + name})
	}
	return mounts, nil
}

// replaceFile writes a file of the host that a sandbox may read, by rename.
func replaceFile(path string, content []byte, gid int) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(tmp, content, 0o640); err != nil {
		return err
	}
	if err := os.Lchown(tmp, -1, gid); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
