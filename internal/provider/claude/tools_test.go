package claude

import (
	"slices"
	"strings"
	"testing"

	"nanoclaw/internal/provider"
)

func TestMCP3NamesAreCleaned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ server, tool, want string }{
		{"my.server", "add", "mcp__my_server__add"},
		{"my server", "a.b c", "mcp__my_server__a_b_c"},
		{"größe", "x", "mcp__gr__e__x"},
		{"a-b_c", "D9", "mcp__a-b_c__D9"},
		{"a,Bash", "x(rm *)", "mcp__a_Bash__x_rm___"},
	} {
		if got := ToolName(c.server, c.tool); got != c.want {
			t.Errorf("%q %q: %s, want %s", c.server, c.tool, got, c.want)
		}
	}
	r := newRules([]provider.MCPServer{{Name: "my.server"}})
	if got := r.allowed([]string{"Bash", "CronCreate"}); !slices.Equal(got, []string{"Bash", "mcp__my_server__*"}) {
		t.Errorf("allowed: %v", got)
	}
	if _, err := initialize(provider.QueryInput{MCP: []provider.MCPServer{{Name: "my.server", URL: "x"}, {Name: "my_server", URL: "x"}}}); err == nil {
		t.Error("two servers that the model could not tell apart")
	}
}

func TestRulesOfTools(t *testing.T) {
	t.Parallel()
	r := newRules([]provider.MCPServer{
		{Name: "all"}, {Name: "some", Only: []string{"a", "b.c"}}, {Name: "most", Without: []string{"x"}}, {Name: "some__more"}, {Name: "both", Only: []string{"a", "b"}, Without: []string{"b"}},
	})
	for tool, may := range map[string]bool{
		"Bash": true, "Task": true, "mcp__all__x": true, "mcp__some__a": true, "mcp__some__b_c": true, "mcp__some__d": false, "mcp__most__y": true,
		"mcp__most__x": false, "mcp__some__more__d": true, "mcp__both__a": true, "mcp__both__b": false, "mcp__both__c": false, "mcp__other__x": true,
		"SendMessage": false, "CronCreate": false, "AskUserQuestion": false, "ExitPlanMode": false,
	} {
		if reason := r.refused(tool); (reason == "") != may {
			t.Errorf("%s: %q", tool, reason)
		}
	}
	want := "Bash mcp__all__* mcp__both__a mcp__both__b mcp__most__* mcp__some__a mcp__some__b_c mcp__some__more__*"
	if got := strings.Join(r.allowed([]string{"Bash"}), " "); got != want {
		t.Errorf("allowed: %s", got)
	}
	if got := strings.Join(r.disallowed(), " "); !strings.HasSuffix(got, " mcp__both__b mcp__most__x") || !strings.Contains(got, "SendMessage") {
		t.Errorf("disallowed: %s", got)
	}
}

// Each denied tool says why, and each that has a counterpart here names it.
func TestMCP6EachDeniedToolHasAReason(t *testing.T) {
	t.Parallel()
	all := denied()
	for tool, reason := range all {
		if reason == "" || slices.Contains(DefaultTools(), tool) {
			t.Errorf("%s: %q", tool, reason)
		}
	}
	for tool, ours := range map[string]string{
		"SendMessage": "mcp__nanoclaw__send_message", "AskUserQuestion": "mcp__nanoclaw__ask_user_question", "CronCreate": "mcp__nanoclaw__schedule_task",
		"ScheduleWakeup": "mcp__nanoclaw__schedule_task",
	} {
		if !strings.Contains(all[tool], ours) {
			t.Errorf("%s: %q", tool, all[tool])
		}
	}
}

func TestCommandIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/compact": "/compact", " /Compact \n": "/compact", "/compact keep  the\nnames": "/compact keep the names", "/cost": "/cost", "/context": "/context",
		"/compacted": "", "compact": "", "": "", "/": "", "/clear": "", "/model opus": "", "say /compact": "", "/etc/hosts": "",
	} {
		if got := commandIn(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		p := prompt{Input: provider.Input{Text: text}, command: commandIn(text)}
		if c := p.content(); want == "" && strings.HasPrefix(c.text, "/") || !strings.Contains(text, strings.TrimSpace(c.text)) && want == "" {
			t.Errorf("%q becomes %q", text, c.text)
		}
	}
}
