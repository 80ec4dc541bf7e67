package host

import (
	"context"
	"io"
	"testing"
	"time"

	"nanoclaw/internal/approval"
	"nanoclaw/internal/channel"
	"nanoclaw/internal/delivery"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/route"
	"nanoclaw/internal/store"
	"nanoclaw/internal/testkit/chatnet"
)

// memory is the inbox of all sessions: message ids in the order in which they came.
type memory struct{ got []string }

func (m *memory) Put(_ context.Context, _ store.Session, rows ...mailbox.InRow) error {
	for _, r := range rows {
		m.got = append(m.got, r.PlatformMessageID)
	}
	return nil
}
func (m *memory) Attach(context.Context, store.Session, string, string, io.Reader, int64) (string, error) {
	return "", nil
}
func (m *memory) Wake(id.Session)                         {}
func (m *memory) Settle(context.Context, ...string) error { return nil }

// gate is router, delivery and approvals of a home with the platform plain, wired as a host does, without sessions.
type gate struct {
	*Host
	group id.AgentGroup
	plain *chatnet.Platform
	in    *memory
	asked asked
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{plain: chatnet.New("plain", channel.Caps{}, 0), in: &memory{}}
	h := &Host{log: obs.Discard()}
	h.store, g.group = firstHome(t)
	h.adapters = []channel.Adapter{g.plain}
	by := map[string]channel.Adapter{"plain": g.plain}
	h.delivery = delivery.New(delivery.Options{Store: h.store, Adapters: by, Log: h.log, Put: g.in.Put, Closed: func(id.Session) {}})
	h.approvals = approval.New(approval.Options{Store: h.store, Cards: h.delivery, Adapters: by, Replay: h.replay, Log: h.log})
	h.router = route.New(route.Options{Store: h.store, Inbox: g.in, Ends: g.in, Voice: h.delivery, Keeper: keeper{h.approvals}, Log: h.log})
	if _, err := h.store.GrantRole(t.Context(), "test", store.Grant{User: "plain:ann", Role: store.RoleOwner}); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() { end(); h.delivery.Wait() })
	if err := h.delivery.Start(ctx); err != nil {
		t.Fatal(err)
	}
	g.Host, g.asked = h, asked{h.approvals, h.delivery}
	return g
}

