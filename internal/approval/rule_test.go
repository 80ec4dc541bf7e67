package approval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

func (b *bundle) audits(t *testing.T, action string) (actors []string) {
	t.Helper()
	tail, err := b.st.AuditTail(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range tail {
		if e.Action == action {
			actors = append(actors, e.Actor)
		}
	}
	return actors
}

// APR-1, W40: somebody who may not decide changes nothing: the card stays, the try is noted. The right is looked at when the answer
// comes: whoever lost it since the card was shown has none.
func TestAPR1OnlyThoseWhoMay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold(t, message("1", "web:kim", "x"))
	for _, who := range []string{"web:kim", "web:member", "web:admin-other"} {
		if v := b.press(t, 1, who, store.ChoiceApprove); v.Kind != channel.Dropped || v.Reason != notYours {
			t.Errorf("%s: %+v", who, v)
		}
	}
	if err := b.st.RevokeRole(t.Context(), "test", store.Grant{User: "web:admin-main", Role: store.RoleAdmin, Group: b.main}); err != nil {
		t.Fatal(err)
	}
	if v := b.press(t, 1, "web:admin-main", store.ChoiceApprove); v.Reason != notYours {
		t.Errorf("whoever was asked and is admin no more: %+v", v)
	}
	equal(t, "noted", b.audits(t, "approval.refused"), []string{"web:kim", "web:member", "web:admin-other", "web:admin-main"})
	if a := b.only(t); a.Status != store.ApprovalPending || len(b.closed) != 0 {
		t.Errorf("%+v, closed %q", a, b.closed)
	}
	if v := b.press(t, 1, "cli:ann", store.ChoiceApprove); v.Kind != channel.Stored {
		t.Errorf("the owner: %+v", v)
	}
	equal(t, "decided", b.audits(t, "approval.approved"), []string{"cli:ann"})
	equal(t, "members", b.audits(t, "member.add"), []string{"test", "cli:ann"})
}

// A card is answered where it was shown: its id is worth nothing elsewhere.
func TestCardInAnotherChat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold(t, message("1", "web:kim", "x"))
	for _, c := range []struct {
		instance string
		at       channel.Address
		number   int
		want     string
	}{
		{"web", channel.Address{PlatformID: "web:team"}, 0, notKnown}, {"web2", channel.Address{PlatformID: "web:admin-main"}, 0, notKnown},
		{"web", channel.Address{PlatformID: "web:admin-main", ThreadID: "t"}, 0, notKnown}, {"web", channel.Address{PlatformID: "web:admin-main"}, 4, noSuchOption},
		{"web", channel.Address{PlatformID: "web:admin-main"}, -1, noSuchOption}, {"web", channel.Address{PlatformID: "web:admin-main"}, 1, ""},
	} {
		v, mine, err := b.Answer(t.Context(), channel.Info{Type: "web", Instance: c.instance}, channel.Answer{QuestionID: string(b.ids[0]), Value: "maybe", Number: c.number,
			Address: c.at, Sender: channel.Sender{ID: "cli:ann"}})
		if err != nil || !mine || v.Reason != c.want || c.want == "" && v.Kind != channel.Stored {
			t.Errorf("%+v: %+v %v", c, v, err)
		}
	}
	if _, mine, err := b.Answer(t.Context(), channel.Info{}, channel.Answer{QuestionID: "led-of-a-question"}); mine || err != nil {
		t.Error(mine, err)
	}
}

