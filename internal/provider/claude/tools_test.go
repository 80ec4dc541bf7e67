package claude

import (
	"encoding/json"
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

// A command opens a turn: it is written when the running one has ended, and what was pushed behind it when it has its result.
func TestCommandsOpenTurns(t *testing.T) {
	t.Parallel()
	p, err := New(Options{Program: "/claude", Home: "/home"})
	if err != nil {
		t.Fatal(err)
	}
	q := detached(t, p)
	q.ready, q.inputs = true, map[string]prompt{}
	in := &sent{}
	q.stdin = in
	written := func(want ...string) {
		t.Helper()
		var got []string
		for _, l := range in.lines {
			var line userLineRead
			if err := json.Unmarshal(l, &line); err != nil {
				t.Fatal(err)
			}
			got = append(got, line.Message.Content)
			q.lifecycle(lifecycleLine{CommandUUID: line.UUID, State: "started"})
		}
		in.lines = nil
		if !slices.Equal(got, want) {
			t.Errorf("written %q, want %q", got, want)
		}
	}
	for _, text := range []string{"one", "two", "/cost", "/compact now", "three", "four"} {
		if err := q.Push(t.Context(), provider.Input{ID: text, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	q.End()
	written("one", "two") // both may be taken into one turn
	q.result(resultLine{})
	written("/cost")
	q.result(resultLine{Result: "$1"})
	written("/compact now")
	if in.closed {
		t.Error("the input was closed before the last prompts")
	}
	q.result(resultLine{})
	written("three", "four")
	if !in.closed {
		t.Error("the input stays open")
	}
}

type userLineRead struct {
	UUID    string `json:"uuid"`
	Message struct {
		Content string `json:"content"`
	} `json:"message"`
}
