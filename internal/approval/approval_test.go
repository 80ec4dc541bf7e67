package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// adapter is a channel that opens conversations as it is told.
type adapter struct {
	info   channel.Info
	status channel.State
	direct func(user string) (channel.Address, error)
}

func (a *adapter) Info() channel.Info                            { return a.info }
func (a *adapter) Run(ctx context.Context, _ channel.Host) error { <-ctx.Done(); return nil }
func (a *adapter) Status() channel.Status                        { return channel.Status{State: a.status} }
func (a *adapter) Deliver(context.Context, channel.Address, channel.Op, string) (channel.Receipt, error) {
	return channel.Receipt{}, nil
}

// opener is an adapter that can open conversations.
type opener struct{ *adapter }

func (o opener) OpenDirect(_ context.Context, user string) (channel.Address, error) {
	return o.direct(user)
}

// bundle is a home with the agents main and other, a wired chat web:team, and a Service whose cards are kept as ledger rows.
type bundle struct {
	*Service
	st          *store.Store
	main, other id.AgentGroup
	team        store.MessagingGroup
	adapters    map[string]channel.Adapter

	mu     sync.Mutex
	now    time.Time
	state  store.LedgerState // of new cards
	shown  []string          // instance platform id: title|text|labels
	ids    []id.Ledger
	closed []string // card number: outcome
	said   []string
	routed []string // message ids, with what the grant says
	fail   func(m channel.Inbound) error
}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), state: store.Sent, adapters: map[string]channel.Adapter{}}
	var err error
	if b.st, err = store.Open(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.st.Close() })
	b.main = b.agent(t, "main", "Nano")
	b.other = b.agent(t, "other", "Otto")
	b.team = b.chat(t, "web:team", true)
	for _, g := range []id.AgentGroup{b.main, b.other} {
		b.role(t, "web:admin-"+map[id.AgentGroup]string{b.main: "main", b.other: "other"}[g], store.RoleAdmin, g)
	}
	b.role(t, "web:chief", store.RoleAdmin, "")
	if _, err := b.st.AddMember(t.Context(), "test", "web:member", b.main); err != nil {
		t.Fatal(err)
	}
	b.channel("web", "web", channel.Connected)
	b.channel("cli", "cli", channel.Connected)
	b.restart()
	return b
}

// restart makes a new Service on the same store, as after a kill.
func (b *bundle) restart() {
	b.Service = New(Options{Store: b.st, Cards: b, Adapters: b.adapters, Replay: b.replay, Log: obs.Discard(), Now: b.clock})
}