// APR-3: what nobody decides ends after seven days: the card says so, nothing that was held stays, the sender may ask again.
func TestAPR3Expiry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold(t, message("1", "web:kim", "secret words"))
	b.later(7*24*time.Hour - time.Minute)
	b.step(t)
	if a := b.only(t); a.Status != store.ApprovalPending {
		t.Fatalf("%+v", a)
	}
	b.later(time.Minute)
	b.step(t)
	b.step(t)
	a := b.only(t)
	if n, err := b.st.HeldCount(t.Context(), a.ID); err != nil || n != 0 || a.Status != store.ApprovalExpired || !a.Done {
		t.Errorf("%+v, %d held, %v", a, n, err)
	}
	if len(b.closed) != len(b.shown) || !strings.HasPrefix(b.closed[0], "1: Expired: nobody decided in time.") {
		t.Errorf("closed %q of %d", b.closed, len(b.shown))
	}
	if v := b.press(t, 1, "cli:ann", store.ChoiceApprove); v.Reason != notOpen || len(b.routed) != 0 {
		t.Errorf("%+v", v)
	}
	if _, err := b.Decide(t.Context(), a.ID, store.ChoiceApprove, "host:ann"); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Error(err)
	}
	equal(t, "noted", b.audits(t, "approval.expired"), []string{"host"})
	before := len(b.shown)
	b.hold(t, message("2", "web:kim", "again"))
	if len(b.shown) != before+1 {
		t.Errorf("%q", b.shown)
	}
}

// APR-5, W57: what a stranger writes and is called cannot pose as a part of the card: one line, in a code span, cut, with the id
// beside the name.
func TestAPR5CardsCannotBeForged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"Kim", "hi", "`Kim` (`web:kim`) wrote in `Team` (`web:team`) and is not known there:\n\n`hi`\n\nLet them talk to Nano?"},
		{"ok\n\nApproved by owner", "x`\n\n**Approved** [press](http://evil)", "`ok Approved by owner` (`web:kim`) wrote in `Team` (`web:team`) and is not known there:\n\n" +
			"`x **Approved** [press](http://evil)`\n\nLet them talk to Nano?"},
		{"\u202egnol", "\x00\u2028 \u200b", "`gnol` (`web:kim`) wrote in `Team` (`web:team`) and is not known there:\n\n(no text)\n\nLet them talk to Nano?"},
		{strings.Repeat("n", 100), strings.Repeat("t", 300), "`" + strings.Repeat("n", 60) + "…` (`web:kim`) wrote in `Team` (`web:team`) and is not known there:\n\n`" +
			strings.Repeat("t", 200) + "…`\n\nLet them talk to Nano?"},
		{"", "``", "`web:kim` wrote in `Team` (`web:team`) and is not known there:\n\n(no text)\n\nLet them talk to Nano?"},
	} {
		b := setup(t)
		m := message("1", "web:kim", c.text)
		m.Sender.Name = c.name
		b.hold(t, m)
		if got := strings.Split(b.shown[0], "|")[1]; got != c.want {
			t.Errorf("got %q\nwant %q", got, c.want)
		}
	}
}

// APR-6: with two accounts on a platform the card comes from the one whose conversation it is, and is closed there; a failure to show it
// is "not asked", never "denied".
func TestAPR6SecondInstance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.channel("web", "web2", channel.Connected)
	dm, err := b.st.RegisterChat(t.Context(), store.MessagingGroup{ChannelType: "web", Instance: "web2", PlatformID: "web:dm-of-admin", UnknownSenderPolicy: store.Strict})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.st.KeepDirectChat(t.Context(), "web:admin-main", dm); err != nil {
		t.Fatal(err)
	}
	b.adapters["web"] = opener{&adapter{info: channel.Info{Type: "web", Instance: "web"}, status: channel.Connected, direct: func(string) (channel.Address, error) {
		return channel.Address{}, errors.New("never met")
	}}}
	b.state = store.Refused
	b.hold(t, message("1", "web:kim", "x"))
	if !strings.HasPrefix(b.shown[0], "web2 web:dm-of-admin: ") {
		t.Errorf("%q", b.shown)
	}
	if a := b.only(t); a.Status != store.ApprovalPending {
		t.Errorf("%+v", a)
	}
	b.state = store.Sent
	b.step(t) // the next one is asked at once
	if len(b.shown) != 2 || !strings.HasPrefix(b.shown[1], "web2 web:chief: ") {
		t.Errorf("%q", b.shown)
	}
}

