package approval

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// all lines of a table: every combination of the words, none too many.
func all(t *testing.T, table map[string]string, words ...[]string) []string {
	t.Helper()
	lines := []string{""}
	for i, column := range words {
		var next []string
		for _, l := range lines {
			for _, w := range column {
				if i > 0 {
					w = l + "/" + w
				}
				next = append(next, w)
			}
		}
		lines = next
	}
	for _, l := range lines {
		if _, ok := table[l]; !ok {
			t.Errorf("the table has no line %q", l)
		}
	}
	for l := range table {
		if !slices.Contains(lines, l) {
			t.Errorf("the table has a line %q too many", l)
		}
	}
	return lines
}

// What a press leads to, by who presses and what is asked. Columns: the approval is open, approved by the owner with the first
// option, rejected by the owner, out of time, out of time and ended by the sweep; in each of them the options: of a sender allow, deny, block; of a
// chat connect to Nano, connect to Otto, no. s decides, d duplicate, y not yours, a decided already, x too late, o no such option.
func TestPressTable(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"sender/owner":           "sss daa ada xxx xxx",
		"sender/global admin":    "sss aaa aaa xxx xxx",
		"sender/its admin":       "sss aaa aaa xxx xxx",
		"sender/admin elsewhere": "yyy yyy yyy yyy yyy",
		"sender/member":          "yyy yyy yyy yyy yyy",
		"sender/stranger":        "yyy yyy yyy yyy yyy",
		"sender/the sender":      "yyy yyy yyy yyy yyy",
		"sender/program":         "yyy yyy yyy yyy yyy",
		"sender/nobody":          "yyy yyy yyy yyy yyy",
		"chat/owner":             "sss daa aad xxx xxx",
		"chat/global admin":      "sss aaa aaa xxx xxx",
		"chat/its admin":         "syy ayy ayy xyy xyy",
		"chat/admin elsewhere":   "ysy yay yay yxy yxy",
		"chat/member":            "yyy yyy yyy yyy yyy",
		"chat/stranger":          "yyy yyy yyy yyy yyy",
		"chat/the sender":        "yyy yyy yyy yyy yyy",
		"chat/program":           "yyy yyy yyy yyy yyy",
		"chat/nobody":            "yyy yyy yyy yyy yyy",
	}
	people := map[string]channel.Sender{"owner": {ID: "cli:ann"}, "global admin": {ID: "web:chief"}, "its admin": {ID: "web:admin-main"},
		"admin elsewhere": {ID: "web:admin-other"}, "member": {ID: "web:member"}, "stranger": {ID: "web:lee"}, "program": {ID: "cli:ann", IsBot: true}, "nobody": {}}
	b := setup(t)
	n := 0
	ask := func(kind string) (card int) { // about a sender and a chat of its own
		n++
		b.later(2 * time.Hour) // few within an hour
		sender := fmt.Sprint("web:kim", n)
		people["the sender"] = channel.Sender{ID: sender}
		r := Request{Action: store.SendersAdmit, Chat: b.chat(t, fmt.Sprint("web:place", n), true), Agents: []id.AgentGroup{b.main}, Event: message("1", sender, "x")}
		if kind == "chat" {
			r.Action, r.Agents = store.ChannelsRegister, nil
		}
		b.request(t, r)
		return len(b.shown)
	}
	values := map[string][]string{"sender": {store.ChoiceApprove, store.ChoiceReject, store.ChoiceBlock},
		"chat": {store.ChoiceConnect + string(b.main), store.ChoiceConnect + string(b.other), store.ChoiceReject}}
	got := map[string][]byte{}
	lines := all(t, table, []string{"sender", "chat"},
		[]string{"owner", "global admin", "its admin", "admin elsewhere", "member", "stranger", "the sender", "program", "nobody"})
	for _, kind := range []string{"sender", "chat"} {
		for _, state := range []string{"open", "approved", "rejected", "out of time", "ended"} {
			card := ask(kind)
			switch state {
			case "approved":
				b.press(t, card, "cli:ann", values[kind][0])
			case "rejected":
				b.press(t, card, "cli:ann", store.ChoiceReject)
			case "out of time", "ended":
				b.later(limits().Life)
				if state == "ended" {
					b.step(t)
				}
			}
			for _, line := range lines {
				who, mine := strings.CutPrefix(line, kind+"/")
				if !mine {
					continue
				}
				if state != "open" {
					got[line] = append(got[line], ' ')
				}
				for _, value := range values[kind] {
					before := len(b.routed)
					v := b.pressOnly(t, card, people[who], value)
					letter := byte('?')
					switch {
					case v.Kind == channel.Stored:
						letter = 's'
						b.step(t)
						card = ask(kind)
					case v.Kind == channel.Duplicate:
						letter = 'd'
					case v.Reason == notYours:
						letter = 'y'
					case v.Reason == notOpen:
						letter = 'x'
					case v.Reason == noSuchOption:
						letter = 'o'
					case strings.HasPrefix(v.Reason, "it is decided already: "):
						letter = 'a'
					}
					got[line] = append(got[line], letter)
					if routed := len(b.routed) - before; (routed == 1) != (letter == 's' && value != store.ChoiceReject && value != store.ChoiceBlock) {
						t.Errorf("%s, %s, %s: %d routed", line, state, value, routed)
					}
				}
			}
		}
	}
	for _, line := range lines {
		if string(got[line]) != table[line] {
			t.Errorf("%s:\n got %s\nwant %s", line, got[line], table[line])
		}
	}
}

