package operate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

// directory is a host with one channel that has threads and one that has none.
type directory struct{ asked *RouteEvent }

func (directory) Operator() string             { return "cli:ann" }
func (directory) Threads(instance string) bool { return instance == "web" }
func (d directory) RouteTest(_ context.Context, e RouteEvent) (RouteResult, error) {
	*d.asked = e
	return RouteResult{Outcome: "1 wirings decide", Wirings: []RouteChoice{{Wiring: "mga-1", Agent: "Nano", Action: "engage", Reason: "every message engages"}}}, nil
}

// office is a home with a group chat that has threads, and the commands about people and chats.
type office struct {
	*store.Store
	desk  *Desk
	chat  store.MessagingGroup
	asked RouteEvent
}

func newOffice(t *testing.T) *office {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if _, err := st.Bootstrap(t.Context(), store.First{Owner: "cli:ann", OwnerName: "Ann", AgentName: "Nano", Folder: "main", Provider: "mock",
		ChannelType: "cli", Instance: "cli", PlatformID: "cli:local", DestinationAs: "terminal"}); err != nil {
		t.Fatal(err)
	}
	o := &office{Store: st}
	if o.chat, err = st.RegisterChat(t.Context(), store.MessagingGroup{ChannelType: "web", Instance: "web", PlatformID: "web:team", Name: "Team", IsGroup: true,
		UnknownSenderPolicy: store.RequestApproval}); err != nil {
		t.Fatal(err)
	}
	d := directory{&o.asked}
	o.desk = New(append(People(st, d), Chats(st, d)...)...)
	return o
}

// do runs a line of `ncl`: words, then --flag=value.
func (o *office) do(t *testing.T, c Caller, line string) control.Frame {
	t.Helper()
	r := control.AdminRequest{Args: map[string]json.RawMessage{}}
	var words []string
	for _, w := range strings.Fields(line) {
		name, value, ok := strings.Cut(strings.TrimPrefix(w, "--"), "=")
		switch {
		case !strings.HasPrefix(w, "--"):
			words = append(words, w)
		case ok:
			b, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			r.Args[name] = b
		default:
			r.Args[name] = json.RawMessage("true")
		}
	}
	r.Command = strings.Join(words, "-")
	return o.desk.Do(t.Context(), c, "r1", r)
}