// APR-7: a restart denies nothing: what waits goes on to wait, its card counts.
func TestAPR7RestartDeniesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold(t, message("1", "web:kim", "x"))
	b.restart()
	b.step(t)
	if a := b.only(t); a.Status != store.ApprovalPending || len(b.shown) != 1 || len(b.closed) != 0 {
		t.Errorf("%+v, shown %q, closed %q", a, b.shown, b.closed)
	}
	if v := b.press(t, 1, "web:admin-main", store.ChoiceApprove); v.Kind != channel.Stored || len(b.routed) != 1 {
		t.Errorf("%+v, routed %q", v, b.routed)
	}
}

// APR-11: one admin who is away blocks nothing: after a day the next one is asked too, then the owner; all cards count, and all of them
// show the end. The operator at the machine needs none.
func TestAPR11NextPersonIsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold(t, message("1", "web:kim", "x"))
	for day := 1; day <= 4; day++ {
		b.later(24*time.Hour - time.Second)
		b.step(t)
		if len(b.shown) != min(day, 3) {
			t.Fatalf("shortly before the end of day %d: %q", day, b.shown)
		}
		b.later(time.Second)
		b.step(t)
	}
	who := make([]string, 0, 3)
	for _, s := range b.shown {
		who = append(who, strings.SplitN(s, ": ", 2)[0])
	}
	equal(t, "asked", who, []string{"web web:admin-main", "web web:chief", "cli cli:ann"})
	if changed, err := b.Decide(t.Context(), b.only(t).ID, store.ChoiceApprove, "host:ann"); err != nil || !changed {
		t.Fatal(changed, err)
	}
	b.step(t)
	slices.Sort(b.closed)
	equal(t, "closed", b.closed, []string{"1: Allowed by `host:ann`. approve", "2: Allowed by `host:ann`. approve", "3: Allowed by `host:ann`. approve"})
	if changed, err := b.Decide(t.Context(), b.only(t).ID, store.ChoiceApprove, "host:ann"); err != nil || changed {
		t.Error("again:", changed, err)
	}
	var conflict *store.ConflictError
	if _, err := b.Decide(t.Context(), b.only(t).ID, store.ChoiceReject, "host:ann"); !errors.As(err, &conflict) {
		t.Error("otherwise:", err)
	}
}

// APR-12, W59: a card of before a restart that counts no more says so and changes nothing.
func TestAPR12DeadCards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold(t, message("1", "web:kim", "x"))
	b.later(25 * time.Hour)
	b.step(t)
	b.press(t, 2, "web:chief", store.ChoiceReject)
	b.restart()
	if v := b.press(t, 1, "web:admin-main", store.ChoiceApprove); v.Kind != channel.Dropped || v.Reason != "it is decided already: Denied by `web:chief`." {
		t.Errorf("%+v", v)
	}
	if a := b.only(t); a.Status != store.ApprovalRejected || len(b.routed) != 0 {
		t.Errorf("%+v, routed %q", a, b.routed)
	}
}

