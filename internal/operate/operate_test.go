package operate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// host answers status with two live sessions.
type host struct{ sessions []control.SessionStatus }

func (h host) Status(context.Context) (control.Status, error) {
	return control.Status{State: control.HostRunning, PID: 42, Version: "v1", Sandbox: control.SandboxStatus{Kind: "bubblewrap"},
		Provider: control.ProviderStatus{Name: "mock"}, Sessions: h.sessions, Warnings: []string{"a secret of another agent"}}, nil
}

// home is two agents with a chat, a session and a destination each.
type home struct {
	desk       *Desk
	one, other store.Session
}

func newHome(t *testing.T) home {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	session := func(folder, chat string) store.Session {
		group, err := st.Bootstrap(t.Context(), store.First{Owner: "cli:ann", OwnerName: "Ann", AgentName: "Agent " + folder, Folder: folder, Provider: "mock",
			ChannelType: "cli", Instance: "cli", PlatformID: chat, DestinationAs: "to-" + folder})
		if err != nil {
			t.Fatal(err)
		}
		mg, err := st.MessagingGroup(t.Context(), "cli", chat)
		if err != nil {
			t.Fatal(err)
		}
		s, err := st.ResolveSession(t.Context(), folder, group, mg.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	h := home{one: session("one", "cli:one"), other: session("other", "cli:other")}
	running := host{[]control.SessionStatus{{ID: string(h.one.ID), State: "working", Incarnation: 3, Due: 1}, {ID: string(h.other.ID), State: "idle"}}}
	h.desk = New(Commands(st, running, "v1")...)
	return h
}

func (h home) do(c Caller, command string, args map[string]string) control.Frame {
	r := control.AdminRequest{Command: command, Args: map[string]json.RawMessage{}}
	for k, v := range args {
		r.Args[k] = json.RawMessage(v)
	}
	return h.desk.Do(context.Background(), c, "r1", r)
}

// CLI-5: a command that is unknown or not allowed says so. Who asks decides what may be done and what is seen: an agent gets
// its own, the operator everything.
func TestCLI5Scopes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	agent := Caller{Session: h.one}
	for _, c := range []struct {
		command string
		args    map[string]string
		agent   control.Code // of an agent's request; "" is allowed
		sees    int          // rows of an agent; the operator sees twice as many
	}{
		{"groups-list", nil, control.CodeForbidden, 1},
		{"messaging-groups-list", nil, control.CodeForbidden, 1},
		{"sessions-list", nil, "", 1},
		{"session-list", nil, "", 1},
		{"destinations-list", nil, "", 1},
		{"nope", nil, control.CodeInvalid, 0},
		{"tasks-create", map[string]string{"name": `"x"`}, control.CodeInvalid, 0},
		{"groups", nil, control.CodeInvalid, 0},
		{"groups-listing", nil, control.CodeInvalid, 0},
	} {
		f := h.do(agent, c.command, c.args)
		if c.agent != "" {
			if f.OK || f.ID != "r1" || f.Error.Code != c.agent || !strings.Contains(f.Error.Hint, "sessions list") || strings.Contains(f.Error.Hint, "groups list") {
				t.Errorf("agent, %s: %+v %+v", c.command, f, f.Error)
			}
		} else {
			var rows []map[string]string
			if err := json.Unmarshal(f.Data, &rows); err != nil || len(rows) != c.sees || rows[0]["agent"] != "Agent one" || strings.Contains(string(f.Data), "other") {
				t.Errorf("agent, %s: %s, %v", c.command, f.Data, err)
			}
		}
		f = h.do(Caller{}, c.command, c.args)
		if c.sees == 0 {
			if f.OK || f.Error.Code != control.CodeInvalid || f.Error.Message != `unknown command "`+c.command+`"` || !strings.Contains(f.Error.Hint, "known: destinations list, groups list, help") {
				t.Errorf("operator, %s: %+v", c.command, f.Error)
			}
			continue
		}
		var rows []json.RawMessage
		if err := json.Unmarshal(f.Data, &rows); err != nil || len(rows) != 2*c.sees {
			t.Errorf("operator, %s: %s, %v", c.command, f.Data, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	agent := Caller{Session: h.one}
	for _, c := range []struct {
		who     Caller
		command string
		args    map[string]string
		part    string // of data, human or the error
		code    control.Code
	}{
		{Caller{}, "version", nil, `{"host":"v1","protocol":1}`, ""},
		{agent, "version", nil, "host v1", ""},
		{Caller{}, "status", nil, "host running, process 42, version v1\nsandbox bubblewrap, provider mock, 2 live sessions", ""},
		{agent, "status", nil, "agent Agent one, session " + string(h.one.ID) + "\nsandbox bubblewrap, provider mock, working, 1 messages wait", ""},
		{agent, "status", nil, `"incarnation":3`, ""},
		{Caller{}, "sessions-list", nil, `"chat":"to-one","thread":"","state":"working"`, ""},
		{Caller{}, "sessions-list", map[string]string{"limit": "1"}, `"agent":"Agent `, ""},
		{Caller{}, "sessions-list", map[string]string{"limit": `"1"`}, `"agent":"Agent `, ""},
		{Caller{}, "sessions-list", map[string]string{"limit": `"many"`}, "limit: must be a whole number", control.CodeInvalid},
		{Caller{}, "sessions-list", map[string]string{"limit": "0"}, "limit: must be", control.CodeInvalid},
		{Caller{}, "sessions-list", map[string]string{"limit": "true"}, "limit: must be", control.CodeInvalid},
		{Caller{}, "destinations-list", map[string]string{"group": `"other"`}, `"agent":"Agent other","name":"to-other"`, ""},
		{Caller{}, "destinations-list", map[string]string{"group": `"nobody"`}, "there are: one, other", control.CodeNotFound},
		{Caller{}, "destinations-list", map[string]string{"group": "true"}, "group: must be a text", control.CodeInvalid},
		{agent, "destinations-list", map[string]string{"group": `"one"`}, `"name":"to-one"`, ""},
		{agent, "destinations-list", map[string]string{"group": `"other"`}, "own destinations only", control.CodeForbidden},
		{Caller{}, "status", map[string]string{"bogus": "true"}, `"status" does not take --bogus`, control.CodeInvalid},
		{Caller{}, "sessions-list", map[string]string{"bogus": "true"}, "it takes: --limit", control.CodeInvalid},
		{Caller{}, "status-now", nil, `takes nothing behind it, got "now"`, control.CodeInvalid},
		{Caller{}, "", nil, "command: is empty", control.CodeInvalid},
		{Caller{}, strings.Repeat("x", control.MaxCommand+1), nil, "at most 200", control.CodeTooLarge},
		{Caller{}, "status", map[string]string{"a": `"` + strings.Repeat("x", control.MaxArgs) + `"`}, "args: has", control.CodeTooLarge},
		{Caller{}, "help", nil, `{"command":"groups list","flags":"","what":"List the agents of this home"}`, ""},
		{agent, "help-sessions-list", nil, `[{"command":"sessions list","flags":"--limit","what":"List conversations"}]`, ""},
		{agent, "help-groups", nil, `no command begins with "groups"`, control.CodeInvalid},
	} {
		f := h.do(c.who, c.command, c.args)
		text := string(f.Data) + "\n" + f.Human
		var code control.Code
		if f.Error != nil {
			text, code = f.Error.Error(), f.Error.Code
		}
		if f.OK != (c.code == "") || code != c.code || !strings.Contains(text, c.part) {
			t.Errorf("%.40s %.60v: %v, %s; want %q %q", c.command, c.args, f.OK, text, c.code, c.part)
		}
	}
	if f := h.do(agent, "status", nil); strings.Contains(string(f.Data)+f.Human, "secret") || strings.Contains(string(f.Data), string(h.other.ID)) {
		t.Errorf("an agent was told of others: %s", f.Data)
	}
}

// The longest name counts, and the rest is the target with its dashes.
func TestTarget(t *testing.T) {
	t.Parallel()
	var got Args
	run := func(name string) Command {
		return Command{Name: name, Target: "id", Flags: []string{"a-b"}, Run: func(_ context.Context, _ Caller, a Args) (Result, error) {
			got = a
			got.Target = name + "|" + a.Target
			return Result{}, nil
		}}
	}
	d := New(run("tasks"), run("tasks get"), run("tasks get all"))
	for command, want := range map[string]string{
		"tasks-get-t-1-2": "tasks get|t-1-2", "tasks-get": "tasks get|", "tasks-getter": "tasks|getter", "tasks-get-all-x": "tasks get all|x", "task-get-x": "tasks get|x",
	} {
		if f := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: command, Args: map[string]json.RawMessage{"a_b": json.RawMessage("1")}}); !f.OK || got.Target != want {
			t.Errorf("%s: %q, want %q; %+v", command, got.Target, want, f.Error)
		}
		if _, ok := got.values["a-b"]; !ok {
			t.Errorf("%s: a flag with _ was not taken for the same with -", command)
		}
	}
	f := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: "tasks", Args: map[string]json.RawMessage{"a_b": json.RawMessage("1"), "a-b": json.RawMessage("2")}})
	if f.OK || f.Error.Code != control.CodeInvalid {
		t.Errorf("a flag given twice: %+v", f)
	}
}