// What becomes of a stranger's message, by what was decided before and where. Columns: the same chat and agent, the same chat and
// another agent, another chat and the same agent. A asks, + is added to what waits, . is not kept, r is routed again.
func TestHoldTable(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"nothing":               "AAA",
		"open":                  "+AA",
		"open, out of time":     "AAA",
		"ended":                 "AAA",
		"approved, not done":    "+AA",
		"approved":              "rAr",
		"approved and taken":    "AAA",
		"rejected":              ".AA",
		"rejected a day ago":    "AAA",
		"blocked":               ".A.",
		"blocked a year ago":    ".A.",
		"blocked and let in":    "rAr",
		"rejected by the owner": ".AA",
	}
	for line, want := range table {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if line != "nothing" {
				b.hold(t, message("0", "web:kim", "x"))
			}
			decide := func(choice string) { b.press(t, 1, "web:admin-main", choice) }
			switch line {
			case "open, out of time":
				b.later(limits().Life)
			case "ended":
				b.later(limits().Life)
				b.step(t)
			case "approved, not done":
				b.pressOnly(t, 1, channel.Sender{ID: "cli:ann"}, store.ChoiceApprove)
			case "approved":
				decide(store.ChoiceApprove)
			case "approved and taken":
				decide(store.ChoiceApprove)
				if err := b.st.RemoveMember(t.Context(), "test", "web:kim", b.main); err != nil {
					t.Fatal(err)
				}
			case "rejected":
				decide(store.ChoiceReject)
			case "rejected a day ago":
				decide(store.ChoiceReject)
				b.later(24 * time.Hour)
			case "blocked":
				decide(store.ChoiceBlock)
			case "blocked a year ago":
				decide(store.ChoiceBlock)
				b.later(366 * 24 * time.Hour)
			case "blocked and let in":
				decide(store.ChoiceBlock)
				if _, err := b.st.AddMember(t.Context(), "test", "web:kim", b.main); err != nil {
					t.Fatal(err)
				}
			case "rejected by the owner":
				if _, err := b.Decide(t.Context(), b.only(t).ID, store.ChoiceReject, "host:ann"); err != nil {
					t.Fatal(err)
				}
			}
			var got []byte
			for i, c := range []struct {
				chat  store.MessagingGroup
				agent id.AgentGroup
			}{{b.team, b.main}, {b.team, b.other}, {b.chat(t, "web:elsewhere", true), b.main}} {
				m := message(fmt.Sprint("m", i), "web:kim", "x")
				a := store.Approval{ID: id.Approval(fmt.Sprint("appr-", i)), Action: store.SendersAdmit, Chat: c.chat.ID, Sender: "web:kim", Agents: []id.AgentGroup{c.agent}, CreatedAt: b.clock()}
				event, err := encode(m)
				if err != nil {
					t.Fatal(err)
				}
				out, err := b.st.Hold(t.Context(), a, store.HeldMessage{ID: m.ID, Event: event}, limits())
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, map[store.HoldOutcome]byte{store.HoldAsk: 'A', store.HoldAdd: '+', store.HoldQuiet: '.', store.HoldMoot: 'r', store.HoldFull: 'f'}[out])
			}
			if string(got) != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
