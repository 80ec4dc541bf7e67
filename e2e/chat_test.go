package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/control"
)

// The whole way through every layer, in every sandbox.
func TestTerminalChat(t *testing.T) {
	t.Parallel()
	for kind, settings := range sandboxes(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			available(t, kind)
			m := setup(t, settings)
			m.start()
			for i, text := range []string{"hello", "日本語 <b>&amp; \"quotes\"", strings.Repeat("long ", 5000) + "end"} {
				a := m.ask(fmt.Sprintf("m%d", i), text)
				if a.state != control.StateAnswered || len(a.texts) != 1 || !strings.Contains(a.texts[0], strings.TrimSpace(text)) {
					t.Errorf("%.40q: state %s, %d texts: %.200q", text, a.state, len(a.texts), a.texts)
				}
			}
			st, err := m.client.Status(t.Context())
			if err != nil || st.Sandbox.Kind != kind || st.Sandbox.Live != 1 {
				t.Errorf("status %+v, %v", st.Sandbox, err)
			}
			out, errs, code := m.run("chat", "from a script")
			if code != 0 || !strings.Contains(out, "from a script") {
				t.Errorf("chat: code %d, stdout %q, stderr %q", code, out, errs)
			}
		})
	}
}

// GATE-3: text before a tool call leaves before the tool ends, once; the tool's own message arrives too.
func TestTextBeforeAToolArrivesAtOnce(t *testing.T) {
	t.Parallel()
	m := setup(t, sandboxes(t)["process"])
	m.script(`{"events":[{"type":"text","text":"<message to=\"terminal\">first</mes"},{"type":"text","text":"sage>"},` +
		`{"type":"tool","name":"send_message","args":{"to":"terminal","text":"by tool"}},{"type":"sleep","ms":1500},` +
		`{"type":"text","text":"<message to=\"terminal\">first</message> <internal>done</internal>"},{"type":"result","text":"<message to=\"terminal\">first</message>"}]}`)
	m.start()
	a := m.ask("m1", "go")
	if a.state != control.StateAnswered || len(a.texts) != 2 || a.texts[0] != "first" || a.texts[1] != "by tool" {
		t.Fatalf("%+v", a)
	}
	if ended := time.Now(); ended.Sub(a.at[0]) < time.Second {
		t.Error("the first text came only with the end")
	}
}

// The fates of design.md section 7 as a person sees them.
func TestFatesOfText(t *testing.T) {
	t.Parallel()
	result := func(text string) string {
		return `{"events":[{"type":"text","text":` + text + `},{"type":"result","text":` + text + `}]}`
	}
	for name, c := range map[string]struct {
		script []string
		texts  []string
		state  string
	}{
		"bare once, then addressed": {[]string{result(`"bare"`), result(`"<message to=\"terminal\">now right</message>"`)}, []string{"now right"}, control.StateAnswered},
		"bare twice":                {[]string{result(`"bare"`), result(`"still bare <internal>hm</internal>"`)}, []string{"still bare"}, control.StateAnswered},
		"silent on purpose":         {[]string{result(`"<internal>nothing to say</internal>"`)}, nil, control.StateSilent},
		"unknown name beside a good one": {[]string{result(`"<message to=\"nosuch\">a</message><message to=\"terminal\">b</message>"`), result(`"<internal>ok</internal>"`)},
			[]string{"b"}, control.StateAnswered},
		"tags in code are text": {[]string{result(`"<message to=\"terminal\">write ` + "`<message to=\\\"x\\\">`" + `</message>"`)}, []string{"write `<message to=\"x\">`"}, control.StateAnswered},
		"a provider's error":    {[]string{`{"events":[{"type":"error","message":"secret diagnostics","retryable":false},{"type":"result","text":"raw dump","isError":true}]}`}, nil, control.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := setup(t, sandboxes(t)["process"])
			m.script(c.script...)
			m.start()
			a := m.ask("m1", "go")
			if a.state != c.state || strings.Join(a.texts, "|") != strings.Join(c.texts, "|") {
				t.Errorf("state %s, texts %q; want %s, %q", a.state, a.texts, c.state, c.texts)
			}
			if c.state == control.StateFailed && (len(a.notices) != 1 || strings.Contains(strings.Join(a.notices, ""), "secret")) {
				t.Errorf("notices %q: one, without diagnostics, was wanted", a.notices)
			}
		})
	}
}

// P9, P3: the host dies in mid-turn; the agent goes on, and the next host delivers what it says, once.
func TestHostIsKilledInMidTurn(t *testing.T) {
	t.Parallel()
	for kind, settings := range sandboxes(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			available(t, kind)
			m := setup(t, settings)
			m.script(`{"events":[{"type":"text","text":"<message to=\"terminal\">begun</message>"},{"type":"tool","name":"send_message","args":{"to":"terminal","text":"working"}},` +
				`{"type":"sleep","ms":2000},{"type":"text","text":"<message to=\"terminal\">finished</message>"},{"type":"result","text":"x"}]}`)
			m.start()
			acc := m.say("m1", "go")
			if _, err := m.firstText(acc.Seq); err != nil {
				t.Fatal(err)
			}
			m.kill()
			m.start()
			a, err := m.await("m1", acc.Seq, patience)
			if err != nil || a.state != control.StateAnswered || strings.Join(a.texts, "|") != "begun|working|finished" {
				t.Fatalf("%+v, %v", a, err)
			}
			if strings.Count(m.log.String(), "sandbox started") != 1 {
				t.Error("the agent was started again")
			}
		})
	}
}

// A follow-up during a turn is answered, after the first answer.
func TestFollowUpDuringATurn(t *testing.T) {
	t.Parallel()
	m := setup(t, sandboxes(t)["process"])
	m.script(`{"events":[{"type":"text","text":"<message to=\"terminal\">one</message>"},{"type":"tool","name":"send_message","args":{"to":"terminal","text":"busy"}},{"type":"sleep","ms":700},{"type":"result","text":"x"}]}`)
	m.start()
	acc := m.say("m1", "first")
	if _, err := m.firstText(acc.Seq); err != nil {
		t.Fatal(err)
	}
	a := m.ask("m2", "second")
	if a.state != control.StateAnswered || !strings.Contains(a.texts[len(a.texts)-1], "second") {
		t.Errorf("%+v", a)
	}
	if first, err := m.await("m1", acc.Seq, patience); err != nil || first.state != control.StateAnswered {
		t.Errorf("the first message: %+v, %v", first, err)
	}
}

// A second host on the same home refuses, names the owner and harms nothing.
func TestSecondHost(t *testing.T) {
	t.Parallel()
	m := setup(t, sandboxes(t)["process"])
	m.start()
	_, errs, code := m.run("serve")
	if code == 0 || !strings.Contains(errs, "another host runs on this home") {
		t.Errorf("code %d, stderr %q", code, errs)
	}
	if a := m.ask("m1", "still there?"); a.state != control.StateAnswered {
		t.Errorf("%+v", a)
	}
}

// A reply made while nobody is attached is there at the next attach, and later hosts still know it.
func TestReplyIsKeptForTheNextAttach(t *testing.T) {
	t.Parallel()
	m := setup(t, sandboxes(t)["process"])
	m.start()
	acc := m.say("m1", "hello")
	if a, err := m.await("m1", acc.Seq, patience); err != nil || len(a.texts) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	m.stop()
	m.start()
	a, err := m.await("m1", control.FromCursor, patience)
	if err != nil || len(a.texts) != 1 || a.state != control.StateAnswered {
		t.Errorf("at the next attach: %+v, %v", a, err)
	}
}
