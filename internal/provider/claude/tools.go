package claude

import (
	"maps"
	"slices"
	"strings"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/provider"
)

// DefaultTools are the built-in tools that exist for the model. Naming the set keeps it the same over versions of the
// CLI and halves the prompt. ToolSearch is how the model finds the tools of servers that are not loaded at once.
func DefaultTools() []string {
	return []string{"Bash", "Read", "Write", "Edit", "Glob", "Grep", "WebFetch", "WebSearch", "Task", "TaskStop", "Skill", "NotebookEdit", "ToolSearch"}
}

// denied are tools of the CLI that have no receiver here or look like ours, with what the model is told when it calls one
// (spec/bugs.md MCP-6). The named tool set leaves them out already; the rules and the hook hold when a version or a setting brings
// one back.
func denied() map[string]string {
	return map[string]string{
		"SendMessage":     "It talks to helpers inside the CLI only. To reach a person or another agent use " + ours("send_message") + ".",
		"ListAgents":      "It lists helpers inside the CLI only. Those whom you can write to stand in your instructions; use " + ours("send_message") + ".",
		"AskUserQuestion": "Nobody sits at a terminal here. Use " + ours("ask_user_question") + ", or ask in a message.",
		"CronCreate":      scheduling, "CronDelete": scheduling, "CronList": scheduling, "ScheduleWakeup": scheduling, "Monitor": scheduling,
		"EnterPlanMode": headless, "ExitPlanMode": headless, "EnterWorktree": headless, "ExitWorktree": headless,
		"DesignSync": noReceiver, "ReportFindings": noReceiver, "TeamCreate": noReceiver, "TeamDelete": noReceiver, "Workflow": noReceiver,
	}
}

const (
	scheduling = "It forgets everything when this process ends. Use mcp__nanoclaw__schedule_task, or `ncl tasks` in the shell."
	headless   = "There is no screen here that could show it. Do the work, or ask in a message."
	noReceiver = "Nothing here receives what it reports. Say it in a message, or write it into a file."
	switched   = "It is switched off for this agent."
)

// ours is the name of one of NanoClaw's own tools.
func ours(tool string) string { return ToolName(container.ReservedMCPServer, tool) }

// ToolName is the name of a server's tool as the model, the hooks and the permission rules see it: what is no letter, digit, dash
// or underscore becomes one (spec/bugs.md MCP-3).
func ToolName(server, tool string) string {
	return toolPrefix(server) + container.CleanServerName(tool)
}

func toolPrefix(server string) string { return "mcp__" + container.CleanServerName(server) + "__" }

// rules say which tools may be called.
type rules struct {
	denied  map[string]string   // built-in → what the model is told
	only    map[string][]string // prefix of a server → its tools that may be called; nil: all
	without map[string]bool
}

func newRules(servers []provider.MCPServer) rules {
	r := rules{denied: denied(), only: map[string][]string{}, without: map[string]bool{}}
	for _, s := range servers {
		var only []string
		for _, t := range s.Only {
			only = append(only, ToolName(s.Name, t))
		}
		r.only[toolPrefix(s.Name)] = only
		for _, t := range s.Without {
			r.without[ToolName(s.Name, t)] = true
		}
	}
	return r
}

// refused says why a tool may not be called; empty: it may.
func (r rules) refused(tool string) string {
	if reason := r.denied[tool]; reason != "" {
		return reason
	}
	if r.without[tool] {
		return switched
	}
	server := ""
	for prefix := range r.only { // a name may begin as another does: the longest is meant
		if strings.HasPrefix(tool, prefix) && len(prefix) > len(server) {
			server = prefix
		}
	}
	if only := r.only[server]; len(only) > 0 && !slices.Contains(only, tool) {
		return switched
	}
	return ""
}

// allowed are the permission rules of what may be called. They matter once a setting takes the place of bypassing permissions.
func (r rules) allowed(builtin []string) []string {
	var out []string
	for _, t := range builtin {
		if r.refused(t) == "" {
			out = append(out, t)
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(r.only)) {
		if only := r.only[prefix]; len(only) > 0 {
			out = append(out, only...)
		} else {
			out = append(out, prefix+"*")
		}
	}
	return out
}

// disallowed are the permission rules that hide tools from the model.
func (r rules) disallowed() []string {
	return append(slices.Sorted(maps.Keys(r.denied)), slices.Sorted(maps.Keys(r.without))...)
}