func (b *bundle) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bundle) later(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bundle) agent(t testing.TB, folder, name string) id.AgentGroup {
	t.Helper()
	g, err := b.st.Bootstrap(t.Context(), store.First{Owner: "cli:ann", OwnerName: "Ann", AgentName: name, Folder: folder, Provider: "mock", ChannelType: "cli", Instance: "cli",
		PlatformID: "cli:local", DestinationAs: "terminal"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (b *bundle) chat(t testing.TB, platformID string, group bool) store.MessagingGroup {
	t.Helper()
	g, err := b.st.RegisterChat(t.Context(), store.MessagingGroup{ChannelType: "web", Instance: "web", PlatformID: platformID, Name: "Team", IsGroup: group, UnknownSenderPolicy: store.RequestApproval})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (b *bundle) role(t testing.TB, user string, role store.Role, g id.AgentGroup) {
	t.Helper()
	if _, err := b.st.GrantRole(t.Context(), "test", store.Grant{User: id.User(user), Role: role, Group: g}); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) channel(kind, instance string, state channel.State) *adapter {
	a := &adapter{info: channel.Info{Type: kind, Instance: instance}, status: state}
	b.adapters[instance] = a
	return a
}

func (b *bundle) CardID(key string) id.Ledger { return id.Ledger("led-" + key) }

func (b *bundle) ShowCard(ctx context.Context, d store.Destination, key, title, text string, options []mailbox.Option) error {
	row := store.Ledger{ID: b.CardID(key), OutboundID: key, Destination: d, Kind: "notice", Content: []byte("{}"), State: store.Queued}
	fresh, err := b.st.Ingest(ctx, store.Ingest{Rows: []store.Ledger{row}})
	if err != nil || len(fresh) == 0 {
		return err
	}
	labels := make([]string, 0, len(options))
	for _, o := range options {
		labels = append(labels, o.Label)
	}
	b.mu.Lock()
	b.shown = append(b.shown, d.Instance+" "+d.PlatformID+": "+title+"|"+text+"|"+strings.Join(labels, ","))
	b.ids = append(b.ids, row.ID)
	state := b.state
	b.mu.Unlock()
	row.State, row.PlatformMessageID = state, "p-"+key
	return b.st.UpdateLedger(ctx, row)
}

func (b *bundle) CloseCard(_ context.Context, _ store.Destination, card id.Ledger, outcome, value string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = append(b.closed, fmt.Sprintf("%d: %s %s", slices.Index(b.ids, card)+1, outcome, value))
	return nil
}

func (b *bundle) Say(_ context.Context, d store.Destination, key, text string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, d.PlatformID+": "+text)
	return nil
}

func (b *bundle) replay(_ context.Context, instance string, m channel.Inbound, g Grant) error {
	b.mu.Lock()
	fail := b.fail
	b.mu.Unlock()
	if fail != nil {
		if err := fail(m); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	line := m.ID
	for _, a := range g.Members {
		line += " +" + map[id.AgentGroup]string{b.main: "main", b.other: "other"}[a]
	}
	if g.Wiring != nil {
		line += " wired"
	}
	b.routed = append(b.routed, line)
	return nil
}

// message of a stranger in the team's chat.
func message(n, sender, text string) channel.Inbound {
	return channel.Inbound{ID: n, Kind: "chat", Address: channel.Address{PlatformID: "web:team"}, Text: text, Sender: channel.Sender{ID: sender, Name: "Kim"}, Mention: channel.Yes, Group: true}
}

func (b *bundle) hold(t testing.TB, m channel.Inbound, agents ...id.AgentGroup) bool {
	t.Helper()
	r := Request{Action: store.SendersAdmit, Chat: b.team, Agents: agents, Event: m}
	if len(agents) == 0 {
		r.Agents = []id.AgentGroup{b.main}
	}
	return b.request(t, r)
}

func (b *bundle) request(t testing.TB, r Request) bool {
	t.Helper()
	decided, err := b.Hold(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	b.step(t)
	return decided
}

// step does what a running host would do by itself.
func (b *bundle) step(t testing.TB) {
	t.Helper()
	if err := b.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// press is an answer to the card with that number, from 1.
func (b *bundle) press(t testing.TB, n int, who, value string) channel.Verdict {
	t.Helper()
	v := b.pressOnly(t, n, channel.Sender{ID: who}, value)
	b.step(t)
	return v
}

func (b *bundle) pressOnly(t testing.TB, n int, who channel.Sender, value string) channel.Verdict {
	t.Helper()
	c, err := b.st.ApprovalCard(t.Context(), b.ids[n-1])
	if err != nil {
		t.Fatal(err)
	}
	v, mine, err := b.Answer(t.Context(), channel.Info{Type: c.Instance, Instance: c.Instance}, channel.Answer{QuestionID: string(c.ID), Value: value,
		Address: channel.Address{PlatformID: c.PlatformID}, Sender: who})
	if err != nil || !mine {
		t.Fatal(mine, err)
	}
	return v
}

func (b *bundle) only(t testing.TB) store.Approval {
	t.Helper()
	all, err := b.st.Approvals(t.Context(), "", 10)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d approvals, %v", len(all), err)
	}
	return all[0]
}

func (b *bundle) standing(t testing.TB, user string, g id.AgentGroup) store.Standing {
	t.Helper()
	v, err := b.st.Standing(t.Context(), id.User(user), g)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func equal[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}

// One card to the right person: who, where, the first words. More messages make no second card; with the approval all are routed in
// order, once, and only then the sender is a member. The card shows who decided.
func TestStrangerIsLetIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, m := range []channel.Inbound{message("1", "web:kim", "hello\nthere"), message("2", "web:kim", "are you here?"), message("1", "web:kim", "hello\nthere"), message("3", "web:kim", "well")} {
		if b.hold(t, m) {
			t.Error("it was decided, they say")
		}
	}
	equal(t, "cards", b.shown, []string{"web web:admin-main: New sender|`Kim` (`web:kim`) wrote in `Team` (`web:team`) and is not known there:\n\n`hello there`\n\nLet them talk to Nano?|Allow,Deny,Block"})
	if b.standing(t, "web:kim", b.main).Access() {
		t.Error("let in without a decision")
	}
	b.fail = func(channel.Inbound) error {
		if b.standing(t, "web:kim", b.main).Access() {
			t.Error("a member before the held messages are routed")
		}
		return nil
	}
	if v := b.press(t, 1, "web:admin-main", store.ChoiceApprove); v.Kind != channel.Stored {
		t.Errorf("%+v", v)
	}
	b.step(t)
	equal(t, "routed", b.routed, []string{"1 +main", "2 +main", "3 +main"})
	equal(t, "closed", b.closed, []string{"1: Allowed by `web:admin-main`. approve"})
	if b.standing(t, "web:kim", b.main) != store.AsMember || b.standing(t, "web:kim", b.other).Access() {
		t.Error("access is wrong")
	}
	if a := b.only(t); !a.Done || a.DecidedBy != "web:admin-main" || a.Status != store.ApprovalApproved {
		t.Errorf("%+v", a)
	}
}

// A refused stranger: nothing of the messages stays, nobody is asked again for a day, then again; a block lasts.
func TestStrangerIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		choice string
		after  time.Duration
		cards  int // in the end
	}{
		{store.ChoiceReject, 0, 1}, {store.ChoiceReject, 23 * time.Hour, 1}, {store.ChoiceReject, 25 * time.Hour, 2},
		{store.ChoiceBlock, 0, 1}, {store.ChoiceBlock, 1000 * time.Hour, 1},
	} {
		b := setup(t)
		b.hold(t, message("1", "web:kim", "secret words"))
		b.press(t, 1, "cli:ann", c.choice)
		a := b.only(t)
		if n, err := b.st.HeldCount(t.Context(), a.ID); err != nil || n != 0 || a.Status != store.ApprovalRejected {
			t.Errorf("%+v: %d held, %v, %+v", c, n, err, a)
		}
		b.later(c.after)
		if _, err := b.st.Prune(t.Context(), b.clock().Add(-30*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		b.hold(t, message("2", "web:kim", "let me in"))
		if len(b.shown) != c.cards || len(b.routed) != 0 || b.standing(t, "web:kim", b.main) != store.UnknownUser {
			t.Errorf("%+v: cards %q, routed %q", c, b.shown, b.routed)
		}
		b.hold(t, message("3", "web:lee", "I am somebody else"))
		if len(b.shown) != c.cards+1 {
			t.Errorf("%+v: the next stranger got no card", c)
		}
	}
}

// What fails to be routed is tried again where it stopped, also by another host, and what was routed is not routed again. What
// comes meanwhile waits behind it.
func TestRoutingGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := 1; i <= 3; i++ {
		b.hold(t, message(fmt.Sprint(i), "web:kim", "x"))
	}
	broken := true
	b.fail = func(m channel.Inbound) error {
		if broken && m.ID == "2" {
			return errors.New("disk full")
		}
		return nil
	}
	if v := b.pressOnly(t, 1, channel.Sender{ID: "cli:ann"}, store.ChoiceApprove); v.Kind != channel.Stored {
		t.Fatalf("%+v", v)
	}
	if err := b.Work(t.Context()); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Fatal(err)
	}
	equal(t, "routed", b.routed, []string{"1 +main"})
	b.restart()
	if _, err := b.Hold(t.Context(), Request{Action: store.SendersAdmit, Chat: b.team, Agents: []id.AgentGroup{b.main}, Event: message("4", "web:kim", "x")}); err != nil {
		t.Fatal(err)
	}
	broken = false
	b.step(t)
	b.step(t)
	equal(t, "routed", b.routed, []string{"1 +main", "2 +main", "3 +main", "4 +main"})
	if !b.hold(t, message("5", "web:kim", "x")) {
		t.Error("a member's message was held")
	}
	equal(t, "cards", b.closed, []string{"1: Allowed by `Ann` (`cli:ann`). approve"})
}

// A host that is killed after any step leaves nothing undone: the next one asks once, shows the end once.
func TestAHostKilledAnywhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := Request{Action: store.SendersAdmit, Chat: b.team, Agents: []id.AgentGroup{b.main}, Event: message("1", "web:kim", "x")}
	if _, err := b.Hold(t.Context(), r); err != nil { // killed before anybody was asked
		t.Fatal(err)
	}
	b.restart()
	a := b.only(t)
	c := store.ApprovalCard{Approval: a.ID, N: 1, User: "cli:ann", Destination: store.Destination{Instance: "cli", PlatformID: "cli:ann"}, Options: []mailbox.Option{option("Allow", store.ChoiceApprove)}, AskedAt: b.clock()}
	c.ID = b.CardID(cardKey(c))
	if added, err := b.st.AddApprovalCard(t.Context(), c); err != nil || !added { // killed between keeping the card and showing it
		t.Fatal(added, err)
	}
	b.restart()
	b.step(t)
	b.step(t)
	if len(b.shown) != 1 || !strings.HasSuffix(b.shown[0], "|Allow") {
		t.Fatalf("%q", b.shown)
	}
	b.pressOnly(t, 1, channel.Sender{ID: "cli:ann"}, store.ChoiceApprove) // killed right behind the decision
	b.restart()
	b.step(t)
	b.step(t)
	equal(t, "routed", b.routed, []string{"1 +main"})
	equal(t, "closed", b.closed, []string{"1: Allowed by `Ann` (`cli:ann`). approve"})
}

// Two people press at once: one decides, the other is told, and everything happens once.
func TestTwoPressAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold(t, message("1", "web:kim", "x"))
	people := []string{"web:admin-main", "web:chief", "cli:ann"}
	verdicts := make([]channel.Verdict, len(people))
	var wait sync.WaitGroup
	for i, who := range people {
		wait.Go(func() {
			verdicts[i] = b.pressOnly(t, 1, channel.Sender{ID: who}, []string{store.ChoiceApprove, store.ChoiceReject}[i%2])
			if err := b.Work(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	stored := 0
	for _, v := range verdicts {
		if v.Kind == channel.Stored {
			stored++
		} else if !strings.Contains(v.Reason, "decided already") {
			t.Errorf("%+v", v)
		}
	}
	if stored != 1 || len(b.closed) != 1 || len(b.routed) > 1 {
		t.Errorf("%d decided, closed %q, routed %q", stored, b.closed, b.routed)
	}
}

// Agents with the same admins are asked about together, others by themselves; each part is decided alone.
func TestSecondAgentInTheSameChat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	third := b.agent(t, "third", "Trude")
	fourth := b.agent(t, "fourth", "Vera")
	b.hold(t, message("1", "web:kim", "x"), b.main, third, fourth)
	if len(b.shown) != 2 || !strings.HasPrefix(b.shown[0], "web web:admin-main: ") || !strings.Contains(b.shown[0], "talk to Nano?") ||
		!strings.HasPrefix(b.shown[1], "web web:chief: ") || !strings.Contains(b.shown[1], "talk to Trude and Vera?") {
		t.Fatalf("%q", b.shown)
	}
	if v := b.press(t, 2, "web:admin-main", store.ChoiceApprove); v.Reason != notYours {
		t.Errorf("%+v", v)
	}
	b.press(t, 1, "web:admin-main", store.ChoiceReject)
	b.press(t, 2, "web:chief", store.ChoiceApprove)
	if len(b.routed) != 1 || b.standing(t, "web:kim", b.main).Access() || !b.standing(t, "web:kim", third).Access() || !b.standing(t, "web:kim", fourth).Access() {
		t.Errorf("routed %q", b.routed)
	}
	b.hold(t, message("2", "web:kim", "x"), b.other)
	if len(b.shown) != 3 {
		t.Errorf("another agent: %q", b.shown)
	}
}