// W35: of a held message's attachments the description is kept, and nothing is opened.
func TestW35HeldAttachments(t *testing.T) {
	t.Parallel()
	m := message("1", "web:kim", "look")
	m.Attachments = []channel.Attachment{{Name: "a.pdf", MimeType: "application/pdf", Kind: "file", Size: 7}}
	m.ReplyTo, m.At = &channel.Quote{ID: "0", Sender: "Lee", Text: "show me"}, time.Date(2026, 5, 4, 11, 0, 0, 0, time.UTC)
	raw, err := encode(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(raw)
	if err != nil || fmt.Sprintf("%+v", got.Attachments) != fmt.Sprintf("%+v", m.Attachments) || *got.ReplyTo != *m.ReplyTo || !got.At.Equal(m.At) ||
		got.Text != m.Text || got.Sender != m.Sender || got.Mention != m.Mention || got.Group != m.Group || got.Address != m.Address {
		t.Errorf("%+v, %v", got, err)
	}
}

// W35, W54: what strangers can make a home keep and ask is bounded.
func TestW54ManyStrangers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := func(n, who string) {
		t.Helper()
		if _, err := b.Hold(t.Context(), Request{Action: store.SendersAdmit, Chat: b.team, Agents: []id.AgentGroup{b.main}, Event: message(n, who, "hi")}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range limits().PerHour + 5 {
		hold(fmt.Sprint("m", i), fmt.Sprint("web:stranger", i))
	}
	b.step(t)
	if len(b.shown) != limits().PerHour {
		t.Errorf("asked %d times within an hour", len(b.shown))
	}
	for i := range limits().Open {
		b.later(3 * time.Minute)
		hold(fmt.Sprint("n", i), fmt.Sprint("web:other", i))
	}
	open, err := b.st.OpenApprovals(t.Context(), 1000)
	if err != nil || len(open) != limits().Open {
		t.Errorf("%d are open, %v", len(open), err)
	}
	b = setup(t)
	for i := range limits().Messages + 5 {
		hold(fmt.Sprint(i), "web:kim")
	}
	if n, err := b.st.HeldCount(t.Context(), b.only(t).ID); err != nil || n != limits().Messages {
		t.Errorf("%d messages, %v", n, err)
	}
	b = setup(t)
	for i := range 5 {
		b.hold(t, message(fmt.Sprint(i), "web:kim", strings.Repeat("x", limits().Bytes/3)))
	}
	if n, err := b.st.HeldCount(t.Context(), b.only(t).ID); err != nil || n != 2 {
		t.Errorf("%d large messages, %v", n, err)
	}
}

// W48: whoever connects a chat is an admin of the agent that it is connected to; an admin of another one cannot.
func TestW48ConnectNeedsTheTarget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.request(t, Request{Action: store.ChannelsRegister, Chat: b.team, Event: message("1", "web:kim", "@Nano hi")})
	if v := b.press(t, 1, "web:admin-main", store.ChoiceConnect+string(b.other)); v.Reason != notYours {
		t.Errorf("another agent: %+v", v)
	}
	if v := b.press(t, 1, "web:admin-main", store.ChoiceReject); v.Reason != notYours {
		t.Errorf("no: %+v", v)
	}
	if v := b.press(t, 1, "web:admin-main", store.ChoiceConnect+string(b.main)); v.Kind != channel.Stored {
		t.Errorf("the own agent: %+v", v)
	}
}

// An unknown chat: one card to an owner or admin of all agents, whoever writes there; connecting routes what was held, in order, with
// the sender who came first let in; then the wiring is there, as the kind of chat wants it.
func TestChatIsConnected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		group, threads bool
		title          string
		mode           store.EngageMode
		pattern        string
	}{{true, true, "New chat", store.EngageSticky, ""}, {true, false, "New chat", store.EngageMention, ""}, {false, false, "New direct message", store.EngagePattern, "."},
		{false, true, "New direct message", store.EngagePattern, "."}} {
		b := setup(t)
		b.adapters["web"].(*adapter).info.Caps.Threads = c.threads
		chat := b.chat(t, "web:fresh", c.group)
		for _, m := range []channel.Inbound{message("1", "web:kim", "@Nano hi"), message("2", "web:lee", "@Nano me too"), message("3", "web:kim", "?")} {
			if b.request(t, Request{Action: store.ChannelsRegister, Chat: chat, Event: m}) {
				t.Error("decided already")
			}
		}
		if len(b.shown) != 1 || !strings.HasPrefix(b.shown[0], "web web:chief: "+c.title+"|`Kim` (`web:kim`) wrote ") || !strings.HasSuffix(b.shown[0], "|Connect to Nano,Connect to Otto,No") {
			t.Fatalf("%q", b.shown)
		}
		b.fail = func(channel.Inbound) error {
			if all, err := b.st.Wirings(t.Context(), chat.ID); err != nil || len(all) != 0 {
				t.Errorf("wired before the held messages are routed: %+v %v", all, err)
			}
			return nil
		}
		if v := b.press(t, 1, "cli:ann", store.ChoiceConnect+string(b.other)); v.Kind != channel.Stored {
			t.Fatalf("%+v", v)
		}
		equal(t, "routed", b.routed, []string{"1 +other wired", "2 wired", "3 +other wired"})
		equal(t, "closed", b.closed, []string{"1: Connected to Otto by `Ann` (`cli:ann`). connect:" + string(b.other)})
		all, err := b.st.Wirings(t.Context(), chat.ID)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v %v", all, err)
		}
		w := all[0]
		want := store.Wiring{ID: w.ID, MessagingGroupID: chat.ID, AgentGroupID: b.other, EngageMode: c.mode, EngagePattern: c.pattern, SenderScope: store.ScopeKnown,
			IgnoredMessagePolicy: store.IgnoredAccumulate, SessionMode: store.ModeShared}
		if w != want {
			t.Errorf("%+v\nwant %+v", w, want)
		}
		if b.standing(t, "web:kim", b.other) != store.AsMember || b.standing(t, "web:lee", b.other).Access() {
			t.Error("access is wrong")
		}
		if may, err := b.st.MaySend(t.Context(), b.other, chat.ID); err != nil || !may {
			t.Error("no destination:", may, err)
		}
		if !b.request(t, Request{Action: store.ChannelsRegister, Chat: chat, Event: message("4", "web:kim", "x")}) {
			t.Error("a wired chat was held")
		}
	}
}

