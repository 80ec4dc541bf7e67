package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
	"nanoclaw/internal/testkit/chatnet"
)

// at waits for a state of one chat.
func (n *network) at(p *chatnet.Platform, chat string, done func(chatnet.State) bool) chatnet.State {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	s, err := p.Await(ctx, p.Info().Type+":"+chat, done)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func posts(count int) func(chatnet.State) bool {
	return func(s chatnet.State) bool { return len(s.Posts) >= count }
}

// write is an event of a chat; group: one in which the agent is mentioned.
func (n *network) write(p *chatnet.Platform, user, chat, text string, group bool) channel.Verdict {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	kind := p.Info().Type + ":"
	_, v, err := p.Write(ctx, channel.Inbound{Address: channel.Address{PlatformID: kind + chat}, Text: text, Sender: channel.Sender{ID: kind + user, Name: user},
		Mention: channel.Yes, Group: group})
	if err != nil {
		n.t.Fatal(err)
	}
	return v
}

// decide answers a card as its platform allows.
func (n *network) decide(p *chatnet.Platform, card chatnet.Post, user string, number int) channel.Verdict {
	n.t.Helper()
	if card.Op.Question == nil {
		return n.write(p, user, user, []string{"1", "2", "3"}[number-1], false)
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	v, err := p.Press(ctx, p.Info().Type+":"+user, card, card.Op.Question.Options[number-1].Value)
	if err != nil {
		n.t.Fatal(err)
	}
	return v
}

// outcome waits until the owner's chat shows what became of the only card, each platform in its way.
func (n *network) outcome(p *chatnet.Platform, chat string) string {
	n.t.Helper()
	var got string
	n.at(p, chat, func(s chatnet.State) bool {
		switch first := s.Posts[0]; {
		case first.Closed != "":
			got = first.Closed
		case first.Edited != "":
			got = first.Edited[strings.LastIndex(first.Edited, "\n")+1:]
		case len(s.Posts) > 1:
			got = s.Posts[1].Op.Text[strings.LastIndex(s.Posts[1].Op.Text, "\n")+1:]
		}
		return got != ""
	})
	return got
}

// A stranger writes a direct message, twice: the owner gets one card in the own chat of the same platform. The host restarts in the
// middle. Once connected, both messages are answered in order, once, and the next one without a question.
func TestUnknownChatIsConnectedWithACard(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, store.ModeShared)
	for _, p := range n.platforms() {
		for _, text := range []string{"first `words`", "second"} {
			if v := n.write(p, "kim", "kim", text, false); v.Kind != channel.Dropped {
				t.Errorf("%s: %+v", p.Info().Type, v)
			}
		}
	}
	for _, p := range n.platforms() {
		n.at(p, "ann", posts(1))
	}
	n.end()
	n.serve()
	for _, p := range n.platforms() {
		kind := p.Info().Type
		card := n.at(p, "ann", posts(1)).Posts[0]
		words := card.Op.Text
		if card.Op.Question != nil {
			words = card.Op.Question.Text
		}
		if !strings.Contains(words, "`kim` (`"+kind+":kim`)") || !strings.Contains(words, "`first words`") {
			t.Errorf("%s: the card says %q", kind, words)
		}
		if v := n.decide(p, card, "ann", 1); v.Kind == channel.Dropped {
			t.Errorf("%s: %+v", kind, v)
		}
		if got := n.outcome(p, "ann"); got != "Connected to Nano by `Ann` (`"+kind+":ann`)." {
			t.Errorf("%s: the card shows %q", kind, got)
		}
		n.at(p, "kim", func(s chatnet.State) bool { return len(s.Settled) >= 2 })
		if v := n.write(p, "kim", "kim", "third", false); v.Kind != channel.Stored {
			t.Errorf("%s: %+v", kind, v)
		}
		s := n.at(p, "kim", func(s chatnet.State) bool { return len(s.Settled) >= 3 })
		got := s.Texts()
		if len(got) == 3 && got[0] == "first `words`" { // else it was answered together with the second
			got = got[1:]
		}
		if !slices.Equal(got, []string{"second", "third"}) {
			t.Errorf("%s: answered %q", kind, s.Texts())
		}
		for _, e := range s.Settled {
			if e.State != channel.Answered {
				t.Errorf("%s: %+v", kind, e)
			}
		}
	}
}

// A stranger in a group: only an admin of the agent decides; who may not changes nothing. Whoever is denied hears nothing, is not asked
// about again, and nothing is stored of what they wrote; whoever is let in is answered.
func TestStrangersInAGroup(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, store.ModeShared)
	p := n.keyed
	home := []string{"NANOCLAW_HOME=" + n.home}
	if _, stderr, code := n.ncl(home, "", "messaging-groups", "update", "--platform-id", room(p), "--unknown-sender-policy", "request_approval"); code != 0 {
		t.Fatal(stderr)
	}
	n.write(p, "kim", "room", "let me in", true)
	n.write(p, "kim", "room", "please", true)
	card := n.at(p, "ann", posts(1)).Posts[0]
	if v := n.decide(p, card, "kim", 1); v.Kind != channel.Dropped || v.Reason == "" {
		t.Errorf("the stranger lets themselves in: %+v", v)
	}
	if v := n.decide(p, card, "ann", 2); v.Kind != channel.Stored {
		t.Errorf("%+v", v)
	}
	if got := n.outcome(p, "ann"); got != "Denied by `Ann` (`keyed:ann`)." {
		t.Errorf("the card shows %q", got)
	}
	n.write(p, "kim", "room", "again", true)

	n.write(p, "lee", "room", "hello", true)
	n.at(p, "ann", posts(2))
	out, _, code := n.ncl(home, "", "approvals", "list")
	if code != 0 || !strings.Contains(out, "keyed:lee") || strings.Contains(out, "keyed:kim") || !strings.Contains(out, "keyed:ann keyed-out-") {
		t.Errorf("code %d:\n%s", code, out)
	}
	var row string
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, "appr-") {
			row = word
		}
	}
	if out, stderr, code := n.ncl(home, "", "approvals", "approve", row); code != 0 || out != "keyed:lee is let in\n" {
		t.Errorf("code %d: %s %s", code, out, stderr)
	}
	if got := n.at(p, "room", posts(1)).Texts(); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("answered %q", got)
	}
	s := n.at(p, "ann", func(s chatnet.State) bool { return s.Posts[len(s.Posts)-1].Closed != "" })
	if len(s.Posts) != 2 || !strings.HasPrefix(s.Posts[1].Closed, "Allowed by `host:") {
		t.Errorf("%+v", s.Posts)
	}
	n.end()
	st, err := store.Open(t.Context(), n.home)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	if _, err := st.User(t.Context(), "keyed:kim"); err == nil {
		t.Error("the denied stranger is a user")
	}
	all, err := st.Approvals(t.Context(), "", 10)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for _, a := range all {
		if held, err := st.HeldCount(t.Context(), a.ID); err != nil || held != 0 || !a.Done {
			t.Errorf("%+v holds %d, %v", a, held, err)
		}
	}
}

