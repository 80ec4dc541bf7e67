package host

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"nanoclaw/container"
	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// labeled tells of the images that sandboxes start from.
type labeled interface {
	// ImageLabel is a label of an image; false: the image is not there or has no such label.
	ImageLabel(ctx context.Context, image, label string) (value string, ok bool, err error)
}

// supply finds the programs of providers. It looks each time: one that was just installed counts.
type supply struct {
	settings config.Settings
	images   labeled // nil: sandboxes get the programs of this machine
}

// source is where a sandbox has a provider's program from: a file of this machine that it gets, a program of its image, or nowhere.
type source struct {
	file    string // real path on this machine
	command string // name or path in the image, if file is empty
	missing string // what is wrong, in one clause; the program cannot be had
	fix     string
}

// setting is where the settings say a program is; empty: nothing is said.
func (s supply) setting(program string) string {
	return map[string]string{
		"claude": s.settings.ClaudeProgram, "codex": s.settings.CodexProgram, "opencode": s.settings.OpencodeProgram, acpName: s.settings.ACPProgram,
	}[program]
}

// find a program for a sandbox with this image (empty: the shared one). With images a path of this machine in the settings goes
// before what the image has; a bare name is a program of the image.
func (s supply) find(ctx context.Context, program, image string) source {
	set := s.setting(program)
	if set == "" && program == acpName {
		return source{missing: "no agent is named for the provider acp", fix: "set acp.program (and acp.args)"}
	}
	if s.images == nil {
		file := realProgram(set)
		switch {
		case set == "":
			if file = realProgram(program); file == "" {
				return source{missing: "the " + program + " program is not on this machine", fix: "nanoclaw doctor says how to get it"}
			}
		case file == "":
			return source{missing: fmt.Sprintf("the setting %s.program names %s, which is no program on this machine", program, set), fix: "correct it; nanoclaw doctor says how to get one"}
		}
		return source{file: file}
	}
	if strings.ContainsRune(set, filepath.Separator) && runtime.GOOS == "linux" { // elsewhere a program of the machine is no good inside
		if file := realProgram(set); file != "" {
			return source{file: file}
		}
	}
	if program == acpName {
		return source{command: set}
	}
	if image == "" {
		image = s.settings.Image
	}
	// An image that cannot be looked at is told by the start; one without the label has what its maker put there.
	if names, known, err := s.images.ImageLabel(ctx, image, container.ProgramsLabel); err == nil && known && !slices.Contains(strings.Fields(names), program) {
		return source{missing: fmt.Sprintf("the agent image %s has no %s program", image, program), fix: "nanoclaw image build makes one that has it"}
	}
	return source{command: program}
}

// realProgram is the absolute path of a program without links, or "".
func realProgram(name string) string {
	if name == "" {
		return ""
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	real, err := filepath.EvalSymlinks(found)
	if err != nil {
		return ""
	}
	if st, err := os.Stat(real); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	abs, err := filepath.Abs(real)
	if err != nil {
		return ""
	}
	return abs
}

// supplyOf the sandboxes of a runtime.
func supplyOf(s config.Settings, rt sandbox.Runtime) supply {
	images, _ := rt.(labeled)
	return supply{s, images}
}

// statusTime bounds how long a daemon may take to say what its image has, where somebody waits for the status.
const statusTime = 2 * time.Second

// status is the programs that agents are set to use, and in words what an agent lacks.
func (s supply) status(ctx context.Context, groups []store.AgentGroup) (programs []control.ProgramStatus, lacks []string) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	found := map[string]source{}
	for _, g := range groups {
		var answers, fix string
		var without []string
		for _, c := range chain(g) {
			k, ok := providerKindOf(s.settings, c.Provider)
			if !ok {
				continue
			}
			if k.program == "" {
				answers = cmp.Or(answers, k.name)
				continue
			}
			from, looked := found[k.program]
			if !looked {
				from = s.find(ctx, k.program, "")
				found[k.program] = from
				programs = append(programs, control.ProgramStatus{Name: k.program, Missing: from.missing})
			}
			i := slices.IndexFunc(programs, func(p control.ProgramStatus) bool { return p.Name == k.program })
			programs[i].Agents = append(programs[i].Agents, g.Name)
			if from.missing == "" {
				answers = cmp.Or(answers, k.name)
				continue
			}
			without, fix = append(without, from.missing), cmp.Or(fix, from.fix)
		}
		switch words := strings.Join(without, "; "); {
		case len(without) == 0:
		case answers == "":
			lacks = append(lacks, fmt.Sprintf("agent %s cannot be started: %s (%s)", g.Name, words, fix))
		case answers == g.Provider:
			lacks = append(lacks, fmt.Sprintf("agent %s lacks a fallback: %s (%s)", g.Name, words, fix))
		default:
			lacks = append(lacks, fmt.Sprintf("agent %s: %s; %s answers instead (%s)", g.Name, words, answers, fix))
		}
	}
	return programs, lacks
}
