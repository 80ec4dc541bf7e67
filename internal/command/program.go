package command

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"nanoclaw/container"
	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
)

// providerACP drives any agent of the Agent Client Protocol; which one is a setting.
const providerACP = "acp"

// programSetting is the setting that names the program of a provider; false: the provider has no program.
func programSetting(s config.Settings, provider string) (value string, has bool) {
	value, has = map[string]string{"claude": s.ClaudeProgram, "codex": s.CodexProgram, "opencode": s.OpencodeProgram, providerACP: s.ACPProgram}[provider]
	return value, has
}

// programAdvice is how to get the program that a provider drives, on this machine.
func programAdvice(provider string) string {
	if provider == providerACP {
		return `put the path of an agent that speaks the Agent Client Protocol into the setting acp.program and its arguments into acp.args (opencode's are "acp"); then: nanoclaw stop, nanoclaw chat`
	}
	return fmt.Sprintf("fetch the tested version with scripts/fetch-%[1]s, which prints its path, and put that path into the setting %[1]s.program (a %[1]s in the host's PATH is found by itself); then: nanoclaw stop, nanoclaw chat", provider)
}

// imageAdvice is how to get it into the sandboxes of docker.
func imageAdvice(provider string) string {
	return fmt.Sprintf("run: nanoclaw image build; or put the path of one of this machine into the setting %s.program", provider)
}

// checkProviderPrograms looks for the programs of providers: that of claude, and those that agents use or the settings name.
func (a *app) checkProviderPrograms(ctx context.Context, s config.Settings, ch choice, st control.Status) []check {
	all := []check{a.checkProgram(ctx, s, ch, st, "claude")}
	for _, name := range []string{"codex", "opencode", providerACP} {
		if set, _ := programSetting(s, name); set != "" || len(users(st, name)) > 0 {
			all = append(all, a.checkProgram(ctx, s, ch, st, name))
		}
	}
	return all
}

// users are the agents that have a program as their provider's.
func users(st control.Status, program string) []string {
	for _, p := range st.Programs {
		if p.Name == program {
			return p.Agents
		}
	}
	return nil
}

// checkProgram says whether sandboxes get the program of a provider, and what to do if not. It is a failure where an agent needs it.
func (a *app) checkProgram(ctx context.Context, s config.Settings, ch choice, st control.Status, name string) check {
	c := check{ID: name, Title: name + " program", Result: checkOK}
	missing := func(detail, fix string) check {
		c.Result, c.Detail, c.Fix = checkWarn, detail, fix
		switch agents := users(st, name); {
		case len(agents) > 0:
			c.Result = checkFail
			c.Detail += "; needed by " + strings.Join(agents, ", ")
		case st.State != "":
			c.Result = checkSkipped
			c.Detail += "; no agent uses it"
		case name == "claude":
			c.Detail += "; the providers anthropic, openai and ollama need no program"
		}
		return c
	}
	set, _ := programSetting(s, name)
	wanted := set
	if wanted == "" {
		wanted = name
	}
	if name == providerACP && set == "" {
		return missing("no agent is named", programAdvice(name))
	}
	path, err := a.Machine.LookPath(wanted)
	if ch.kind == "docker" && (err != nil || !strings.ContainsRune(set, filepath.Separator) || runtime.GOOS != "linux") {
		c.Result = checkSkipped
		d := a.dockerState(ctx, s)
		switch {
		case name == providerACP:
			c.Detail = set + " is looked up in the image"
		case d.Labeled && !slices.Contains(d.Programs, name):
			return missing("the image "+s.Image+" has none", imageAdvice(name))
		default:
			c.Detail = "comes with the image"
		}
		return c
	}
	if err != nil {
		return missing(wanted+" is not on this machine", programAdvice(name))
	}
	version, err := a.Machine.Run(ctx, path, "--version")
	if err != nil {
		c.Result, c.Detail, c.Fix = checkFail, path+" does not run: "+firstLine(version, err), programAdvice(name)
		if name == providerACP { // an agent need not know --version
			c.Result, c.Detail = checkWarn, path+" does not say its version"
		}
		return c
	}
	c.Detail = path + ", " + firstLine(version, nil)
	if tested := testedVersion(name); tested != "" && !strings.Contains(c.Detail, tested) {
		c.Detail += "; tested was " + tested
	}
	return c
}

func testedVersion(name string) string {
	for _, p := range container.Pins() {
		if p.Program == name {
			return p.Version
		}
	}
	return ""
}