func (g *gate) event(t *testing.T, n, user, place, text string) channel.Verdict {
	t.Helper()
	m := channel.Inbound{ID: n, Kind: "chat", Address: channel.Address{PlatformID: place}, Text: text, Sender: channel.Sender{ID: user}, Mention: channel.Yes, At: time.Now()}
	d := desk{info: g.plain.Info(), router: g.router, answers: g.asked}
	v, err := d.inbound(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.approvals.Work(t.Context()); err != nil {
		t.Fatal(err)
	}
	return v
}

func (g *gate) posts(t *testing.T, place string, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := g.plain.Await(ctx, place, func(s chatnet.State) bool { return len(s.Posts) >= n })
	if err != nil {
		t.Fatal(err)
	}
	return s.Texts()
}

// A direct message of a stranger, from the card in a chat without buttons to the first message after it; each message gets to the
// agent once and in order.
func TestUnknownChatIsConnected(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, n := range []string{"m1", "m2"} {
		if v := g.event(t, n, "plain:kim", "plain:kim", "hello"); v.Kind != channel.Dropped {
			t.Errorf("%+v", v)
		}
	}
	want := "New direct message\n\n`plain:kim` wrote to me in `plain:kim`, where no agent listens:\n\n`hello`\n\nConnect them to an agent?\n\n1. Connect to Nano\n2. No\n\nAnswer with a number."
	if got := g.posts(t, "plain:ann", 1); len(got) != 1 || got[0] != want {
		t.Fatalf("%q", got)
	}
	if v := g.event(t, "a1", "plain:ann", "plain:ann", "1"); v.Kind != channel.Consumed {
		t.Fatalf("%+v", v)
	}
	if got := g.posts(t, "plain:ann", 2)[1]; got != "New direct message\n\n`plain:kim` wrote to me in `plain:kim`, where no agent listens:\n\nConnected to Nano by `plain:ann`." {
		t.Errorf("%q", got)
	}
	if v := g.event(t, "m3", "plain:kim", "plain:kim", "again"); v.Kind != channel.Stored {
		t.Errorf("%+v", v)
	}
	if len(g.in.got) != 3 || g.in.got[0] != "m1" || g.in.got[1] != "m2" || g.in.got[2] != "m3" {
		t.Errorf("%q", g.in.got)
	}
	if v := g.event(t, "a1", "plain:ann", "plain:ann", "1"); v.Kind != channel.Consumed {
		t.Errorf("the same message again: %+v", v)
	}
	if v := g.event(t, "m2", "plain:kim", "plain:kim", "hello"); v.Kind != channel.Duplicate {
		t.Errorf("a held message again: %+v", v)
	}
}

// A host that is killed between routing a held message and noting it: the next one routes the rest and that one not again.
func TestHostKilledWhileRouting(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, n := range []string{"m1", "m2"} {
		g.event(t, n, "plain:kim", "plain:kim", "hello")
	}
	all, err := g.store.Approvals(t.Context(), "", 10)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if _, err := g.Decide(t.Context(), all[0].ID, store.ChoiceConnect+string(g.group), "host:ann"); err != nil {
		t.Fatal(err)
	}
	w := store.Wiring{ID: "mga-x", MessagingGroupID: all[0].Chat, AgentGroupID: g.group, EngageMode: store.EngagePattern, SenderScope: store.ScopeKnown,
		IgnoredMessagePolicy: store.IgnoredAccumulate, SessionMode: store.ModeShared}
	m := channel.Inbound{ID: "m1", Kind: "chat", Address: channel.Address{PlatformID: "plain:kim"}, Text: "hello", Sender: channel.Sender{ID: "plain:kim"}, Mention: channel.Yes}
	if err := g.replay(t.Context(), "plain", m, approval.Grant{Members: []id.AgentGroup{g.group}, Wiring: &w}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.approvals.Work(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.in.got) != 2 || g.in.got[0] != "m1" || g.in.got[1] != "m2" {
		t.Errorf("%q", g.in.got)
	}
}

// A number is an answer only if one thing is asked: a card of the host beside a question of an agent makes it an ordinary message.
func TestNumberWithACardAndAQuestion(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	ctx := t.Context()
	g.event(t, "m1", "plain:kim", "plain:kim", "hello")
	g.posts(t, "plain:ann", 1)
	chat, err := g.store.MessagingGroup(ctx, "plain", "plain:ann")
	if err != nil {
		t.Fatal(err)
	}
	sess, err := g.store.ResolveSession(ctx, "key", g.group, chat.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	row := store.Ledger{ID: "led-q", SessionID: sess.ID, OutboundID: "q", Kind: "chat", Content: []byte("{}"), State: store.Sent, Destination: store.Destination{Instance: "plain", PlatformID: "plain:ann"},
		Question: &store.Question{QuestionID: "q", Asked: "plain:ann", Title: "T", Text: "x", Options: []mailbox.Option{{Label: "Yes", Value: "y"}}, ExpiresAt: time.Now().Add(time.Hour)}}
	if _, err := g.store.Ingest(ctx, store.Ingest{Session: sess.ID, Rows: []store.Ledger{row}}); err != nil {
		t.Fatal(err)
	}
	if v := g.event(t, "a1", "plain:ann", "plain:ann", "1"); v.Kind == channel.Consumed {
		t.Error("it was taken as an answer to one of two")
	}
	v, err := g.asked.Answer(ctx, g.plain.Info(), channel.Answer{QuestionID: "led-q", Value: "y", Address: channel.Address{PlatformID: "plain:ann"}, Sender: channel.Sender{ID: "plain:ann"}})
	if err != nil || v.Kind != channel.Stored {
		t.Errorf("the question, pressed: %+v, %v", v, err)
	}
	if v := g.event(t, "a2", "plain:ann", "plain:ann", "2"); v.Kind != channel.Consumed {
		t.Errorf("the card alone: %+v", v)
	}
	if chat, err := g.store.MessagingGroup(ctx, "plain", "plain:kim"); err != nil || !chat.Denied {
		t.Errorf("%+v %v", chat, err)
	}
}

// A stranger who is declined: a polite word there, a notice to the owner, no card; once.
func TestDeclinedStranger(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	ctx := t.Context()
	chat, err := g.store.RegisterChat(ctx, store.MessagingGroup{ChannelType: "plain", Instance: "plain", PlatformID: "plain:kim", UnknownSenderPolicy: store.DeclineNotify})
	if err != nil {
		t.Fatal(err)
	}
	w := store.Wiring{MessagingGroupID: chat.ID, AgentGroupID: g.group, EngageMode: store.EngagePattern, SenderScope: store.ScopeAll, IgnoredMessagePolicy: store.IgnoredDrop, SessionMode: store.ModeShared}
	if _, _, err := g.store.AddWiring(ctx, "test", w); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"m1", "m2"} {
		g.event(t, n, "plain:kim", "plain:kim", "hello")
	}
	if got := g.posts(t, "plain:ann", 1); len(got) != 1 || got[0] != "`plain:kim` wrote in `plain:kim` and was told that I do not know them." {
		t.Errorf("%q", got)
	}
	if got := g.posts(t, "plain:kim", 1); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if all, err := g.store.Approvals(ctx, "", 10); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
}