// Every command says what it does, and what agents may do shows them only their own: a new one is added to this list.
func TestWhatAgentsMayDo(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	want := []string{"destinations list", "help", "sessions list", "status", "version"}
	if diff := cmp.Diff(want, h.desk.names(Caller{Session: store.Session{ID: id.Session("s")}})); diff != "" {
		t.Error(diff)
	}
	for _, c := range h.desk.commands {
		if c.Short == "" || c.Run == nil {
			t.Errorf("%q: incomplete", c.Name)
		}
	}
}

// CLI-7: an agent cannot raise its own scope, whatever it names itself in a request.
func TestCLI7ScopeIsNotInTheRequest(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, args := range []map[string]string{
		{"cli_scope": `"global"`}, {"cli-scope": `"global"`}, {"scope": `"operator"`}, {"caller": `"host"`}, {"session": `"` + string(h.other.ID) + `"`},
		{"agent_group_id": `"` + string(h.other.AgentGroupID) + `"`},
	} {
		for _, command := range []string{"groups-list", "sessions-list", "groups-config-update"} {
			if f := h.do(Caller{Session: h.one}, command, args); f.OK || f.Error == nil || f.Error.Exit() == 0 {
				t.Errorf("%s %v: %+v", command, args, f)
			}
		}
	}
}
