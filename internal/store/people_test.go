package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
)

const actor = "cli:local"

// second is another agent group beside the first one.
func (f *first) second(t testing.TB) id.AgentGroup {
	t.Helper()
	run := firstRun()
	run.Folder, run.PlatformID, run.AgentName = "second", "cli:second", "Andy"
	g, err := f.Bootstrap(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The order of spec/host.md section 2.2, every standing towards two agents.
func TestStanding(t *testing.T) {
	t.Parallel()
	f := setup(t)
	other := f.second(t)
	must := func(_ bool, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(f.AddUser(t.Context(), actor, "cli:known", "Kim"))
	must(f.AddMember(t.Context(), actor, "cli:member", f.group))
	must(f.GrantRole(t.Context(), actor, Grant{User: "cli:scoped", Role: RoleAdmin, Group: f.group}))
	must(f.GrantRole(t.Context(), actor, Grant{User: "cli:global", Role: RoleAdmin}))
	must(f.AddMember(t.Context(), actor, "cli:global", f.group))
	for _, c := range []struct {
		user          id.User
		here, there   Standing
		access, admin bool // here
	}{
		{"cli:local", AsOwner, AsOwner, true, true},
		{"cli:global", AsGlobalAdmin, AsGlobalAdmin, true, true},
		{"cli:scoped", AsGroupAdmin, NotMember, true, true},
		{"cli:member", AsMember, NotMember, true, false},
		{"cli:known", NotMember, NotMember, false, false},
		{"cli:nobody", UnknownUser, UnknownUser, false, false},
		{"", UnknownUser, UnknownUser, false, false},
	} {
		here, err := f.Standing(t.Context(), c.user, f.group)
		there, err2 := f.Standing(t.Context(), c.user, other)
		if err := errors.Join(err, err2); err != nil || here != c.here || there != c.there || here.Access() != c.access || here.Admin() != c.admin {
			t.Errorf("%q: %q and %q, %v", c.user, here, there, err)
		}
		// The statement of the router says the same.
		all, err := f.Candidates(t.Context(), Lookup{Chat: f.chat, Sender: c.user, MessageID: "m"})
		if err != nil || len(all) != 1 || all[0].Standing != c.here || all[0].AgentName != "Nano" || all[0].Engaged || all[0].Seen != "" {
			t.Errorf("%q as a candidate: %+v, %v", c.user, all, err)
		}
	}
	if Standing("boss").Access() || Standing("").Admin() {
		t.Error("a standing that nobody knows gives rights")
	}
}

func TestRolesAndMembersAreIdempotentAndAudited(t *testing.T) {
	t.Parallel()
	f := setup(t)
	grants := []Grant{{User: "cli:a", Role: RoleAdmin}, {User: "cli:a", Role: RoleAdmin, Group: f.group}, {User: "cli:b", Role: RoleOwner}}
	for _, want := range []bool{true, false} {
		for _, g := range grants {
			if changed, err := f.GrantRole(t.Context(), actor, g); err != nil || changed != want {
				t.Errorf("grant %+v: %v %v", g, changed, err)
			}
		}
		if changed, err := f.AddMember(t.Context(), actor, "cli:c", f.group); err != nil || changed != want {
			t.Errorf("member: %v %v", changed, err)
		}
	}
	all, err := f.Grants(t.Context())
	if err != nil || len(all) != 4 || all[0].Role != RoleOwner || all[3].Group != f.group || all[3].By != actor {
		t.Errorf("grants %+v %v", all, err)
	}
	for _, g := range grants[:2] {
		if err := f.RevokeRole(t.Context(), actor, g); err != nil {
			t.Error(err)
		}
		if err := f.RevokeRole(t.Context(), actor, g); !errors.Is(err, ErrNotFound) {
			t.Errorf("revoked twice: %v", err)
		}
	}
	if err := f.RevokeRole(t.Context(), actor, grants[2]); err != nil {
		t.Error(err)
	}
	if err := f.RevokeRole(t.Context(), actor, Grant{User: "cli:local", Role: RoleOwner}); !errors.Is(err, ErrLastOwner) {
		t.Errorf("the last owner: %v", err)
	}
	if err := f.RemoveMember(t.Context(), actor, "cli:c", f.group); err != nil {
		t.Error(err)
	}
	if err := f.RemoveMember(t.Context(), actor, "cli:c", f.group); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	var field *FieldError
	for _, g := range []Grant{{User: "cli:a", Role: "god"}, {User: "cli:a", Role: RoleOwner, Group: f.group}, {User: "a", Role: RoleAdmin}, {User: "cli:a:b", Role: RoleAdmin}} {
		if _, err := f.GrantRole(t.Context(), actor, g); !errors.As(err, &field) {
			t.Errorf("%+v: %v", g, err)
		}
	}
	if _, err := f.AddMember(t.Context(), actor, "x", f.group); !errors.As(err, &field) {
		t.Errorf("member without prefix: %v", err)
	}
	if _, err := f.AddUser(t.Context(), actor, "x", ""); !errors.As(err, &field) {
		t.Errorf("user without prefix: %v", err)
	}
	if _, err := f.AddMember(t.Context(), actor, "cli:c", "ag-nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("member of nothing: %v", err)
	}
	if _, err := f.GrantRole(t.Context(), actor, Grant{User: "cli:a", Role: RoleAdmin, Group: "ag-nobody"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("admin of nothing: %v", err)
	}
	entries, err := f.AuditTail(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	if d := cmp.Diff([]string{"role.grant", "role.grant", "role.grant", "member.add", "role.revoke", "role.revoke", "role.revoke", "member.remove"}, actions); d != "" {
		t.Errorf("audit (-want +got):\n%s", d)
	}
}

// W57: a name follows the platform; an empty one is none.
func TestW57NamesOfUsersAreRefreshed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	see := func(n int, name string) {
		t.Helper()
		if _, err := f.Accept(t.Context(), []Message{{Instance: "cli", PlatformID: "cli:local", PlatformMessageID: fmt.Sprint(n), AgentGroupID: f.group,
			RowID: fmt.Sprint("msg-", n), SessionID: f.session.ID, SenderID: "cli:kim", SenderName: name, Trigger: true}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct{ name, want string }{{"Kim", "Kim"}, {"", "Kim"}, {"Kim Lee", "Kim Lee"}} {
		see(i, c.name)
		if u, err := f.User(t.Context(), "cli:kim"); err != nil || u.DisplayName != c.want {
			t.Errorf("%+v %v", u, err)
		}
	}
	if all, err := f.Users(t.Context(), "", 10); err != nil || len(all) != 2 {
		t.Errorf("users %+v %v", all, err)
	}
	if all, err := f.Users(t.Context(), "cli:kim", 10); err != nil || len(all) != 1 {
		t.Errorf("users behind %+v %v", all, err)
	}
}

func TestWiringsAndDestinations(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var moved []id.AgentGroup
	f.OnDestinations(func(g id.AgentGroup) { moved = append(moved, g) })
	chat, err := f.RegisterChat(t.Context(), MessagingGroup{ChannelType: "web", Instance: "web", PlatformID: "web:1", Name: "Terminal", UnknownSenderPolicy: Strict, IsGroup: true})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.RegisterChat(t.Context(), MessagingGroup{ChannelType: "web", Instance: "web", PlatformID: "web:1", UnknownSenderPolicy: Public}); err != nil || again != chat {
		t.Errorf("a concurrent creator: %+v %v", again, err)
	}
	off := false
	w := Wiring{MessagingGroupID: chat.ID, AgentGroupID: f.group, EngageMode: EngageSticky, SenderScope: ScopeKnown, IgnoredMessagePolicy: IgnoredAccumulate,
		SessionMode: ModePerThread, Threads: &off, Priority: 3}
	stored, changed, err := f.AddWiring(t.Context(), actor, w)
	if err != nil || !changed || stored.Priority != 3 || stored.Threads == nil || *stored.Threads {
		t.Fatalf("%+v %v %v", stored, changed, err)
	}
	w.Priority = 9
	if again, changed, err := f.AddWiring(t.Context(), actor, w); err != nil || changed || again.ID != stored.ID || again.Priority != 3 {
		t.Errorf("wired twice: %+v %v %v", again, changed, err)
	}
	// The name of the chat is taken in the agent's namespace: a suffix.
	names := func() (out []string) {
		all, err := f.Destinations(t.Context(), f.group)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			out = append(out, d.Name)
		}
		return out
	}
	if d := cmp.Diff([]string{"terminal", "terminal-2"}, names()); d != "" {
		t.Error(d)
	}
	stored.Priority, stored.Threads = 5, nil
	for _, want := range []bool{true, false} {
		if changed, err := f.UpdateWiring(t.Context(), actor, stored); err != nil || changed != want {
			t.Errorf("update: %v %v", changed, err)
		}
	}
	if got, err := f.Wiring(t.Context(), stored.ID); err != nil || got.Priority != 5 || got.Threads != nil {
		t.Errorf("%+v %v", got, err)
	}
	var field *FieldError
	for _, change := range []func(*Wiring){
		func(w *Wiring) { w.EngageMode = "always" }, func(w *Wiring) { w.SenderScope = "" }, func(w *Wiring) { w.IgnoredMessagePolicy = "keep" },
		func(w *Wiring) { w.SessionMode = "x" }, func(w *Wiring) { w.EngagePattern = "(" }, func(w *Wiring) { w.EngagePattern = strings.Repeat("x", maxPattern+1) },
	} {
		bad := stored
		change(&bad)
		if _, err := f.UpdateWiring(t.Context(), actor, bad); !errors.As(err, &field) {
			t.Errorf("taken: %+v %v", bad, err)
		}
		if _, _, err := f.AddWiring(t.Context(), actor, bad); !errors.As(err, &field) {
			t.Errorf("taken: %+v %v", bad, err)
		}
	}
	if changed, err := f.AddDestination(t.Context(), actor, f.group, "team", Target{Chat: chat.ID}); err != nil || !changed {
		t.Errorf("%v %v", changed, err)
	}
	if changed, err := f.AddDestination(t.Context(), actor, f.group, "team", Target{Chat: chat.ID}); err != nil || changed {
		t.Errorf("again: %v %v", changed, err)
	}
	var conflict *ConflictError
	if _, err := f.AddDestination(t.Context(), actor, f.group, "team", Target{Chat: f.chat.ID}); !errors.As(err, &conflict) {
		t.Errorf("another target: %v", err)
	}
	for _, name := range []string{"", "Team", "a b", "-a", strings.Repeat("x", 65)} {
		if _, err := f.AddDestination(t.Context(), actor, f.group, name, Target{Chat: chat.ID}); !errors.As(err, &field) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := f.AddDestination(t.Context(), actor, f.group, "x", Target{Agent: "ag-nobody"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such agent: %v", err)
	}
	before := len(moved)
	if err := f.RemoveDestination(t.Context(), actor, f.group, "team"); err != nil || len(moved) != before+1 {
		t.Errorf("%v, told %d times", err, len(moved)-before)
	}
	if err := f.RemoveDestination(t.Context(), actor, f.group, "team"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if err := f.RemoveWiring(t.Context(), actor, stored.ID); err != nil {
		t.Error(err)
	}
	if err := f.RemoveWiring(t.Context(), actor, stored.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if slices.ContainsFunc(moved, func(g id.AgentGroup) bool { return g != f.group }) || len(moved) < 5 {
		t.Errorf("told of %v", moved)
	}
}

func TestUpdateChat(t *testing.T) {
	t.Parallel()
	f := setup(t)
	name, policy, denied := "Family", Public, true
	for _, want := range []bool{true, false} {
		g, changed, err := f.UpdateChat(t.Context(), actor, f.chat.ID, ChatChange{Name: &name, Policy: &policy, Denied: &denied})
		if err != nil || changed != want || g.Name != name || g.UnknownSenderPolicy != Public || !g.Denied {
			t.Errorf("%+v %v %v", g, changed, err)
		}
	}
	bad := UnknownSenderPolicy("open")
	var field *FieldError
	if _, _, err := f.UpdateChat(t.Context(), actor, f.chat.ID, ChatChange{Policy: &bad}); !errors.As(err, &field) {
		t.Error(err)
	}
	if _, _, err := f.UpdateChat(t.Context(), actor, "mg-nobody", ChatChange{Name: &name}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := f.RegisterChat(t.Context(), MessagingGroup{ChannelType: "x", Instance: "x", PlatformID: "x:1", UnknownSenderPolicy: bad}); !errors.As(err, &field) {
		t.Error(err)
	}
	if err := f.KeepDirectChat(t.Context(), "cli:local", f.chat); err != nil {
		t.Error(err)
	}
	if g, err := f.DirectChat(t.Context(), "cli:local", "cli"); err != nil || g.ID != f.chat.ID {
		t.Errorf("%+v %v", g, err)
	}
	if _, err := f.DirectChat(t.Context(), "cli:local", "web"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// W63: drops are counted by chat, sender and reason.
func TestW63Dropped(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, d := range []Dropped{{User: "x:a", Name: "A", Reason: "one"}, {User: "x:a", Reason: "one"}, {User: "x:a", Reason: "two"}, {User: "x:b", Reason: "one"}, {Reason: "one"}} {
		d.Instance, d.PlatformID = "x", "x:1"
		if err := f.NoteDropped(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	all, err := f.DroppedMessages(t.Context(), 10)
	if err != nil || len(all) != 4 {
		t.Fatalf("%+v %v", all, err)
	}
	for _, d := range all {
		if want := d.User == "x:a" && d.Reason == "one"; want != (d.Count == 2) || want && d.Name != "A" {
			t.Errorf("%+v", d)
		}
	}
}

// A name in a pattern is literal and ends as a word. RTE-4.
func TestRTE4Pattern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name, text string
		want                bool
	}{
		{"@{name}", "C++ (bot)", "hi @C++ (bot) now", true}, {"@{name}", "C++ (bot)", "hi @CCC bot", false},
		{"@{name}", "Andy", "@someone @Andy what now?", true}, {"@{name}", "Andy", "@Andyman", false}, {"@{name}", "Andy", "@Andy", true},
		{"@{name}", "Zoë", "@Zoëman", false}, {"@{name}", "Zoë", "hello @Zoë!", true}, {"@{name}, do", "Andy", "@Andy, do it", true},
		{"^{name}: .*x", "a.c", "abc: x", false}, {"^{name}: .*x", "a.c", "a.c: x", true}, {"hello", "Andy", "well hello", true},
	} {
		re, err := CompilePattern(c.pattern, c.name)
		if err != nil || re.MatchString(c.text) != c.want {
			t.Errorf("%q of %q on %q: want %v, %v", c.pattern, c.name, c.text, c.want, err)
		}
	}
	if re, err := CompilePattern("(", "x"); err == nil {
		t.Errorf("%v", re)
	}
}

// SES-5: a second process never gets a home that has one, and one key is one session, so a message has one sandbox.
func TestSES5OneSessionPerKeyAndOneHostPerHome(t *testing.T) {
	t.Parallel()
	f := setup(t)
	lock, err := AcquireLock(f.home, "v1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	var locked *LockedError
	if _, err := AcquireLock(f.home, "v1"); !errors.As(err, &locked) {
		t.Errorf("a second host: %v", err)
	}
	var all sync.Map
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			s, err := f.ResolveSession(t.Context(), "one", f.group, f.chat.ID, "")
			if err != nil {
				t.Error(err)
			}
			all.Store(s.ID, true)
		})
	}
	wait.Wait()
	n := 0
	all.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d sessions of one key", n)
	}
}

// A closed session is not revived: its key makes a new one.
func TestClosedSessionIsNotRevived(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if _, err := f.w.ExecContext(t.Context(), `UPDATE sessions SET status = 'closed' WHERE id = ?`, f.session.ID); err != nil {
		t.Fatal(err)
	}
	s, err := f.ResolveSession(t.Context(), "key", f.group, f.chat.ID, "")
	if err != nil || s.ID == f.session.ID {
		t.Errorf("%+v %v", s, err)
	}
}

// A context row that engages at a replay is pending from then on, under its new row; a pending one stays.
func TestAcceptPromotes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := Message{Instance: "cli", PlatformID: "cli:local", PlatformMessageID: "1", AgentGroupID: f.group, RowID: "msg-context", SessionID: f.session.ID}
	engaged := m
	engaged.RowID, engaged.Trigger = "msg-engaged", true
	for _, m := range []Message{m, engaged, m} {
		if _, err := f.Accept(t.Context(), []Message{m}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.MessageByRow(t.Context(), "msg-engaged"); err != nil || got.State != "pending" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := f.Ingest(t.Context(), Ingest{Ends: []End{{RowID: "msg-engaged", State: channel.Answered}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Accept(t.Context(), []Message{engaged}); err != nil {
		t.Fatal(err)
	}
	if got, err := f.MessageByRow(t.Context(), "msg-engaged"); err != nil || got.State != channel.Answered {
		t.Errorf("%+v %v", got, err)
	}
}

// Cost per message does not depend on sessions and history: every table that grows is reached over an index.
func TestRoutingReadsUseIndexes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for name, q := range map[string]string{
		"candidates": sqlCandidates, "session by key": `SELECT ` + sessionColumns + ` FROM sessions WHERE session_key = ? AND status = 'active'`,
		"cards of a chat":       `SELECT ` + cardColumns + ` WHERE c.instance = ? AND c.platform_id = ?`,
		"approvals of a sender": `SELECT ` + approvalColumns + ` FROM approvals a WHERE a.sender_id = ? AND a.action = ?`,
		"approvals of a chat":   `SELECT id FROM approvals WHERE messaging_group_id = ? AND action = ? AND done = 0`,
		"open approvals":        `SELECT ` + approvalColumns + ` FROM approvals a WHERE a.done = 0 ORDER BY a.created_at`,
		"chat":                  `SELECT ` + chatColumns + ` FROM messaging_groups WHERE instance = ? AND platform_id = ?`,
	} {
		rows, err := f.r.DB.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+q, "1", "2", "3", "4", "5", "6")
		if err != nil {
			rows, err = f.r.DB.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+q, slices.Repeat([]any{"x"}, strings.Count(q, "?"))...)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		type step struct {
			id, parent, unused int
			what               string
		}
		plan, err := collect(rows, "plan", func(s *step) []any { return []any{&s.id, &s.parent, &s.unused, &s.what} })
		if err != nil || len(plan) == 0 {
			t.Fatal(name, plan, err)
		}
		for _, p := range plan {
			if strings.Contains(p.what, "SCAN") && p.what != "SCAN CONSTANT ROW" && !strings.Contains(p.what, "approvals_open") {
				t.Errorf("%s walks a table: %s", name, p.what)
			}
		}
	}
}
