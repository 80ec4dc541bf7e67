package route

import (
	"fmt"
	"strings"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// Whether an event is stored, by how it is stored already, by what its wiring does with it now and by whether it is a repetition of
// the platform or a replay after a decision. Columns: repetition, replay. s stored, d duplicate, . dropped.
func TestReplayTable(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"new/engage":      "ss",
		"new/keep":        "ss",
		"new/drop":        "..",
		"context/engage":  "ds",
		"context/keep":    "dd",
		"context/drop":    "dd",
		"pending/engage":  "dd",
		"pending/keep":    "dd",
		"pending/drop":    "dd",
		"answered/engage": "dd",
		"answered/keep":   "dd",
		"answered/drop":   "dd",
		"silent/engage":   "dd",
		"silent/keep":     "dd",
		"silent/drop":     "dd",
		"failed/engage":   "dd",
		"failed/keep":     "dd",
		"failed/drop":     "dd",
		"refused/engage":  "dd",
		"refused/keep":    "dd",
		"refused/drop":    "dd",
		"dead/engage":     "dd",
		"dead/keep":       "dd",
		"dead/drop":       "dd",
	}
	b := setup(t)
	n := 0
	for _, line := range all(t, table, []string{"new", "context", "pending", "answered", "silent", "failed", "refused", "dead"}, []string{"engage", "keep", "drop"}) {
		k := strings.Split(line, "/")
		var got []byte
		for _, replay := range []bool{false, true} {
			n++
			place := fmt.Sprint("web:replay", n)
			w := b.wire(t, "main", place, true, store.Public, nil)
			m := say("1", "hello", func(m *channel.Inbound) { m.Address.PlatformID = place })
			if k[0] != "new" {
				if k[0] == "context" {
					w.EngageMode, w.IgnoredMessagePolicy = store.EngageMention, store.IgnoredAccumulate
					b.set(t, w)
				}
				b.in(t, m)
			}
			if k[0] != "new" && k[0] != "context" && k[0] != "pending" {
				end := store.End{RowID: id.Inbound("web", place, "1", w.AgentGroupID), State: channel.SettleState(k[0])}
				if _, err := b.st.Ingest(t.Context(), store.Ingest{Ends: []store.End{end}}); err != nil {
					t.Fatal(err)
				}
			}
			w.EngageMode, w.IgnoredMessagePolicy = store.EngagePattern, store.IgnoredDrop
			switch k[1] {
			case "keep":
				w.EngageMode, w.IgnoredMessagePolicy = store.EngageMention, store.IgnoredAccumulate
			case "drop":
				w.EngageMode = store.EngageMention
			}
			b.set(t, w)
			v, err := b.r.route(t.Context(), web, m, Grant{}, replay)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, map[channel.VerdictKind]byte{channel.Stored: 's', channel.Duplicate: 'd', channel.Dropped: '.'}[v.Kind])
		}
		cells(t, line, table[line], got)
	}
}

func (b *bundle) set(t *testing.T, w store.Wiring) {
	t.Helper()
	if _, err := b.st.UpdateWiring(t.Context(), "cli:ann", w); err != nil {
		t.Fatal(err)
	}
}

// A grant lets a sender in, and gives a chat its wiring, before the central store does: for the agents it names and no other, for
// talking and not for commands.
func TestReplayWithAGrant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wire(t, "main", team, true, store.RequestApproval, nil)
	b.wire(t, "second", team, true, store.RequestApproval, nil)
	main := b.agent(t, "main")
	m := say("1", "hello")
	b.in(t, m)
	b.inbox.said = map[string]bool{}
	if v, err := b.r.Replay(t.Context(), web, m, Grant{Members: []id.AgentGroup{main}}); err != nil || v.Kind != channel.Stored {
		t.Fatalf("%+v %v", v, err)
	}
	if rows := b.texts("hello"); len(rows) != 1 || rows[0].ID != id.Inbound("web", team, "1", main) {
		t.Errorf("%+v", rows)
	}
	if last := b.inbox.held[len(b.inbox.held)-1]; len(last.Agents) != 1 || last.Agents[0] != b.agent(t, "second") {
		t.Errorf("the other agent: %+v", last)
	}
	if v, err := b.r.Replay(t.Context(), web, say("2", "/clear"), Grant{Members: []id.AgentGroup{main}}); err != nil || v.Kind != channel.Dropped {
		t.Errorf("an admin's command: %+v %v", v, err)
	}

	fresh := say("3", "@Nano hi", mention, func(m *channel.Inbound) { m.Address.PlatformID = "web:fresh" })
	b.in(t, fresh)
	chat, err := b.st.MessagingGroup(t.Context(), "web", "web:fresh")
	if err != nil {
		t.Fatal(err)
	}
	w := store.Wiring{ID: "mga-x", MessagingGroupID: chat.ID, AgentGroupID: main, EngageMode: store.EngageMention, SenderScope: store.ScopeKnown,
		IgnoredMessagePolicy: store.IgnoredAccumulate, SessionMode: store.ModeShared}
	for i, want := range []channel.VerdictKind{channel.Stored, channel.Duplicate} {
		if v, err := b.r.Replay(t.Context(), web, fresh, Grant{Members: []id.AgentGroup{main}, Wiring: &w}); err != nil || v.Kind != want {
			t.Errorf("%d: %+v %v", i, v, err)
		}
	}
	if all, err := b.st.Wirings(t.Context(), chat.ID); err != nil || len(all) != 0 {
		t.Errorf("the wiring was stored: %+v %v", all, err)
	}
	if v, err := b.r.Replay(t.Context(), web, fresh, Grant{Wiring: &w}); err != nil || v.Kind != channel.Duplicate {
		t.Errorf("without membership: %+v %v", v, err)
	}
}

// What is decided while an event is on its way to be held is routed again, and stored once.
func TestHeldEventThatIsDecidedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.wire(t, "main", team, true, store.RequestApproval, nil)
	b.inbox.decide = func(Held) bool {
		b.member(t, "web:kim", w.AgentGroupID)
		return true
	}
	for i, want := range []channel.VerdictKind{channel.Stored, channel.Duplicate} {
		if v := b.in(t, say("1", "hello")); v.Kind != want {
			t.Errorf("%d: %+v", i, v)
		}
	}
	if rows := b.texts("hello"); len(rows) != 1 || !rows[0].Trigger {
		t.Errorf("%+v", rows)
	}
	b.inbox.decide = func(Held) bool { return true } // nothing is decided in truth: the platform has to try again
	if v, err := b.r.Inbound(t.Context(), web, say("2", "x", func(m *channel.Inbound) { m.Sender.ID = "web:lee" })); err == nil {
		t.Errorf("acknowledged: %+v", v)
	}
}