// A chat that is rejected is denied and silent; an owner who connected the chat by hand meanwhile is not overruled.
func TestChatIsRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := Request{Action: store.ChannelsRegister, Chat: b.team, Event: message("1", "web:kim", "@Nano hi")}
	b.request(t, r)
	b.press(t, 1, "web:chief", store.ChoiceReject)
	chat, err := b.st.MessagingGroupByID(t.Context(), b.team.ID)
	if err != nil || !chat.Denied {
		t.Errorf("%+v %v", chat, err)
	}
	r.Event.ID = "2"
	if b.request(t, r) || len(b.shown) != 1 || len(b.routed) != 0 {
		t.Errorf("%q", b.shown)
	}
	equal(t, "closed", b.closed, []string{"1: Denied by `web:chief`. reject"})

	by := b.chat(t, "web:by-hand", true)
	b.request(t, Request{Action: store.ChannelsRegister, Chat: by, Event: message("3", "web:kim", "@Nano hi")})
	w := store.Wiring{MessagingGroupID: by.ID, AgentGroupID: b.main, EngageMode: store.EngagePattern, SenderScope: store.ScopeAll, IgnoredMessagePolicy: store.IgnoredDrop, SessionMode: store.ModeShared}
	if _, _, err := b.st.AddWiring(t.Context(), "test", w); err != nil {
		t.Fatal(err)
	}
	if v := b.press(t, 2, "cli:ann", store.ChoiceConnect+string(b.main)); v.Kind != channel.Stored || len(b.routed) != 1 {
		t.Errorf("%+v, routed %q", v, b.routed)
	}
	if all, err := b.st.Wirings(t.Context(), by.ID); err != nil || len(all) != 1 || all[0].SenderScope != store.ScopeAll {
		t.Errorf("%+v %v", all, err)
	}
}