// An owner without a chat on the platform is asked in the terminal and answers there.
func TestCardInTheTerminal(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, store.ModeShared)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := n.client.Bootstrap(ctx, control.BootstrapRequest{Conversation: control.DefaultConversation}); err != nil {
		t.Fatal(err)
	}
	for _, p := range n.platforms() {
		if _, stderr, code := n.ncl([]string{"NANOCLAW_HOME=" + n.home}, "", "roles", "revoke", "--user", person(p), "--role", "owner"); code != 0 {
			t.Fatal(stderr)
		}
	}
	n.write(n.plain, "kim", "new room", "@Nano hi", true)
	var shown []string
	err := n.client.Follow(ctx, control.DefaultConversation, 0, func(e control.Event) error {
		switch {
		case e.Question != nil:
			shown = append(shown, e.Question.Title)
			_, err := n.client.Answer(ctx, control.DefaultConversation, control.Answer{Question: e.Question.ID, Value: e.Question.Options[0].Value})
			return err
		case e.Kind == control.EventAnswer:
			shown = append(shown, e.Text[:len("Connected to Nano by")])
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) || !slices.Equal(shown, []string{"New chat", "Connected to Nano by"}) {
		t.Errorf("%q, %v", shown, err)
	}
	if got := n.at(n.plain, "new room", posts(1)).Texts(); !slices.Equal(got, []string{"@Nano hi"}) {
		t.Errorf("answered %q", got)
	}
}