// A story in order: what each command says, or the code and field of its error.
func TestPeopleAndChats(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	chat := string(o.chat.ID)
	for _, c := range []struct {
		line string
		code control.Code
		want string // in the words, the data or the error
	}{
		{"users add web:kim --name=Kim", "", "web:kim is known"},
		{"users add web:kim", "", "it was so before"},
		{"users add kim", control.CodeInvalid, "user"},
		{"users add web:a:b", control.CodeInvalid, "%3A"},
		{"users get web:kim", "", "member of nothing"},
		{"users get web:nobody", control.CodeNotFound, "web:nobody"},
		{"users get", control.CodeInvalid, "missing"},
		{"users get web:kim --id=web:kim", control.CodeInvalid, "twice"},
		{"users list", "", `"web:kim"`},
		{"members add --user=web:kim --group=main", "", "web:kim may talk to main"},
		{"members add --user=web:kim --group=Nano", "", "it was so before"},
		{"members add --user=web:kim", control.CodeInvalid, "group"},
		{"members add --user=web:kim --group=nowhere", control.CodeNotFound, "there are: main"},
		{"members list --group=main", "", `"user":"web:kim"`},
		{"users get web:kim", "", "member of main"},
		{"roles grant --user=web:lee --role=admin", control.CodeInvalid, "--scope global"},
		{"roles grant --user=web:lee --role=admin --scope=global --group=main", control.CodeInvalid, "group"},
		{"roles grant --user=web:lee --role=admin --scope=group", control.CodeInvalid, "which agent"},
		{"roles grant --user=web:lee --role=admin --scope=all", control.CodeInvalid, "scope"},
		{"roles grant --user=web:lee --role=god --scope=global", control.CodeInvalid, "owner, admin"},
		{"roles grant --user=web:lee --role=owner --group=main", control.CodeInvalid, "everywhere"},
		{"roles grant --user=web:lee --role=admin --group=main", "", "web:lee is admin of main"},
		{"roles grant --user=web:lee --role=admin --group=main", "", "it was so before"},
		{"roles grant --user=web:kim --role=admin --scope=global", "", "web:kim is admin everywhere"},
		{"members remove --user=web:kim --group=main", "", "still has access: admin everywhere"},
		{"members remove --user=web:kim --group=main", control.CodeNotFound, "web:kim"},
		{"roles list", "", `"scope":"group","agent":"main"`},
		{"roles revoke --user=web:kim --role=admin --scope=global", "", "no longer admin everywhere"},
		{"roles revoke --user=web:kim --role=admin --scope=global", control.CodeNotFound, "admin"},
		{"roles revoke --user=cli:ann --role=owner", control.CodeConflict, "last owner"},
		{"messaging-groups get " + chat, "", `"wirings":[]`},
		{"messaging-groups get --platform-id=web:team", "", `"is_group":true`},
		{"messaging-groups get --platform-id=web:other", control.CodeNotFound, "web:other"},
		{"messaging-groups get mg-x", control.CodeNotFound, "mg-x"},
		{"messaging-groups get", control.CodeInvalid, "chat"},
		{"messaging-groups update " + chat, control.CodeInvalid, "nothing to change"},
		{"messaging-groups update " + chat + " --unknown-sender-policy=open", control.CodeInvalid, "unknown-sender-policy"},
		{"messaging-groups update " + chat + " --unknown-sender-policy=public", "", "everybody who writes there"},
		{"messaging-groups update " + chat + " --denied=true", "", "denied"},
		{"messaging-groups update " + chat + " --denied=perhaps", control.CodeInvalid, "denied"},
		{"wirings create --group=main", control.CodeInvalid, "chat"},
		{"wirings create --chat=" + chat, control.CodeInvalid, "group"},
		{"wirings create --chat=" + chat + " --group=main --engage-pattern=(", control.CodeInvalid, "engage-pattern"},
		{"wirings create --chat=" + chat + " --group=main --engage-mode=mention --engage-pattern=x", control.CodeInvalid, "engage-pattern"},
		{"wirings create --chat=" + chat + " --group=main --session-mode=odd", control.CodeInvalid, "session-mode"},
		{"wirings create --chat=" + chat + " --group=main --priority=5", "", "mention-sticky"},
		{"wirings create --platform-id=web:team --channel-type=web --group=main", "", "its values stay"},
		{"wirings create --platform-id=web:team --channel-type=tel --group=main", control.CodeInvalid, "platform-id"},
		{"wirings create --platform-id=cli:local --group=main --threads", control.CodeInvalid, "no threads"},
		{"wirings list --group=main", "", `"engage_mode":"mention-sticky"`},
		{"destinations add --group=main --name=team --chat=" + chat, "", "main may write to web:team as team"},
		{"destinations add --group=main --name=self --agent=main", "", "as self"},
		{"destinations add --group=main --name=self", control.CodeInvalid, "chat"},
		{"destinations add --group=main --name=team --platform-id=cli:local", control.CodeConflict, "taken"},
		{"destinations add --group=main --name=A+B --chat=" + chat, control.CodeInvalid, "name"},
		{"destinations remove --group=main --name=self", "", "no longer"},
		{"destinations remove --group=main --name=self", control.CodeNotFound, "self"},
		{"dropped list", "", "[]"},
		{"dropped list --limit=0", control.CodeInvalid, "limit"},
		{"route test --chat=" + chat + " --user=web:kim --text=hello --mention", "", "Nano (mga-1): engage, every message engages"},
		{"route test --platform-id=web:new --user=web:kim --text=hello --bot", "", "1 wirings decide"},
		{"route test --chat=" + chat + " --text=hello", control.CodeInvalid, "user"},
		{"wirings delete mga-x", control.CodeNotFound, "mga-x"},
	} {
		f := o.do(t, Caller{}, c.line)
		said := f.Human + string(f.Data)
		var code control.Code
		if f.Error != nil {
			code, said = f.Error.Code, f.Error.Field+" "+f.Error.Message+" "+f.Error.Hint
		}
		if code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q %s; want %q %s", c.line, code, said, c.code, c.want)
		}
		// From inside a sandbox nothing of this may be done.
		if f := o.do(t, Caller{Session: store.Session{ID: "sess-1"}}, c.line); f.Error == nil || f.Error.Code != control.CodeForbidden {
			t.Errorf("an agent may %s: %+v", c.line, f)
		}
	}
	if o.asked.PlatformID != "web:new" || !o.asked.Bot || o.asked.Group {
		t.Errorf("asked %+v", o.asked)
	}
	entries, err := o.AuditTail(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range entries {
		actions = append(actions, e.Action)
		if e.Actor != "cli:ann" {
			t.Errorf("%+v", e)
		}
	}
	const want = "user.add member.add role.grant role.grant member.remove role.revoke chat.update chat.update wiring.add destination.add destination.remove"
	if got := strings.Join(actions, " "); got != want {
		t.Errorf("audit:\n%s\nwant\n%s", got, want)
	}
}

// operator.md acceptance 23: a wiring makes its destination; mention-sticky without threads is mention; values change one by one.
func TestWirings(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	f := o.do(t, Caller{}, "wirings create --platform-id=web:team --group=main --threads=false --sender-scope=known --session-mode=agent-shared")
	if !strings.Contains(f.Human, "mention-sticky is mention") {
		t.Errorf("%+v", f)
	}
	all, err := o.Wirings(t.Context(), o.chat.ID)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	w := all[0]
	if w.EngageMode != store.EngageMention || w.Threads == nil || *w.Threads || w.SenderScope != store.ScopeKnown || w.SessionMode != store.ModeAgentShared {
		t.Errorf("%+v", w)
	}
	if may, err := o.MaySend(t.Context(), w.AgentGroupID, o.chat.ID); err != nil || !may {
		t.Errorf("the agent may answer: %v %v", may, err)
	}
	for _, c := range []struct {
		flags string
		ok    bool
	}{{"--threads=inherit --engage-mode=mention-sticky", true}, {"--engage-mode=pattern --engage-pattern=@{name}", true}, {"--priority=-3", true},
		{"--engage-mode=odd", false}, {"--engage-pattern=[", false}, {"", false}, {"--threads=perhaps", false}, {"--priority=many", false}} {
		if f := o.do(t, Caller{}, "wirings update "+string(w.ID)+" "+c.flags); f.OK != c.ok {
			t.Errorf("%s: %+v", c.flags, f)
		}
	}
	if w, err = o.Wiring(t.Context(), w.ID); err != nil || w.Threads != nil || w.EngageMode != store.EngagePattern || w.EngagePattern != "@{name}" || w.Priority != -3 || w.SenderScope != store.ScopeKnown {
		t.Errorf("%+v %v", w, err)
	}
	if f := o.do(t, Caller{}, "wirings delete "+string(w.ID)); !f.OK {
		t.Errorf("%+v", f)
	}
}