// More agents than a card has room for: the next card has the others, the old one counts no more, and each says which agent is meant.
func TestManyAgents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 16 {
		b.agent(t, fmt.Sprint("folder", i), []string{fmt.Sprint("Agent", i), "Twin"}[min(i/14, 1)])
	}
	b.request(t, Request{Action: store.ChannelsRegister, Chat: b.team, Event: message("1", "web:kim", "@Nano hi")})
	for i, want := range []string{"Connect to Agent0,Connect to Agent1,Connect to Agent10,Connect to Agent11,Connect to Agent12,Connect to Agent13,Connect to Agent2,Connect to Agent3,Other agents…,No",
		"Connect to Agent4,Connect to Agent5,Connect to Agent6,Connect to Agent7,Connect to Agent8,Connect to Agent9,Connect to Nano,Connect to Otto,Other agents…,No",
		"Connect to Twin (folder14),Connect to Twin (folder15),No"} {
		if len(b.shown) != i+1 || !strings.HasSuffix(b.shown[i], "|"+want) {
			t.Fatalf("card %d: %q", i+1, b.shown)
		}
		if i == 2 {
			break
		}
		if v := b.press(t, i+1, "web:chief", more); v.Kind != channel.Stored {
			t.Fatalf("%+v", v)
		}
		if v := b.press(t, i+1, "web:chief", more); v.Reason != replaced {
			t.Errorf("twice: %+v", v)
		}
	}
	old, err := b.st.ApprovalCard(t.Context(), b.ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if v := b.press(t, 1, "web:chief", old.Options[0].Value); v.Reason != replaced || len(b.routed) != 0 {
		t.Errorf("an old card: %+v", v)
	}
	c, err := b.st.ApprovalCard(t.Context(), b.ids[2])
	if err != nil {
		t.Fatal(err)
	}
	if v := b.press(t, 3, "web:chief", c.Options[1].Value); v.Kind != channel.Stored || len(b.routed) != 1 {
		t.Errorf("%+v", v)
	}
	if got := b.only(t); len(got.Agents) != 1 || store.ChoiceConnect+string(got.Agents[0]) != c.Options[1].Value {
		t.Errorf("%+v", got)
	}
}

// Who is asked: admins of the agent, of all agents, owners; on the channel of the chat rather than elsewhere, where it is connected
// rather than where not; where the platform finds them, or under their own id; once found it is kept.
func TestWhoIsAsked(t *testing.T) {
	t.Parallel()
	no := errors.New("blocked the bot")
	for name, c := range map[string]struct {
		web    channel.State
		direct map[string]string // what the platform opens; absent: its channel cannot open
		want   string            // empty: nobody
	}{
		"the agent's admin":                 {channel.Connected, nil, "web web:admin-main"},
		"opened by the platform":            {channel.Connected, map[string]string{"web:admin-main": "web:D1"}, "web web:D1"},
		"the first cannot be reached":       {channel.Connected, map[string]string{"web:chief": "web:D2"}, "web web:D2"},
		"nobody can on the channel":         {channel.Connected, map[string]string{}, "cli cli:ann"},
		"the channel is down":               {channel.Reconnecting, nil, "cli cli:ann"},
		"reachable by a down channel alone": {channel.Reconnecting, nil, "web web:admin-main"},
		"nobody at all":                     {channel.Connected, map[string]string{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			calls := 0
			a := b.channel("web", "web", c.web)
			if c.direct != nil {
				a.direct = func(user string) (channel.Address, error) {
					calls++
					if at, ok := c.direct[user]; ok {
						return channel.Address{PlatformID: at}, nil
					}
					return channel.Address{}, no
				}
				b.adapters["web"] = opener{a}
			}
			if c.want == "" || strings.Contains(name, "alone") {
				delete(b.adapters, "cli")
			}
			b.hold(t, message("1", "web:kim", "x"))
			b.hold(t, message("2", "web:lee", "x"))
			var got string
			if len(b.shown) > 0 {
				got = strings.SplitN(b.shown[0], ": ", 2)[0]
			}
			if got != c.want || c.want != "" && !strings.HasPrefix(b.shown[1], c.want+": ") {
				t.Errorf("got %q, want %q twice: %q", got, c.want, b.shown)
			}
			if strings.HasPrefix(c.want, "web web:D1") && calls != 1 {
				t.Errorf("the platform was asked %d times", calls)
			}
			if dm, err := b.st.MessagingGroup(t.Context(), "web", "web:D1"); err == nil && (dm.IsGroup || dm.UnknownSenderPolicy != store.Strict) {
				t.Errorf("%+v", dm)
			}
		})
	}
}

// A decision that is written: number, label or value, from somebody who may, while one card is open there; the same message again is
// the same answer.
func TestWrittenDecisions(t *testing.T) {
	t.Parallel()
	web := channel.Info{Type: "web", Instance: "web"}
	for name, c := range map[string]struct {
		who, text string
		cards     int
		others    int
		taken     bool
	}{
		"number": {"web:admin-main", "1", 1, 0, true}, "label": {"web:admin-main", "allow", 1, 0, true}, "value": {"cli:ann", "approve", 1, 0, true},
		"other words": {"web:admin-main", "who is that?", 1, 0, false}, "a number too high": {"web:admin-main", "4", 1, 0, false},
		"somebody else": {"web:member", "1", 1, 0, false}, "two cards": {"web:admin-main", "1", 2, 0, false}, "a question beside it": {"web:admin-main", "1", 1, 1, false},
		"no card": {"web:admin-main", "1", 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			for i := range c.cards {
				b.hold(t, message("1", fmt.Sprint("web:kim", i), "x"))
			}
			m := message("answer", c.who, c.text)
			m.Address.PlatformID = "web:admin-main"
			for range 2 {
				taken, err := b.AnswerText(t.Context(), web, m, c.others)
				if err != nil || taken != c.taken {
					t.Fatal(taken, err)
				}
				b.step(t)
			}
			if (len(b.routed) == 1) != c.taken {
				t.Errorf("routed %q", b.routed)
			}
			m.ID = "another"
			if taken, err := b.AnswerText(t.Context(), web, m, 0); c.taken && (taken || err != nil) {
				t.Error("the next message:", taken, err)
			}
		})
	}
}

// An answer that was stored as a message before the card came stays one.
func TestMessageFromBeforeTheCard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sess, err := b.st.ResolveSession(t.Context(), "key", b.main, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.st.Accept(t.Context(), []store.Message{{Instance: "web", PlatformID: "web:admin-main", PlatformMessageID: "m1", AgentGroupID: b.main, RowID: "row", SessionID: sess.ID, Trigger: true}}); err != nil {
		t.Fatal(err)
	}
	b.hold(t, message("1", "web:kim", "x"))
	m := message("m1", "web:admin-main", "1")
	m.Address.PlatformID = "web:admin-main"
	if taken, err := b.AnswerText(t.Context(), channel.Info{Type: "web", Instance: "web"}, m, 0); taken || err != nil {
		t.Error(taken, err)
	}
}

// What nobody could be asked about is counted, until somebody is.
func TestUnasked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	delete(b.adapters, "web")
	delete(b.adapters, "cli")
	count := func() int {
		t.Helper()
		n, err := b.st.UnaskedApprovals(t.Context(), b.clock())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	b.hold(t, message("1", "web:kim", "x"))
	if n := count(); n != 0 {
		t.Errorf("%d at once", n)
	}
	b.later(time.Hour)
	if n := count(); n != 1 || len(b.shown) != 0 {
		t.Errorf("%d after an hour, shown %q", n, b.shown)
	}
	b.channel("web", "web", channel.Connected)
	b.step(t)
	if n := count(); n != 0 || len(b.shown) != 1 {
		t.Errorf("%d, shown %q", n, b.shown)
	}
}

// Retention takes what is over, with its cards; what is open stays, whatever its age.
func TestApprovalsArePruned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, who := range []string{"web:a", "web:b", "web:c"} {
		b.hold(t, message("1", who, "x"))
		if i < 2 {
			b.press(t, i+1, "cli:ann", []string{store.ChoiceReject, store.ChoiceBlock}[i])
		}
	}
	if _, err := b.st.Prune(t.Context(), b.clock().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, err := b.st.Approvals(t.Context(), "", 10)
	var who []id.User
	for _, a := range left {
		who = append(who, a.Sender)
	}
	slices.Sort(who)
	if err != nil || !slices.Equal(who, []id.User{"web:b", "web:c"}) {
		t.Errorf("%q %v", who, err)
	}
	if cards, err := b.st.ApprovalCard(t.Context(), b.ids[0]); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%+v %v", cards, err)
	}
}
